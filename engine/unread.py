"""Fields that a prototxt gives and nothing reads: told, never dropped in silence.

A layer's message has a place for every type's fields; those of another type do nothing, in Caffe without a word. The
forks' fields for whole nets and layers that only tune speed or precision do nothing here either; those that change
what is computed are refused.
"""

from __future__ import annotations

import logging
from typing import Any

from mgcaffe.errors import Location, NetError

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
_LOSSES = ("SoftmaxWithLoss", "SigmoidCrossEntropyLoss", "EuclideanLoss", "ContrastiveLoss", "HingeLoss")
_FURTHER = {
    "Deconvolution": ("convolution_param",),
    "Im2col": ("convolution_param",),
    "Data": ("transform_param",),
    "ImageData": ("transform_param",),
    "MemoryData": ("transform_param",),
    "WindowData": ("transform_param",),
    "HDF5Data": ("transform_param",),
    "SoftmaxWithLoss": ("softmax_param",),
    "InfogainLoss": ("loss_param", "softmax_param"),
    "MultinomialLogisticLoss": ("loss_param",),
    "SigmoidCrossEntropyLoss": ("sigmoid_param",),
    "LSTM": ("recurrent_param",),
    "RNN": ("recurrent_param",),
    "Split": ("split_param",),
}
_CHANGES_THE_RESULT = {
    "quantization_param": "quantized computing",
    "mn_grad_compress_param": "gradient compression",
    "mn_activation_param": "model parallelism",
    "multinode": "model parallelism",
    "bn_stats_batch_size": "batch statistics over parts of a batch",
}


def check_layer(param: Any, source: Any = None) -> None:
    """Warns of a LayerParameter's fields that its type does not read.

    Raises:
        NetError: one of them would change what is computed.
    """
    for field, _ in param.ListFields():
        if field.name in _OF_EVERY_LAYER or _belongs(field.name, param.type):
            continue
        location = source.field(field.name) if source is not None else None
        what = f"{field.name} has no effect on a layer of type {param.type} (layer '{param.name}')"
        _tell(field.name, what, location)


def check_net(param: Any, source: Any = None) -> None:
    """Warns of a NetParameter's fields that nothing reads.

    Raises:
        NetError: one of them would change what is computed.
    """
    for field, _ in param.ListFields():
        if field.name not in _OF_THE_NET:
            location = source.field(field.name) if source is not None else None
            _tell(field.name, f"{field.name} of net '{param.name}' has no effect here", location)


def _belongs(field: str, layer_type: str) -> bool:
    """Whether a layer of this type reads the field: `inner_product_param` belongs to InnerProduct."""
    if field in _FURTHER.get(layer_type, ()) or (field == "loss_param" and layer_type in _LOSSES):
        return True
    return field.replace("_", "") == f"{layer_type.lower()}param"


def _tell(field: str, what: str, location: Location | None) -> None:
    if field in _CHANGES_THE_RESULT:
        raise NetError(f"{field} is not supported: {_CHANGES_THE_RESULT[field]}", location=location)
    _log.warning("%s%s", f"{location}: " if location else "", what)
