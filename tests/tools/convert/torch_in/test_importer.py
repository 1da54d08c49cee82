"""Names of layers and blobs, layers in place, values written over, inputs and outputs, and what is refused where."""

import inspect
from pathlib import Path

import pytest
import torch
from torch import nn

from mgcaffe.errors import DataError, NetError
from mgcaffe.tools.convert.caffe_side import value_names
from mgcaffe.tools.convert.torch_in.importer import import_program
from mgcaffe.tools.convert.torch_in.program import export_module
from tests.support.torchkit import SHAPE, Function, converted, layers_of, types_of

F = torch.nn.functional


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(4, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.relu(self.conv2(self.relu(self.bn1(self.conv1(x)))) + x)


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer1 = nn.Sequential(Block(), Block())
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.flatten(self.pool(self.layer1(x)), 1))


def test_layers_are_called_after_modules_and_work_in_place_as_in_caffe():
    layers = {layer.name: layer for layer in layers_of(converted(Nested()))}
    block = ["conv1", "bn1", "bn1.scale", "relu", "conv2", "add", "relu_2"]
    expected = [f"layer1.{number}.{name}" for number in (0, 1) for name in block]
    assert list(layers) == [*expected, "pool", "flatten", "fc"]
    for name in ("bn1", "bn1.scale", "relu"):
        layer = layers[f"layer1.0.{name}"]
        assert list(layer.bottom) == list(layer.top) == ["layer1.0.conv1"]
    assert list(layers["layer1.0.add"].bottom) == ["layer1.0.conv2", "data"]
    assert list(layers["layer1.0.relu_2"].top) == ["layer1.0.add"]
    assert list(layers["layer1.1.conv1"].bottom) == ["layer1.0.add"]


def test_every_value_of_the_net_has_its_name_in_the_graph():
    model = converted(Nested())
    values = {name for row in value_names(model.build()) for name in row if "_split_" not in name}
    assert set(model.names) == values - {"layer1.0.conv1@layer1.0.bn1", "layer1.1.conv1@layer1.1.bn1"}
    assert model.names["data"] == "x" and model.names["fc"] == "linear"
    assert model.names["layer1.0.conv1@layer1.0.conv1"] == "conv2d"


def test_parameters_are_known_by_their_names_in_the_module():
    model = converted(Nested())
    assert model.parameters["layer1.0.bn1.scale", 1].name == "layer1.0.bn1.bias"
    assert {each.name for each in model.parameters.values()} == {name for name, _ in Nested().named_parameters()}


def test_what_is_read_elsewhere_is_not_written_over():
    model = converted(Function(lambda x: torch.cat([y := F.conv2d(x, torch.ones(2, 4, 1, 1)), F.relu(y)], 1)))
    assert [list(layer.top) for layer in layers_of(model)] == [["conv2d"], ["relu"], ["cat"]]
    outputs = converted(Function(lambda x: (y := x.tanh() * 2 + 1, y.relu())))
    assert types_of(outputs) == ["TanH", "Power", "Power", "ReLU"]


