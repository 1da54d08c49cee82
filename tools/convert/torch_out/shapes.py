"""Layers that move, cut, join and pick values: how each is written in PyTorch."""

from __future__ import annotations

from mgcaffe.engine.data.dummy_data import DummyData
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.layers.batch_reindex import BatchReindex
from mgcaffe.engine.layers.concat import Concat
from mgcaffe.engine.layers.crop import Crop
from mgcaffe.engine.layers.filter import Filter
from mgcaffe.engine.layers.flatten import Flatten
from mgcaffe.engine.layers.permute import Permute
from mgcaffe.engine.layers.reshape import Reshape
from mgcaffe.engine.layers.shuffle_channel import ShuffleChannel
from mgcaffe.engine.layers.slice import Slice
from mgcaffe.engine.layers.tile import Tile
from mgcaffe.tools.convert.layer_writer import DUMMY_REFUSES
from mgcaffe.tools.convert.torch_out.emitter import Blob, Emitter, Operator, Together, call


def concat(e: Emitter, layer: Concat) -> list[str]:
    """torch.cat; a single bottom itself."""
    return [call("torch.cat", f"[{', '.join(e.bottoms)}]", str(layer.axis)) if len(e.bottoms) > 1 else e.x]


def cut(e: Emitter, layer: Slice) -> list[str] | Together:
    """Tensor.split with the sizes that the slice_points make, or chunk; the bottom itself for a single top."""
    if e.top_count == 1:
        return [e.x]
    if layer.param.slice_param.slice_point:
        return Together(f"{e.x}.split({layer.sizes}, {layer.axis})")
    return Together(f"{e.x}.chunk({e.top_count}, {layer.axis})")


def same(e: Emitter, layer: Layer) -> list[str]:
    """Bottom itself; where a net gets a Split by itself, nothing at all."""
    return [e.x] * e.top_count


def reshape(e: Emitter, layer: Reshape) -> list[str]:
    """Tensor.reshape; where the field says 0, and for axes that stay, the size is x's own."""
    param = layer.param.reshape_param
    start = param.axis if param.axis >= 0 else e.rank + param.axis + 1
    end = e.rank if param.num_axes == -1 else start + param.num_axes
    kept = [f"{e.x}.shape[{axis}]" for axis in range(e.rank)]
    middle = [str(size) if size else kept[start + place] for place, size in enumerate(param.shape.dim)]
    sizes = [*_whole(e.x, kept[:start]), *middle, *_whole(e.x, kept[end:], end)]
    return [call(f"{e.x}.reshape", *sizes) if sizes else f"{e.x}.reshape(())"]


def _whole(x: str, sizes: list[str], start: int = 0) -> list[str]:
    """Return several sizes in a row as one slice."""
    if len(sizes) < 2:
        return sizes
    return [f"*{x}.shape[{start}:]" if start else f"*{x}.shape[:{len(sizes)}]"]


def flatten(e: Emitter, layer: Flatten) -> list[str]:
    """Tensor.flatten."""
    param = layer.param.flatten_param
    start, end = (axis % e.rank for axis in (param.axis, param.end_axis))
    return [call(f"{e.x}.flatten", *map(str, [start] if end == e.rank - 1 else [start, end]))]


def permute(e: Emitter, layer: Permute) -> list[str]:
    """Tensor.permute; the bottom itself where the order stays."""
    if layer.order == sorted(layer.order):
        return [e.x]
    return [call(f"{e.x}.permute", *map(str, layer.order))]


def tile(e: Emitter, layer: Tile) -> list[str]:
    """Tensor.repeat."""
    repeats = [1] * e.rank
    repeats[layer.axis] = layer.tiles
    return [call(f"{e.x}.repeat", *map(str, repeats))]


def shuffle_channel(e: Emitter, layer: ShuffleChannel) -> list[str]:
    """F.channel_shuffle; of a matrix the methods unflatten, transpose and flatten."""
    if e.rank > 2:
        return [call("F.channel_shuffle", e.x, str(layer.group))]
    return [f"{e.x}.unflatten(1, ({layer.group}, -1)).transpose(1, 2).flatten(1)"]


def crop(e: Emitter, layer: Crop) -> list[str]:
    """Slices from the offsets on, of the second bottom's sizes."""
    spans = []
    for axis, span in enumerate(layer.window):
        size = f"{e.bottoms[1]}.shape[{axis}]"
        offset = span.start
        spans.append(":" if offset is None else f"{offset} : {offset} + {size}" if offset else f": {size}")
    return [f"{e.x}[{', '.join(spans)}]"]


def selected(e: Emitter, layer: Filter) -> list[str]:
    """Items where the selector is not 0; how many there are varies from call to call."""
    *blobs, selector = e.bottoms
    flat = selector if len(e.bottom_shapes[-1]) == 1 else f"{selector}.flatten()"
    return [f"{x}[{flat} != 0]" for x in blobs]


def batch_reindex(e: Emitter, layer: BatchReindex) -> list[str]:
    """Items that the second bottom names."""
    return [f"{e.x}[{e.bottoms[1]}.long()]"]


def parameter(e: Emitter, layer: Layer) -> list[str]:
    """nn.Parameter."""
    x = e.parameter("", Blob(0))
    return [f"{x}.clone()" if e.stateless else x]  # a program has no value that is nothing but a parameter


def constants(e: Emitter, layer: DummyData) -> list[str]:
    """Buffers."""
    names = [e.buffer(f"value{number}", values) for number, values in enumerate(e.constant_tops(layer))]
    return [f"{name}.clone()" if e.stateless else name for name in names]


def nothing(e: Emitter, layer: Layer) -> list[str]:
    """Nothing: it has no tops."""
    return []


OPERATORS = (
    Operator("Concat", concat, "torch.cat"),
    Operator("Slice", cut, ""),
    Operator("Split", same, ""),
    Operator("Reshape", reshape, ""),
    Operator("Flatten", flatten, ""),
    Operator("Permute", permute, ""),
    Operator("Tile", tile, ""),
    Operator("ShuffleChannel", shuffle_channel, "F.channel_shuffle"),
    Operator("Crop", crop, ""),
    Operator("Filter", selected, ""),
    Operator("BatchReindex", batch_reindex, ""),
    Operator("Parameter", parameter, "nn.Parameter"),
    Operator("DummyData", constants, "", DUMMY_REFUSES),
    Operator("Silence", nothing, ""),
)
