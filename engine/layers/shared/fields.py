"""Checks of prototxt fields that several layers share."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from google.protobuf.message import Message

from mgcaffe.engine.checks.said_once import warn_once
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.types import Shape
from mgcaffe.prototxt import FillerParameter, has_field

_log = logging.getLogger("mgcaffe.engine")


def refuse_fork_fields(layer: Layer, message: Message, path: str, neutral: dict[str, Any]) -> None:
    """Refuse fields of Caffe's forks that would change the result and that this layer cannot honour.

    Args:
        layer: the layer that reads `message`.
        message: the layer's parameter message.
        path: its name in the layer, such as "convolution_param".
        neutral: by field name, the value with which the layer computes what BVLC's Caffe does; a field that
            is given with another one is an error. An empty list stands for a repeated field.
    """
    given = {descriptor.name: value for descriptor, value in message.ListFields()}
    for name, value in neutral.items():
        if name in given and given[name] != value:
            layer.fail(
                f"{name} is a field of another Caffe that this layer cannot honour",
                f"{path}.{name}",
                hint=f"remove {name}, or write what it stands for as layers of their own",
            )


def warn_of_idle_field(layer: Layer, path: str, because: str) -> None:
    """Warn, once a process, of a field that is given where neither Caffe nor this layer reads it.

    Args:
        layer: the layer.
        path: the field in the layer, such as "eltwise_param.coeff".
        because: what makes it idle, as the end of a sentence: "with operation MAX".
    """
    what = f"{path.rpartition('.')[2]} has no effect {because} (layer '{layer.name}')"
    warn_once(_log, what, location=layer.location(path))


def refuse_empty_images(layer: Layer, shape: Shape, number: int = 0, axis: int = 1) -> None:
    """Refuse a bottom whose images have no channels or no pixels; a batch of no images is fine.

    Args:
        layer: the layer.
        shape: the bottom's.
        number: the bottom's number.
        axis: where the channels are.
    """
    if 0 in shape[axis:]:
        layer.fail(f"bottom {number} has shape {shape}, so there is nothing in its images")


def refuse_missing_channels(layer: Layer, shape: Shape) -> None:
    """Refuse a bottom without a channel axis, which is axis 1."""
    if len(shape) < 2:
        layer.fail(f"the bottom needs a channel axis: two axes or more, not shape {shape}")


def filler_or_constant(message: Message, field: str, value: float) -> FillerParameter:
    """Return the filler that a message's field holds, or one of a constant where none is given."""
    given: FillerParameter = getattr(message, field)
    return given if has_field(message, field) else FillerParameter(type="constant", value=value)


def joining_axis(layer: Layer, path: str, old_name: str, rank: int) -> int:
    """Return the axis along which a layer joins or cuts blobs, given as `axis` or, in old files, under `old_name`.

    Args:
        layer: the layer.
        path: the name of its parameter message.
        old_name: the old field's name, which takes no negative values.
        rank: how many axes the blob has.
    """
    message = getattr(layer.param, path)
    if not has_field(message, old_name):
        return layer.canonical_axis(message.axis, rank, f"{path}.axis")
    if message.HasField("axis"):
        layer.fail(f"{old_name} is the old name of axis: give one of them only", f"{path}.{old_name}")
    return layer.canonical_axis(getattr(message, old_name), rank, f"{path}.{old_name}")


def four_axes_hint(shapes: Sequence[Shape], names: Sequence[str], index: int) -> str | None:
    """Return what to do where bottom `index` and bottom 0 differ by axes of size 1 at the end, or None.

    Files of before 2015 mix (N, C) and (N, C, 1, 1), which were one: every blob had four axes, and InnerProduct made
    the latter.
    """
    for short, long in ((0, index), (index, 0)):
        if (len(shapes[short]), len(shapes[long])) == (2, 4) and shapes[long][2:] == (1, 1):
            return f"before 2015 every blob had four axes; a Flatten layer brings blob '{names[long]}' to two"
    return None
