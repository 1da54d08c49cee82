"""Weights that stand in a net's definition (`layer { blobs { ... } }`, or a caffemodel given as the net).

Caffe's Layer constructor takes them as the layer's blobs, and the fillers are not used. They are read from the message
one at a time when the parameter has got its place in memory, so no further copy of them is made; the message, which
`BuiltNet.param` keeps, holds them still.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from mgcaffe.engine.checks.memory import shape_text
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.parameter import Parameter
from mgcaffe.engine.row_parameter import RowParameter
from mgcaffe.engine.weights.by_name import copy_blob
from mgcaffe.engine.weights.saved_layers import SavedBlob, saved_blob
from mgcaffe.errors import PrototxtError
from mgcaffe.prototxt import BlobProto

_DEFINITION = "the net's definition"


def give(layer: Layer, blobs: Sequence[BlobProto]) -> None:
    """Let a layer's parameters begin with the weights of its definition, if it has any.

    Args:
        layer: it has been set up.
        blobs: one for each of its parameters, or none.

    Raises:
        NetError: there are more or fewer than parameters, a shape differs from the parameter's (ones in front of a
            legacy shape apart), or the values are in shards that cannot be used; at the place of the blob.
    """
    if not blobs:
        return
    if len(blobs) != len(layer.parameters):
        shapes = ", ".join(shape_text(parameter.shape) for parameter in layer.parameters)
        layer.fail(
            f"{_DEFINITION} holds {len(blobs)} blob(s) of weights, and the layer has {len(layer.parameters)}"
            f" parameter(s){f' of shape(s) {shapes}' if shapes else ''}",
            "blobs",
            hint="give a blob for each parameter, or none for the fillers",
        )
    file = layer.source.text.file if layer.source is not None else ""
    for index, (message, parameter) in enumerate(zip(blobs, layer.parameters, strict=True)):
        try:
            blob = saved_blob(message, None, file)
        except PrototxtError as error:
            layer.fail(f"blob {index} in {_DEFINITION}: {error.message}", "blobs", index=index)
        if not blob.fits(parameter.shape):
            layer.fail(
                f"blob {index} has shape {shape_text(blob.shape)} in {_DEFINITION}, and the layer's parameter has"
                f" shape {shape_text(parameter.shape)}",
                "blobs",
                index=index,
            )
        parameter.given = partial(_fill, layer, index, parameter, blob)


def forget(layers: Sequence[Layer]) -> None:
    """Let go of what parameters were given that begin with other values: they share an owner's or another net's."""
    for layer in layers:
        for parameter in layer.parameters:
            parameter.given = None


def _fill(layer: Layer, index: int, parameter: Parameter, blob: SavedBlob) -> None:
    """Put the values into a parameter; of a table whose rows are divided among processes, those of this one."""
    placement = parameter.placement if isinstance(parameter, RowParameter) else None
    try:
        if blob.rows is not None:
            blob.rows.fill(parameter.data, placement.rows.start if placement is not None else 0)
        elif placement is not None:
            rows = blob.load().reshape(parameter.shape)[placement.rows.start : placement.rows.stop]
            parameter.data.copy_(torch.tensor(rows))
        else:
            copy_blob(parameter.data, blob)
    except PrototxtError as error:
        layer.fail(f"blob {index} in {_DEFINITION}: {error.message}", "blobs", index=index)
