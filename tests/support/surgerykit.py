"""Nets with weights as messages, and the proof of an edit, for tests of tools/surgery."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mgcaffe.prototxt import NetParameter, parse_net, read_net, write_binary
from mgcaffe.tools.convert.proof import Difference
from mgcaffe.tools.surgery.edit import Edit, weights_of
from mgcaffe.tools.surgery.proving import build, differences, with_seeded_weights
from mgcaffe.tools.surgery.wiring import State

STATE = State()
Shapes = Mapping[str, Sequence[int]]

SMALL = """
name: "small"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 6 dim: 6 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip" inner_product_param { num_output: 5 } }
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }
"""
"""A deploy net."""

TRAINS = """
name: "trains"
layer { name: "data" type: "Data" top: "image" top: "label" include { phase: TRAIN }
  data_param { source: "a" batch_size: 8 } }
layer { name: "data" type: "Data" top: "image" top: "label" include { phase: TEST }
  data_param { source: "b" batch_size: 8 } }
layer { name: "conv" type: "Convolution" bottom: "image" top: "conv" param { lr_mult: 1 } param { lr_mult: 2 }
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "drop" type: "Dropout" bottom: "conv" top: "drop" }
layer { name: "ip" type: "InnerProduct" bottom: "drop" top: "ip" inner_product_param { num_output: 5 } }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
"""A net that trains, of data that is not at hand."""

SHAPES = {"image": (2, 3, 6, 6), "label": (2,)}
"""The shapes of its data layers' tops."""


def full(net: str | Path | NetParameter, shapes: Shapes | None = None) -> NetParameter:
    """A net with seeded weights in its layers."""
    if isinstance(net, str):
        net = parse_net(net).param
    elif isinstance(net, Path):
        net = read_net(net)
    running = build(net, shapes or {}, STATE, "the net")
    return with_seeded_weights(net, running)


def prove(
    net: NetParameter, operation: Callable[[NetParameter], Edit], shapes: Shapes | None = None
) -> tuple[Edit, list[Difference]]:
    """An edit, and how far the values of both nets are apart, the worst first."""
    edit = Edit.begin(net).then(operation)
    first = build(net, shapes or {}, STATE, "the net")
    fed = {**{name: tuple(first.blobs[name].shape) for name in first.inputs}, **(shapes or {})}
    return edit, differences(first, edit, fed, STATE)[0]


def save_weights(net: NetParameter, path: Path) -> Path:
    """Write the weights of a net with weights in its layers."""
    write_binary(weights_of(net), path)
    return path


def layer(net: NetParameter, name: str):
    """The layer of a name."""
    (found,) = [each for each in net.layer if each.name == name]
    return found


def names(net: NetParameter) -> list[str]:
    """The names of the layers."""
    return [each.name for each in net.layer]
