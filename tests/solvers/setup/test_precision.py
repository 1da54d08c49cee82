"""`precision`: the same on all ranks, snapshots in float32, resumed to the bit, refused where it cannot be."""

import json
from types import SimpleNamespace

import h5py
import pytest
import torch

from mgcaffe.comm import run_ranks
from mgcaffe.engine.kernels.precision import BF16, FP16
from mgcaffe.errors import EXIT_BAD_INPUT, SolverError
from mgcaffe.prototxt import NetParameter
from mgcaffe.solvers.events import Noted, Warned
from mgcaffe.solvers.setup.precision import warn_of_losses
from tests.support.solverkit import Recorder, data_layer, make_solver

NET = "".join(
    f"layer {{ {text} }}\n"
    for text in (
        "name: 'conv1' type: 'Convolution' bottom: 'data' top: 'c1' "
        "convolution_param { num_output: 8 kernel_size: 3 pad: 1 weight_filler { type: 'gaussian' std: 0.2 } }",
        "name: 'norm' type: 'BatchNorm' bottom: 'c1' top: 'c1'",
        "name: 'scale' type: 'Scale' bottom: 'c1' top: 'c1' scale_param { bias_term: true }",
        "name: 'relu' type: 'ReLU' bottom: 'c1' top: 'c1'",
        "name: 'conv2' type: 'Convolution' bottom: 'c1' top: 'c2' "
        "convolution_param { num_output: 8 kernel_size: 1 weight_filler { type: 'gaussian' std: 0.2 } }",
        "name: 'sum' type: 'Eltwise' bottom: 'c1' bottom: 'c2' top: 'sum'",
        "name: 'ip' type: 'InnerProduct' bottom: 'sum' top: 'ip' "
        "inner_product_param { num_output: 1 weight_filler { type: 'gaussian' std: 0.1 } }",
        "name: 'loss' type: 'EuclideanLoss' bottom: 'ip' bottom: 'label' top: 'loss'",
    )
)


