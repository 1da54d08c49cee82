"""Warns about the fields that a prototxt gives and nothing reads.

A layer's message has a place for every type's fields; those of another type do nothing, in Caffe without a warning.
Fields that only say how to compute (`engine`, and what forks have to tune speed, memory or precision) do nothing here
either; each is warned about once. Those of forks that change what is computed are refused, here or by the layer that
they belong to. A field that is NaN is refused everywhere.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from mgcaffe.engine.checks.fork_fields import CHANGES_THE_RESULT, HOW_TO_COMPUTE
from mgcaffe.engine.checks.said_once import warn_once
from mgcaffe.errors import NetError
from mgcaffe.prototxt import LayerParameter, NetParameter, Source

_log = logging.getLogger("mgcaffe.engine")

_OF_EVERY_LAYER = {
    "name",
    "type",
    "bottom",
    "top",
    "loss_weight",
    "param",
    "blobs",
    "include",
    "exclude",
    "phase",
    "propagate_down",
}
_OF_THE_NET = {"name", "layer", "layers", "input", "input_shape", "input_dim", "force_backward", "state", "debug_info"}
_LOSSES = ("SoftmaxWithLoss", "SigmoidCrossEntropyLoss")
_FURTHER = {
    "Deconvolution": ("convolution_param",),
    "Im2col": ("convolution_param",),
    "Data": ("transform_param",),
    "ImageData": ("transform_param", "data_param"),
    "MemoryData": ("transform_param",),
    "WindowData": ("transform_param", "data_param"),
    "HDF5Data": ("transform_param", "data_param"),
    "CriteoData": ("data_param",),
    "SoftmaxWithLoss": ("softmax_param",),
    "InfogainLoss": ("loss_param",),
    "SigmoidCrossEntropyLoss": ("sigmoid_param",),
    "LSTM": ("recurrent_param",),
    "RNN": ("recurrent_param",),
    "Split": ("split_param",),
    "Normalize": ("norm_param",),
    "DepthwiseConvolution": ("convolution_param",),
    "ConvolutionDepthwise": ("convolution_param",),
}
_OF_EVERY_READER = {"prefetch", "parser_threads", "bad_record", "bad_record_limit"}
READ_IN_PART = {
    ("ImageData", "data_param"): _OF_EVERY_READER,
    ("WindowData", "data_param"): _OF_EVERY_READER,
    ("HDF5Data", "data_param"): {"prefetch"},
}
"""What a type reads of a message of which it does not read all; the rest stands in a message of its own."""
_MESSAGE, _FLOATS = 11, (1, 2)


def check_layer(param: LayerParameter, source: Source | None = None) -> None:
    """Warn of a LayerParameter's fields that its type does not read.

    Raises:
        NetError: one of them would change what is computed.
    """
    idle = f"{{}} has no effect on a layer of type {param.type} (layer '{param.name}')"
    for field, value in param.ListFields():
        if field.name in _OF_EVERY_LAYER:
            continue
        if _how_to_compute(param, field.name) or not _belongs(field.name, param.type):
            _tell(param, field.name, idle, field.name, source)
        elif field.type == _MESSAGE:
            _tell_inner(value, field.name, idle, source, READ_IN_PART.get((param.type, field.name)))


def check_numbers(param: LayerParameter, source: Source | None = None) -> None:
    """Refuse NaN in a LayerParameter, which no layer can honour; weights apart.

    Raises:
        NetError: names the field and its place.
    """
    for field, value in param.ListFields():
        if field.name != "blobs":
            _refuse_no_number(field, value, field.name, f"layer '{param.name}', type {param.type}", source)


def check_net(param: NetParameter, source: Source | None = None) -> None:
    """Warn of a NetParameter's fields that nothing reads.

    Raises:
        NetError: one of them would change what is computed.
    """
    for field, _ in param.ListFields():
        if field.name not in _OF_THE_NET:
            _tell(param, field.name, f"{{}} of net '{param.name}' has no effect here", field.name, source)


def _belongs(field: str, layer_type: str) -> bool:
    """Return whether a layer of this type reads the field: `inner_product_param` belongs to InnerProduct."""
    if field in _FURTHER.get(layer_type, ()) or (field == "loss_param" and layer_type in _LOSSES):
        return True
    return field.replace("_", "") == f"{layer_type.lower()}param"


def _how_to_compute(message: Message, field: str) -> bool:
    return field == "engine" or field in HOW_TO_COMPUTE.get(message.DESCRIPTOR.name, ())


def _tell_inner(
    message: Message, path: str, idle: str, source: Source | None, read: Collection[str] | None = None
) -> None:
    """Warn of the fields inside a message, and inside its messages, that only say how to compute.

    Args:
        message, path: the message, and where it stands in the layer's.
        idle: the text of the warning, as for `_tell`.
        source: the layer's places.
        read: the fields that the layer reads, where it does not read all of the message.
    """
    for field, value in message.ListFields():
        if _how_to_compute(message, field.name):
            _tell(message, field.name, idle, f"{path}.{field.name}", source)
        elif read is not None and field.name not in read:
            _tell(message, field.name, idle.replace("{}", f"{path}.{{}}", 1), f"{path}.{field.name}", source)
        elif field.type == _MESSAGE:
            for inner in _each(field, value):
                _tell_inner(inner, f"{path}.{field.name}", idle, source)


def _tell(message: Message, field: str, idle: str, path: str, source: Source | None) -> None:
    """Refuse a field that changes the result; warn of another with the text `idle`, in which its name replaces {}."""
    location = source.field(path) if source is not None else None
    if field in CHANGES_THE_RESULT:
        what = f"{field} is not supported: {CHANGES_THE_RESULT[field]}"
        raise NetError(what, location=location, hint=f"remove {field}; the net then computes without it")
    text = idle.replace("{}", field, 1)  # names of nets and layers may hold braces, too
    if not _how_to_compute(message, field):
        warn_once(_log, text, location=location)
        return
    described = message.DESCRIPTOR.fields_by_name[field]
    kind = f"{message.DESCRIPTOR.name}.{field}"
    if described.type == _MESSAGE or getattr(message, field) != described.default_value:
        what = f"{text}: it only says how another Caffe computes (warned once)"
        warn_once(_log, what, kind, location=location)


def _each(field: FieldDescriptor, value: Any) -> Iterator[Any]:
    """Return the values of a field, repeated or not."""
    if field.type == _MESSAGE and hasattr(value, "ListFields"):
        yield value
    elif field.type != _MESSAGE and isinstance(value, (int, float, str, bytes)):
        yield value
    else:
        yield from value


def _refuse_no_number(field: FieldDescriptor, value: Any, path: str, whose: str, source: Source | None) -> None:
    if field.type in _FLOATS:
        for index, number in enumerate(_each(field, value)):
            if math.isnan(number):
                location = source.field(path, index) if source is not None else None
                raise NetError(f"{path.rpartition('.')[2]} is NaN ({whose})", location=location)
    elif field.type == _MESSAGE:
        for inner in _each(field, value):
            for inner_field, inner_value in inner.ListFields():
                _refuse_no_number(inner_field, inner_value, f"{path}.{inner_field.name}", whose, source)