class CopyWrittenOver(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.tanh()
        return y, y.clone().relu_()


def test_a_value_with_a_copy_has_its_first_name():
    model = converted(CopyWrittenOver())
    assert model.names == {"data": "x", "tanh": "tanh", "relu": "relu_"} and model.outputs == ["tanh", "relu"]


class ContiguousWrittenOver(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.tanh().transpose(2, 3)
        return y.contiguous().relu_() + y


def test_another_order_in_memory_is_a_copy_that_may_be_written_over():
    assert types_of(converted(ContiguousWrittenOver())) == ["TanH", "Permute", "ReLU", "Eltwise"]


def test_a_module_that_exports_but_does_not_run_is_refused():
    with pytest.raises(DataError, match="PyTorch cannot run the program: RuntimeError: unsupported operation"):
        converted(Function(lambda x: (y := x.tanh()).add_(y.transpose(2, 3))))


class WrittenOver(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.tanh()
        z = y
        y.mul_(2).add_(1)
        return z + x


def test_a_value_that_is_written_over_is_the_new_one_under_every_name():
    model = converted(WrittenOver())
    assert types_of(model) == ["TanH", "Power", "Power", "Eltwise"]
    assert list(layers_of(model)[-1].bottom) == ["add", "data"]


class PartWrittenOver(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.tanh()
        y[:, :2].mul_(2)
        return y


class DroppedWrittenOver(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.tanh()
        return F.dropout(y, 0.5, self.training).relu_() + y


class ExpandedWrittenOver(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.mean((2, 3), keepdim=True)
        z = y.expand(-1, -1, 6, 6)
        y.mul_(2)
        return z.tanh()


class RepeatedWrittenOver(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.tanh()
        return y.repeat(1, 1, 1, 1).relu_() + y.repeat(1, 1, 1, 2).sigmoid_()[..., :6] + y


def test_what_is_repeated_is_a_copy_that_may_be_written_over():
    types = ["TanH", "ReLU", "Tile", "Sigmoid", "Slice", "Eltwise", "Eltwise", "Silence"]
    assert types_of(converted(RepeatedWrittenOver())) == types


class AlwaysByBatch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(4)

    def train(self, mode: bool = True) -> "AlwaysByBatch":
        return super().train(True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.bn(x)


class TwoInputs(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


def test_several_inputs_keep_their_names():
    program = torch.export.export(TwoInputs(), (torch.zeros(2, 3), torch.zeros(2, 3)), strict=False)
    model = import_program(program, name="net", file="net")
    assert model.build().inputs == ["x", "y"]


def test_a_computed_value_that_nothing_reads_makes_no_layer():
    def function(x: torch.Tensor) -> torch.Tensor:
        x.exp()
        return x.tanh()

    assert types_of(converted(Function(function))) == ["TanH"]


def test_what_is_written_in_place_and_read_by_nothing_makes_no_layer():
    def function(x: torch.Tensor) -> torch.Tensor:
        y = F.conv2d(x, torch.ones(2, 4, 1, 1))
        y.relu_()
        return x.tanh()

    assert types_of(converted(Function(function))) == ["TanH"]


def test_one_factor_for_the_channels_of_the_only_item_holds_for_other_batches():
    model = converted(Function(lambda x: x * x[:, :1]), (1, *SHAPE[1:]))
    model.source.param.layer[0].input_param.shape[0].dim[0] = 2
    assert model.build().blobs[model.outputs[0]].shape == (2, *SHAPE[1:])


def test_all_axes_in_one_are_no_shuffle_of_channels():
    model = converted(Function(lambda x: x.view(-1) * 2), (1, 4, 6, 6))
    assert types_of(model) == ["Reshape", "Power"]


def test_an_output_may_be_detached():
    assert types_of(converted(Function(lambda x: x.tanh().detach()))) == ["TanH"]


# A module or function, and the beginning of what is said.
REFUSED = {
    "running products": (lambda x: x.cumprod(1), "no layer computes this operator"),
    "random": (lambda x: x + torch.rand(4, 1, 1), "no layer computes this operator"),
    "weights computed": (lambda x: F.conv2d(x, x), "its weight is computed in the net"),
    "negative pad": (lambda x: F.conv2d(F.pad(x, (0, -1)), torch.ones(1, 4, 2, 2)), "it pads by less than 0"),
    "pad with ones": (lambda x: F.pad(x, (1, 1), value=1.0), "it pads with another number than zero"),
    "negative pad of edges": (lambda x: F.pad(x, (0, -1, 0, 0), "replicate"), "it puts 0 and -1 values around 6"),
    "pad of items": (lambda x: F.pad(x, (0, 0, 0, 0, 0, 0, 1, 1)), "it pads the batch axis"),
    "pad before maximum": (lambda x: F.max_pool2d(F.pad(x, (1, 1, 1, 1)), 2), "zeros are put around an image"),
    "pad before maximum of a slope": (
        lambda x: F.max_pool2d(F.pad(F.leaky_relu(x), (1, 1, 1, 1)), 2), "zeros are put around an image"),
    "pad behind windows rounded up": (
        lambda x: F.max_pool2d(F.pad(x.relu(), (0, 1, 0, 1)), 2, ceil_mode=True), "a window lies outside of the image"),
    "output padding": (nn.ConvTranspose2d(4, 2, 3, 2, output_padding=1), "its output_padding adds rows"),
    "averages of images": (nn.InstanceNorm2d(4, track_running_stats=True), "it has running averages of single images"),
    "more neighbours than channels": (nn.LocalResponseNorm(11), "its size is 11; LRN takes an odd number"),
    "even neighbours": (nn.LocalResponseNorm(4), "its size is 4; LRN takes an odd number"),
    "largest of all": (lambda x: x + x.max(), "it is over all values, the batch among them"),
    "largest of the batch": (lambda x: x.amax(), "it reduces the batch axis"),
    "smallest of the batch": (lambda x: x.min(0)[0], "it reduces the batch axis"),
    "place of the largest": (lambda x: x.max(1)[1] * x[:, 0], "no layer makes its result 1, which is read"),
    "without a batch": (lambda x: F.conv2d(x.view(12, 6, 6), torch.ones(1, 12, 2, 2)), "the input has shape"),
    "dilated pooling": (nn.MaxPool2d(2, 1, dilation=2), "its windows have holes"),
    "adaptive of rows": (lambda x: F.adaptive_max_pool1d(x.flatten(2), 8), r"\(36,\) for \(8,\) results differ"),
    "adaptive": (nn.AdaptiveMaxPool2d(4), r"its windows over \(6, 6\) for \(4, 4\) results differ in size"),
    "pad before maximum of rows": (
        lambda x: F.max_pool1d(F.pad(x.flatten(2), (1, 1)), 2), "zeros are put around an image"),
    "too many weights": (
        lambda x: F.interpolate(x.view(1, 1, 1, -1), (1, 10**6), mode="bilinear"), "it makes 1000000 values of 432"),
    "smaller than a pixel": (
        lambda x: F.interpolate(x[..., None], scale_factor=(1, 1, 0.5), mode="area"), r"shape \(3, 4, 6, 6, 0\)"),
    "divisor over volumes": (
        lambda x: F.avg_pool3d(x[:, :, None], (1, 2, 2), divisor_override=3), "it divides the sums over volumes"),
    "softplus": (nn.Softplus(2), "BNLL is a softplus with beta 1"),
    "softplus of another threshold": (nn.Softplus(threshold=3), "it is a line from 3 on"),
    "hardshrink": (nn.Hardshrink(), "no layer computes this operator"),
    "tensor bounds": (lambda x: x.clamp(min=x.tanh()), "its bounds are tensors"),
    "tensor exponent": (lambda x: x.abs() ** x, "its exponent is a tensor"),
    "a constant of more axes": (lambda x: x + torch.ones(5, 1, 4, 6, 6), "broadcast in both directions"),
    "mean of the batch": (lambda x: x.mean(), "it reduces the batch axis"),
    "gate of the batch": (lambda x: F.glu(x[:, :, :, :4].transpose(0, 3).tanh(), 0), "it halves the batch axis"),
    "repeated batch": (lambda x: x.repeat(2, 1, 1, 1), "it repeats axis 0 2 times"),
    "repeated batch in front": (lambda x: x.expand(2, *x.shape), "it repeats axis 0 2 times"),
    "repeated never": (lambda x: x.repeat(1, 0, 1, 1), "it repeats axis 1 0 times"),
    "expanded and written over": (ExpandedWrittenOver(), "it writes over a part or view"),
    "pixels of another rank": (lambda x: F.pixel_shuffle(x.unsqueeze(1), 2), r"has shape \(3, 1, 4, 6, 6\)"),
    "channels of another rank": (lambda x: F.pixel_unshuffle(x[:, 0], 2), r"has shape \(3, 6, 6\); its layers take"),
    "part of the batch": (lambda x: x[:1], "it takes some items of the batch"),
    "nothing": (lambda x: x[:, 2:2], "it takes nothing of axis 1"),
    "adaptive without a batch": (lambda x: F.adaptive_avg_pool2d(x.view(12, 6, 6), 1), "without a batch axis"),
    "items with a step": (lambda x: x[::2], "it takes some items of the batch"),
    "computed places": (lambda x: x[:, x[0, :, 0, 0].argsort()], "no layer computes this operator"),
    "places along axes apart": (
        lambda x: x[:, torch.tensor([0, 1]), :, torch.tensor([0, 1])], "along axes that are not neighbours"),
    "another norm": (lambda x: torch.linalg.vector_norm(x, 3, 1), "it is a norm of order 3"),
    "whole numbers": (lambda x: x.to(torch.int64), "it makes whole numbers for an output"),
    "truth values": (lambda x: x.to(torch.bool), "it makes flags of floating-point numbers"),
    "nothing but the input": (lambda x: x, "output 'inputs_0' is not computed"),
    "empty interval": (lambda x: x.clamp(1, -1), "its interval is empty: 1 to -1"),
    "dropout of channels in training": (lambda x: F.dropout2d(x, training=True), "it was exported in training mode"),
    "alpha dropout in training": (lambda x: F.alpha_dropout(x, training=True), "it was exported in training mode"),
    "rounded quotient": (lambda x: torch.div(x, 2, rounding_mode="floor"), "it rounds the quotient"),
    "division by zero": (lambda x: x / 0, "it divides by zero"),
    "no gradient": (lambda x: x.tanh().detach() + x, "no gradient flows through it"),
    "part written over": (PartWrittenOver(), "it writes over a part or view"),
    "what dropout gives written over": (DroppedWrittenOver(), "it writes over a part or view"),
    "averages changed": (AlwaysByBatch(), "it changes a parameter or buffer, which only training does"),
}  # fmt: skip
_FORWARD = inspect.getsourcelines(Function.forward)


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_layer_computes_is_refused_with_operator_and_line(name):
    function, message = REFUSED[name]
    module = function if isinstance(function, nn.Module) else Function(function)
    program = export_module(module, SHAPE, "the module")
    with pytest.raises(NetError, match=message) as caught:
        import_program(program, name="net", file="net")
    assert caught.value.exit_code == 65
    if not message.startswith("output '"):
        assert "(operator aten." in str(caught.value)
        if module is not function:
            place, (lines, first) = caught.value.location, _FORWARD
            assert Path(place.file).name == "torchkit.py" and place.line == first + len(lines) - 1


def test_the_line_is_that_of_the_forward_that_is_at_fault():
    program = export_module(PartWrittenOver(), SHAPE, "the module")
    with pytest.raises(NetError) as caught:
        import_program(program, name="net", file="net")
    lines, first = inspect.getsourcelines(PartWrittenOver.forward)
    assert caught.value.location.line == first + 2 and "mul_" in lines[2]


def test_the_module_is_named():
    program = export_module(nn.Sequential(nn.ReLU(), nn.Hardshrink()), SHAPE, "the module")
    with pytest.raises(NetError, match=r"\(operator aten.hardshrink.default, module '1'\)"):
        import_program(program, name="net", file="net")


def test_what_depends_on_constants_alone_is_computed():
    module = Function(lambda x: x * torch.arange(4.0).exp().view(1, 4, 1, 1) + torch.ones(2).sum())
    assert types_of(converted(module)) == ["Scale", "Bias"]


def test_all_unknown_operators_are_named():
    program = export_module(Function(lambda x: x.sin().cumprod(1).cumprod(2).cos()), SHAPE, "the module")
    with pytest.raises(NetError, match=r"aten.cumprod.default \(2\), aten.cos.default \(1\)"):
        import_program(program, name="net", file="net")


def test_training_mode_is_refused():
    program = torch.export.export(nn.Sequential(nn.ReLU(), nn.Dropout(0.5)).train(), (torch.zeros(2, 3),), strict=False)
    with pytest.raises(NetError, match=r"exported in training mode .*module '1'.*\n.*model.eval"):
        import_program(program, name="net", file="net")


def test_open_sizes_are_refused():
    dynamic = ({0: torch.export.Dim.DYNAMIC},)
    program = torch.export.export(nn.ReLU(), (torch.zeros(2, 3),), dynamic_shapes=dynamic, strict=False)
    with pytest.raises(NetError, match=r"^net.pt2: .*a size that is not fixed"):
        import_program(program, name="net", file="net.pt2")


def test_inputs_that_are_no_numbers_are_refused():
    program = torch.export.export(nn.Identity(), (torch.zeros(2, dtype=torch.bool),), strict=False)
    with pytest.raises(NetError, match=r"^net.pt2: input 'input' is bool; blobs hold"):
        import_program(program, name="net", file="net.pt2")
