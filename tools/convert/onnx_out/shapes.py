"""Layers that move, cut, join and pick values: how each is written in ONNX."""

from __future__ import annotations

from mgcaffe.engine.data.dummy_data import DummyData
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.layers.batch_reindex import BatchReindex
from mgcaffe.engine.layers.concat import Concat
from mgcaffe.engine.layers.crop import Crop
from mgcaffe.engine.layers.filter import Filter
from mgcaffe.engine.layers.permute import Permute
from mgcaffe.engine.layers.reshape import Reshaping
from mgcaffe.engine.layers.shuffle_channel import ShuffleChannel
from mgcaffe.engine.layers.slice import Slice
from mgcaffe.engine.layers.tile import Tile
from mgcaffe.tools.convert.layer_writer import DUMMY_REFUSES
from mgcaffe.tools.convert.onnx_out.emitter import Emitter, Operator


def concat(e: Emitter, layer: Concat) -> list[str]:
    """Concat; Identity of a single bottom."""
    return [e.node("Concat", *e.bottoms, axis=layer.axis) if len(e.bottoms) > 1 else e.x]


def cut(e: Emitter, layer: Slice) -> list[str]:
    """ONNX's Split with the sizes that the slice_points make; Identity for a single top."""
    if e.top_count == 1:
        return [e.x]
    return e.nodes("Split", [e.x, e.integers(*layer.sizes)], e.top_count, axis=layer.axis)


def same(e: Emitter, layer: Layer) -> list[str]:
    """Identity where a top is an output of the net; else the bottom itself, without a node."""
    return [e.x] * e.top_count


def reshape(e: Emitter, layer: Reshaping) -> list[str]:
    """Reshape to the sizes that the fields come to for the net's own batch; 0 and -1 are worked out."""
    return [e.reshape(e.x, layer.top_shape)]


def permute(e: Emitter, layer: Permute) -> list[str]:
    """Transpose."""
    return [e.node("Transpose", e.x, perm=layer.order)]


def tile(e: Emitter, layer: Tile) -> list[str]:
    """ONNX's Tile."""
    repeats = [1] * len(e.bottom_shapes[0])
    repeats[layer.axis] = layer.tiles
    return [e.node("Tile", e.x, e.integers(*repeats))]


def shuffle_channel(e: Emitter, layer: ShuffleChannel) -> list[str]:
    """Reshape to groups, Transpose, and Reshape back."""
    batch, channels, *rest = e.bottom_shapes[0]
    matrix = e.reshape(e.x, (batch, layer.group, channels // layer.group, *rest))
    order = [0, 2, 1, *range(3, 3 + len(rest))]
    return [e.reshape(e.node("Transpose", matrix, perm=order), e.top_shapes[0])]


def crop(e: Emitter, layer: Crop) -> list[str]:
    """ONNX's Slice from the offsets on; the second bottom's values are not read."""
    spans = [(axis, span) for axis, span in enumerate(layer.window) if span.start is not None]
    starts, ends = [span.start for _, span in spans], [span.stop for _, span in spans]
    return [e.node("Slice", e.x, e.integers(*starts), e.integers(*ends), e.integers(*(axis for axis, _ in spans)))]


def selected(e: Emitter, layer: Filter) -> list[str]:
    """Compress by the selector; how many items there are then varies from run to run."""
    *blobs, selector = e.bottoms
    chosen = e.node("Not", e.node("Equal", e.reshape(selector, (-1,)), e.floats(0)))
    return [e.node("Compress", x, chosen, axis=0) for x in blobs]


def batch_reindex(e: Emitter, layer: BatchReindex) -> list[str]:
    """Gather."""
    return [e.node("Gather", e.x, e.to_integers(e.bottoms[1]), axis=0)]


def parameter(e: Emitter, layer: Layer) -> list[str]:
    """Identity of the array."""
    return [e.weight(0)]


def constants(e: Emitter, layer: DummyData) -> list[str]:
    """Identity of constants."""
    return [e.floats(values.cpu().numpy()) for values in e.constant_tops(layer)]


def nothing(e: Emitter, layer: Layer) -> list[str]:
    """Nothing: it has no tops."""
    return []


OPERATORS = (
    Operator("Concat", concat, "Concat, Identity", any_batch=True),
    Operator("Slice", cut, "Split, Identity"),
    Operator("Split", same, "Identity", any_batch=True),
    Operator("Reshape", reshape, "Reshape"),
    Operator("Flatten", reshape, "Reshape"),
    Operator("Permute", permute, "Transpose"),
    Operator("Tile", tile, "Tile"),
    Operator("ShuffleChannel", shuffle_channel, "Reshape, Transpose"),
    Operator("Crop", crop, "Slice"),
    Operator("Filter", selected, "Reshape, Equal, Not, Compress"),
    Operator("BatchReindex", batch_reindex, "Cast, Gather"),
    Operator("Parameter", parameter, "Identity"),
    Operator("DummyData", constants, "Identity", DUMMY_REFUSES, any_batch=True),
    Operator("Silence", nothing, "", any_batch=True),
)
