"""Makes what is drawn out of a net's message, and of what building it has shown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mgcaffe.errors import Location
from mgcaffe.prototxt import LayerParameter
from mgcaffe.prototxt.text_writer import print_text
from mgcaffe.tools.drawing.graph import DrawnLayer
from mgcaffe.tools.drawing.kinds import detail_of
from mgcaffe.tools.table import format_shape

if TYPE_CHECKING:
    from mgcaffe.engine.graph.node import Node


def built_layer(node: Node, bottoms: Sequence[str], tops: Sequence[str]) -> DrawnLayer:
    """Return a layer of a net that was built.

    Args:
        node: the layer.
        bottoms, tops: its blobs as the user named them, where the net has put a Split between.
    """
    layer = node.layer
    shapes = [blob.shape for blob in node.bottoms], [blob.shape for blob in node.tops]
    location = layer.location()
    return DrawnLayer(
        name=layer.name,
        type=layer.type,
        detail=detail_of(layer.param),
        bottoms=bottoms,
        tops=tops,
        bottom_shapes=[format_shape(shape) for shape in shapes[0]],
        top_shapes=[format_shape(shape) for shape in shapes[1]],
        parameters=sum(parameter.count for parameter in layer.parameters if parameter.owner is None),
        shared=sum(parameter.count for parameter in layer.parameters if parameter.owner is not None),
        macs=layer.macs(*shapes),
        location=_place(location),
        line=location.line if location else 0,
        source=_source(layer.param, bottoms),
    )


def layers_of_message(layers: Sequence[LayerParameter]) -> list[DrawnLayer]:
    """Return layers of which only the messages are known, without shapes and costs."""
    return [
        DrawnLayer(
            name=layer.name,
            type=layer.type,
            detail=detail_of(layer),
            bottoms=list(layer.bottom),
            tops=list(layer.top),
            bottom_shapes=[""] * len(layer.bottom),
            top_shapes=[""] * len(layer.top),
            source=_source(layer, list(layer.bottom)),
        )
        for layer in layers
    ]


def _place(location: Location | None) -> str:
    if location is None or not location.line:
        return ""
    return f"{Path(location.file).name}:{location.line}:{location.column}"


def _source(layer: LayerParameter, bottoms: Sequence[str]) -> str:
    """Return a layer's message as prototxt, without weights."""
    shown = LayerParameter()
    shown.CopyFrom(layer)
    shown.ClearField("blobs")
    del shown.bottom[:]
    shown.bottom.extend(bottoms)
    return print_text(shown)
