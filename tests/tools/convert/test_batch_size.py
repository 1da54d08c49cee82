"""Nets that are made at one batch size hold for others, or a note says which layers do not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from mgcaffe.prototxt import NetParameter
from mgcaffe.tools.convert.caffe_side import CaffeSide
from mgcaffe.tools.convert.conversion import convert
from mgcaffe.tools.convert.formats import Options
from mgcaffe.tools.convert.model import Model
from mgcaffe.tools.convert.onnx_files import OnnxFile
from mgcaffe.tools.convert.torch_files import TorchModule

pytestmark = pytest.mark.slow

CODE = """
import torch
from torch import nn

class Patches(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.cut, self.first = nn.Conv2d(3, 8, 4, 4), nn.Parameter(torch.randn(1, 1, 8))
        self.attention, self.scores = nn.MultiheadAttention(8, 2), nn.Linear(8, 5)

    def forward(self, x):
        x = self.cut(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), 1, 8), x], 1).transpose(0, 1)
        return self.scores(self.attention(x, x, x, need_weights=False)[0][0])

class Columns(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.rnn, self.scores = nn.LSTM(24, 6, 2, bidirectional=True), nn.Linear(12, 5)

    def forward(self, x):
        y, (h, c) = self.rnn(x.flatten(1, 2).permute(2, 0, 1))
        return self.scores(torch.cat([h[2], h[3]], 1) + y.mean(0))

class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.cell, self.scores = nn.LSTMCell(8, 6), nn.Linear(6, 5)

    def forward(self, x):
        state = None
        for row in range(2):
            state = self.cell(x[:, 0, row], state)
        return self.scores(state[0]) + torch.ones_like(x[:, 0, 0, :5])

class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.norm, self.scores = nn.LayerNorm(8), nn.Linear(8, 5)

    def forward(self, x):
        y = self.norm(x.flatten(0, 2)) @ torch.eye(8)
        return self.scores(torch.einsum("bcij,bcik->bjk", x, y.reshape(x.shape)).mean(1))

class Items(nn.Module):
    def forward(self, x):
        return x.permute(1, 2, 0, 3).reshape(24, -1, 8) + x.shape[0]

class Number(nn.Module):
    def forward(self, x):
        return x / x.shape[0]

class Limit(nn.Module):
    def forward(self, x):
        return x.clamp(-1.0, x.shape[0] * 0.25)

class Sometimes(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.scores = nn.Linear(8, 5)

    def forward(self, x):
        return nn.functional.linear(x, self.scores.weight, self.scores.bias if x.shape[0] < 3 else None)

class Second(nn.Module):
    def forward(self, x):
        return x.unsqueeze(0)[:, 1]

class First(nn.Module):
    def forward(self, x):
        return x[:1].exp()

class Parts(nn.Module):
    def forward(self, x):
        return x.split(1)[0].exp()

class All(nn.Module):
    def forward(self, x):
        return x[:].chunk(1)[0].exp()

class Values(nn.Module):
    def forward(self, x):
        return x + torch.arange(8) * len(x)

class Squeezed(nn.Module):
    def forward(self, x):
        return x.sum((1, 2)).squeeze(0).unsqueeze(-1)

class Longer(nn.Module):
    def forward(self, x):
        y = x.exp()
        return y.tanh() if x.shape[0] > 2 else y

class Rows2(nn.Module):
    def forward(self, x):
        return x.reshape(2, 24, 8)

class Rows1(nn.Module):
    def forward(self, x):
        return x.reshape(1, 24, 8)

class Sums2(nn.Module):
    def forward(self, x):
        return x.reshape(2, 24, 8) + torch.arange(8)

class SqueezedAll(nn.Module):
    def forward(self, x):
        return x.mean(1, keepdim=True).squeeze()

class SqueezedRows(nn.Module):
    def forward(self, x):
        y = x.flatten(1).squeeze(0)
        return y.reshape(y.shape[0], -1).exp()

class Pairs(nn.Module):
    def forward(self, x):
        y = x.flatten(1)
        return (y @ y.T).reshape(1, 1, len(x), len(x))

class Scaled(nn.Module):
    def forward(self, factor, x):
        return x * factor

class Turned(nn.Module):
    def forward(self, x):
        y = x.mean((1, 2, 3)).unsqueeze(0)
        return torch.maximum(y, y.T)
"""
IMAGE = (3, 8, 8)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(CODE)
    return tmp_path


def module(name: str) -> nn.Module:
    space: dict[str, type[nn.Module]] = {}
    exec(CODE, space)
    return space[name]().eval()


def with_items(net: NetParameter, count: int) -> None:
    """Change the batch size, as a user does in the prototxt."""
    net.layer[0].input_param.shape[0].dim[0] = count


def check_at(model: Model, name: str, count: int) -> None:
    """Asserts that a net computes what the module does, at another batch size."""
    with_items(model.source.param, count)
    net = model.build()
    x = np.random.default_rng(2).standard_normal((count, *IMAGE), dtype=np.float32)
    values = CaffeSide(net).run({"data": x})
    with torch.no_grad():
        expected = module(name)(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(values[net.outputs[0]], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("made_at", [1, 2, 3])
@pytest.mark.parametrize("name", ["Patches", "Columns", "Cell", "Rows", "All"])
def test_a_module_becomes_a_net_for_any_batch_size(name, made_at, folder):
    opened = TorchModule([f"nets.py:{name}"], Options(input_shapes=(("", (made_at, *IMAGE)),)))
    model = opened.model()
    assert not opened.notes and model.source.param.layer[0].input_param.shape[0].dim == [made_at, *IMAGE]
    for count in (1, 5):
        check_at(model, name, count)


@pytest.mark.parametrize("made_at", [1, 4])
def test_the_proof_is_at_the_size_that_was_asked_for(made_at, folder):
    result = convert("nets.py:Patches", "net.prototxt", input_shape=(made_at, *IMAGE))
    assert result.holds and result.training is not None and not result.notes
    assert f"dim: {made_at}" in Path("net.prototxt").read_text()


def test_a_program_holds_for_its_own_size_as_a_note_says(folder):
    program = torch.export.export(module("Patches"), (torch.zeros(3, *IMAGE),), strict=False)
    torch.export.save(program, "net.pt2")
    result = convert("net.pt2", "net.prototxt")
    assert any("for this batch size alone, of which the graph has numbers: layer" in note for note in result.notes)


@pytest.mark.parametrize(
    ("name", "made_at", "layer"),
    [
        ("Items", 2, "add"),
        ("Number", 2, "div"),
        ("Number", 1, "div"),
        ("Limit", 2, "clamp"),
        ("Sometimes", 2, "linear"),
        ("Second", 2, "select"),
        ("Values", 3, "add"),
        ("Squeezed", 1, "squeeze"),
        ("SqueezedAll", 1, "squeeze"),
        ("SqueezedRows", 1, "squeeze"),
        ("Turned", 1, "mean"),
        ("Pairs", 2, "reshape"),
        ("Longer", 2, "exp"),
        ("Rows1", 1, "reshape"),
        ("Sums2", 2, "add"),
    ],
)
def test_what_computes_with_the_batch_size_is_named(name, made_at, layer, folder):
    opened = TorchModule([f"nets.py:{name}"], Options(input_shapes=(("", (made_at, *IMAGE)),)))
    model = opened.model()
    (note,) = opened.notes
    assert note.startswith(f"for this batch size alone, of which the graph has numbers: layer '{layer}'")
    check_at(model, name, made_at)


@pytest.mark.parametrize(("name", "operator", "saved"), [("First", "slice", False), ("Parts", "split", True)])
def test_what_takes_the_only_item_is_named(name, operator, saved, folder):
    word = f"nets.py:{name}"
    if saved:
        word = "net.pt2"
        torch.export.save(torch.export.export(module(name), (torch.zeros(1, *IMAGE),), strict=False), word)
    opened = TorchModule([word], Options(input_shapes=() if saved else (("", (1, *IMAGE)),)))
    model = opened.model()
    (note,) = opened.notes
    assert note.startswith("for this batch size alone") and note.endswith(
        f": operator '{operator}', which takes all items"
    )
    check_at(model, name, 1)


def test_a_module_that_runs_at_its_own_size_alone_may_become_a_net_for_any(folder):
    opened = TorchModule(["nets.py:Rows2"], Options(input_shapes=(("", (2, *IMAGE)),)))
    model = opened.model()
    assert not opened.notes
    check_at(model, "Rows2", 2)
    with_items(model.source.param, 5)
    net = model.build()
    assert net.blobs[net.outputs[0]].shape == (5, 24, 8)


def test_a_first_input_of_one_number_has_no_batch(folder):
    opened = TorchModule(["nets.py:Scaled"], Options(input_shapes=(("factor", ()), ("x", (2, *IMAGE)))))
    inputs = opened.model().source.param.layer[:2]
    assert [list(layer.input_param.shape[0].dim) for layer in inputs] == [[], [2, *IMAGE]]
    assert not opened.notes


def onnx_model(path: Path, *, is_open: bool) -> None:
    axes = {"dynamic_axes": {"x": {0: "items"}}} if is_open else {}
    example = torch.zeros(2, *IMAGE)
    torch.onnx.export(module("Columns"), (example,), str(path), dynamo=False, input_names=["x"], **axes)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("made_at", [1, 2])
def test_an_onnx_file_of_open_size_becomes_a_net_for_any(made_at, folder):
    pytest.importorskip("onnx")
    onnx_model(folder / "net.onnx", is_open=True)
    opened = OnnxFile(["net.onnx"], Options(input_shapes=(("x", (made_at, *IMAGE)),)))
    model = opened.model()
    assert not opened.notes
    for count in (1, 5):
        check_at(model, "Columns", count)


ONE_ITEM = {
    "Slice": ("y = Slice(x, first, one)", "operator 'slice_0', which takes all items"),
    "Gather": ("y = Gather<axis=0>(x, first)", "operator 'gather_0', which takes all items"),
    "Split": ("y = Split<axis=0>(x, one)", "operator 'split_0', which takes all items"),
    "Slice of all": ("y = Slice(x, first, many)", None),
    "Split of all": ("y = Split<axis=0>(x)", None),
    "Slice along another axis": ("y = Slice(x, first, three, one)", None),
}


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("name", ONE_ITEM)
def test_an_onnx_file_that_takes_the_only_item_says_so(name, is_open, folder):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from tests.support.onnx_models import model, written

    body, expected = ONE_ITEM[name]
    numbers = {"first": [0], "one": [1], "three": [3], "many": [2**31 - 1]}
    message = model(f"{body.replace('y =', 'a =')} y = Relu(a)", numbers, opset=13, shape=(1, *IMAGE))
    if is_open:
        message.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "items"
    opened = OnnxFile([str(written(message, folder))], Options(input_shapes=(("x", (1, *IMAGE)),) if is_open else ()))
    opened.model()
    start = "for this batch size alone, of which the graph has numbers: "
    assert opened.notes == ([] if expected is None else [start + expected])


@pytest.mark.parametrize("is_open", [False, True])
def test_an_onnx_file_that_makes_one_row_of_the_only_item_holds_for_it_alone_unless_sizes_are_open(is_open, folder):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from tests.support.onnx_models import model, written

    message = model("a = Flatten<axis=0>(x) y = Relu(a)", shape=(1, *IMAGE))
    if is_open:
        message.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "items"
    opened = OnnxFile([str(written(message, folder))], Options(input_shapes=(("x", (1, *IMAGE)),) if is_open else ()))
    found = opened.model()
    if is_open:
        with_items(found.source.param, 4)
        net = found.build()
        assert not opened.notes and net.blobs[net.outputs[0]].shape == (1, 4 * 3 * 8 * 8)
    else:
        (note,) = opened.notes
        assert note.endswith("operator 'flatten_0', which takes all items")


def test_an_onnx_file_that_makes_one_row_of_several_items_names_one_layer(folder):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from tests.support.onnx_models import model, written

    message = model("a = Flatten<axis=0>(x) y = Relu(a)", shape=(2, *IMAGE))
    opened = OnnxFile([str(written(message, folder))], Options())
    opened.model()
    assert opened.notes == ["for this batch size alone, of which the graph has numbers: layer 'flatten_0'"]


def test_the_batch_of_an_onnx_file_may_be_that_of_a_later_input(folder):
    onnx = pytest.importorskip("onnx")
    text = """
    <ir_version: 8, opset_import: ["" : 13]> g (float[1] s, float[N, 4] x) => (float[M, 2] y)
    <int64[2] sizes = {4, 2}> { a = Mul(x, s) y = Reshape(a, sizes) }
    """
    onnx.save(onnx.parser.parse_model(text), "net.onnx")
    opened = OnnxFile(["net.onnx"], Options(input_shapes=(("x", (2, 4)),)))
    opened.model()
    (note,) = opened.notes
    assert note == "for this batch size alone, of which the graph has numbers: layer 'mul_0.reshape' and 1 more"


@pytest.mark.parametrize(("kind", "layer"), [("Add", "add_0"), ("Mul", "mul_0")])
def test_an_onnx_file_with_a_value_for_each_item_says_so(kind, layer, folder):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from tests.support.onnx_models import model, written

    for items, others in ((2, ()), (1, (2,))):
        body = f"y = {kind}(x, w)"
        message = model(body, {"w": (items, 5)}, shape=(items, *others, 5))
        opened = OnnxFile([str(written(message, folder))], Options())
        opened.model()
        start = "for this batch size alone, of which the graph has numbers: "
        assert opened.notes == ([] if others else [f"{start}layer '{layer}'"])