def train(folder, fields, size=1, *, steps=4, restore=None, **options):
    """Train some steps; return each rank's recorder and what trains of its parameters."""
    with h5py.File(folder / "data.h5", "w") as file:
        generator = torch.Generator().manual_seed(3)
        file["data"] = torch.randn(24, 2, 5, 5, generator=generator).numpy()
        file["label"] = torch.randn(24, generator=generator).numpy()
    listing = folder / "data.txt"
    listing.write_text(f"{folder / 'data.h5'}\n")
    net = data_layer(listing, 8 // size) + NET

    def rank(communicator):
        recorder = Recorder()
        given = {"recorder": recorder, "communicator": communicator if size > 1 else None, "dtype": torch.float32}
        fields_of_all = f"comm_param {{ schedule: SINGLE }} momentum: 0.9 {fields}"
        with make_solver(net, fields_of_all, folder, **given | options) as solver:
            if restore:
                solver.restore(str(restore))
            solver.step(steps)
            if steps == 10 and size == 1:
                solver.snapshot()
            assert solver._state.started(0, 8).precision == solver.net.context.precision.name
            trained = [each.data.flatten() for each in solver.net.parameters if not each.measured]
            return recorder, torch.cat(trained), solver.net.context.precision.name

    return run_ranks(size, rank)


def texts(recorder, kind):
    return [event.text for event in recorder.of(kind)]


def test_ranks_have_the_same_bits_and_train_close_to_float32(tmp_path):
    (recorder, first, name), (_, second, _) = train(tmp_path, 'precision: "bf16"', size=2)
    assert name == "bf16"
    assert "products are computed in bf16; weights, their gradients, statistics and losses in float32" in texts(
        recorder, Noted
    )
    assert torch.equal(first, second)
    ((_, plain, name),) = train(tmp_path, "")
    assert name == "float32"
    assert not torch.equal(first, plain)
    # Of two ranks each has its own statistics of half a batch, so only the size is compared.
    ((_, alone, _),) = train(tmp_path, 'precision: "bf16"')
    assert float((alone - plain).norm() / plain.norm()) < 0.05


def test_a_snapshot_is_of_float32_and_a_run_goes_on_to_the_bit(tmp_path):
    fields = 'precision: "bf16"'
    train(tmp_path, fields, steps=10)
    state = tmp_path / "net_iter_10.solverstate"
    message = NetParameter.FromString((tmp_path / "net_iter_10.caffemodel").read_bytes())
    weight = torch.tensor(message.layer[1].blobs[0].data)
    assert not torch.equal(weight, weight.bfloat16().float())  # more than 16 bits of each
    ((recorder, resumed, _),) = train(tmp_path, fields, steps=9, restore=state)
    ((_, whole, _),) = train(tmp_path, fields, steps=19)
    assert torch.equal(resumed, whole)
    assert not [text for text in texts(recorder, Warned) if "no fast instructions" not in text]
    ((recorder, _, _),) = train(tmp_path, "", steps=1, restore=state)
    assert texts(recorder, Warned) == ["the snapshot was taken with products in bf16 and training goes on in float32"]


def test_a_snapshot_of_float32_goes_on_in_bf16_and_says_so(tmp_path):
    train(tmp_path, "", steps=10)
    ((recorder, _, _),) = train(tmp_path, 'precision: "bf16"', steps=1, restore=tmp_path / "net_iter_10.solverstate")
    warnings = [text for text in texts(recorder, Warned) if "no fast instructions" not in text]
    assert warnings == ["the snapshot was taken with products in float32 and training goes on in bf16"]


@pytest.mark.parametrize(
    ("name", "dtype", "message"),
    [
        ("fp16", torch.float64, "precision 'fp16': it rounds operands of float32, and the blobs are of float64"),
        ("tf32", torch.float32, "precision 'tf32': only GPUs compute products in TF32"),
        ("bf16", torch.float64, "precision 'bf16': it rounds operands of float32, and the blobs are of float64"),
        ("half", torch.float32, "precision 'half': there is no such precision"),
    ],
)
def test_what_cannot_be_had_ends_the_run_with_the_reason(tmp_path, name, dtype, message):
    with pytest.raises(SolverError, match=message) as caught:
        train(tmp_path, f'precision: "{name}"', dtype=dtype)
    assert caught.value.exit_code == EXIT_BAD_INPUT
    assert caught.value.hint


def test_a_processor_that_is_slow_at_it_is_warned_of(tmp_path, monkeypatch):
    from mgcaffe.solvers.setup import precision

    monkeypatch.setattr(precision, "is_slow", lambda *_: True)
    ((recorder, _, _),) = train(tmp_path, 'precision: "bf16"', steps=1)
    assert texts(recorder, Warned)[0] == (
        "this processor has no fast instructions for products in bf16: they are made of rounded operands in float32;"
        " a step takes longer than with precision float32"
    )


@pytest.mark.usefixtures("measures_here")
def test_autotune_measures_products_of_16_bits_apart(tmp_path, monkeypatch):
    monkeypatch.setattr("mgcaffe.engine.kernels.processor.multiplies_bf16", lambda: True)
    file = tmp_path / "choices.json"
    train(tmp_path, f'precision: "bf16" autotune: "{file}"', steps=1)
    narrow = [text for text in json.loads(file.read_text())["operations"] if "bfloat16" in text]
    # The inner product of eight rows stays in float32 but for its weight's gradient, and was measured with the others.
    assert sorted(text.partition(" ")[0] for text in narrow) == [*["convolution"] * 5, "inner"]
    ((recorder, _, _),) = train(tmp_path, f'autotune: "{file}"', steps=1)
    assert any(text.startswith("autotune: measured 6 operations in ") for text in texts(recorder, Noted))


def test_a_users_loss_with_parameters_of_its_own_is_named_in_fp16():
    def warnings(precision, *, may_ignore=True, owned=("weight",), weight=1.0):
        layer = SimpleNamespace(name="mine", may_ignore_top_diff=may_ignore)
        node = SimpleNamespace(layer=layer, owned=list(owned), loss_weights=[weight])
        found = []
        warn_of_losses(SimpleNamespace(nodes=[node]), precision, found.append)
        return found

    (warning,) = warnings(FP16)
    assert isinstance(warning, Warned)
    assert warning.text.startswith("layer 'mine' is a loss with parameters of its own: in fp16 its backward has to")
    assert not warnings(BF16)
    assert not warnings(FP16, may_ignore=False) + warnings(FP16, owned=()) + warnings(FP16, weight=0.0)
