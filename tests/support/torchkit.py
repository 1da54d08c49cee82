"""Converts small modules of PyTorch and compares both sides: every blob, and one training step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from mgcaffe.engine.net import Net
from mgcaffe.prototxt import LayerParameter
from mgcaffe.tools.convert.caffe_side import CaffeSide, fitting_inputs
from mgcaffe.tools.convert.caffe_training import CaffeTraining
from mgcaffe.tools.convert.model import Model
from mgcaffe.tools.convert.proof import compare
from mgcaffe.tools.convert.torch_files import net_name
from mgcaffe.tools.convert.torch_in.importer import TorchModel, import_program
from mgcaffe.tools.convert.torch_in.program import Shapes, export_module, load_program
from mgcaffe.tools.convert.torch_side import TorchSide
from mgcaffe.tools.convert.torch_training import TorchTraining
from mgcaffe.tools.convert.training_step import compare_steps

SHAPE = (3, 4, 6, 6)


class Function(nn.Module):
    """A module of one function."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(*inputs)


def seeded(module: nn.Module) -> nn.Module:
    """The module with random parameters and statistics, the same every time."""
    generator = torch.Generator().manual_seed(3)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.is_floating_point():
            values = torch.rand(tensor.shape, generator=generator) + 0.5
            is_signed = name.endswith(("weight", "bias", "running_mean")) and tensor.dim() != 0
            tensor.data.copy_(values - 1 if is_signed else values)
    return module


def check_shapes(model: Model, net: Net) -> None:
    """Asserts that the shapes which layers were made with are those that they have in the net."""
    for layer in model.source.param.layer:
        for top, shape in zip(layer.top, model.shapes.get(layer.name, ()), strict=True):
            assert tuple(net.blobs[top].shape) == shape, f"{layer.name}: {top}"


def converted(module: nn.Module, shape: Shapes = SHAPE) -> TorchModel:
    """The model that a module becomes, after every blob was compared."""
    program = export_module(seeded(module), shape, "the module")
    model = import_program(program, name="net", file="module")
    net = model.build()
    check_shapes(model, net)
    ours, theirs, inputs = CaffeSide(net), TorchSide(program), fitting_inputs(net)
    expected = theirs.run({model.names[blob]: values for blob, values in inputs.items()})
    found = compare(ours.run(inputs), expected, model.names)
    assert found[0].largest_relative < 1e-5, found[0]
    named = {model.names[each.name] for each in found}
    assert set(theirs.outputs) <= named, "an output was not compared"
    return model


def read_module(spec: str, input_shape: Sequence[int] | None = None) -> TorchModel:
    """The model of a module that is named as in a command; `input_shape` is None for a `.pt2`."""
    return import_program(load_program(spec, input_shape), name=net_name(spec), file=spec)


def check_training_step(module: nn.Module, shape: Shapes = SHAPE, *, classes: int = 5, fewer: int = 0) -> None:
    """Asserts that loss and gradients of all parameters, but so many, are PyTorch's, in float64."""
    program = export_module(seeded(module), shape, "the module")
    model = import_program(program, name="net", file="module")
    net = model.build()
    inputs = fitting_inputs(net)
    output = next(blob for blob, value in model.names.items() if value == TorchSide(program).outputs[0])
    step = compare_steps(
        lambda: CaffeTraining(model),
        lambda: TorchTraining(program, model),
        inputs,
        (output, (net.blobs[output].shape[0], classes, *net.blobs[output].shape[2:])),
    )
    assert step.loss_apart <= 1e-12 and step.holds, str(step)
    assert len(step.gradients) == len(list(module.parameters())) - fewer


def layers_of(model: TorchModel) -> list[LayerParameter]:
    """The layers, without inputs."""
    return [layer for layer in model.source.param.layer if layer.type != "Input"]


def types_of(model: TorchModel) -> list[str]:
    """The types of the layers, without inputs."""
    return [layer.type for layer in layers_of(model)]
