"""Filters and products: how each is written in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

from mgcaffe.engine.layers.convolution import Convolution, FilterLayer
from mgcaffe.engine.layers.deconvolution import Deconvolution
from mgcaffe.engine.layers.embed import Embed
from mgcaffe.engine.layers.embedding_bag import EmbeddingBag
from mgcaffe.engine.layers.im2col import Im2col
from mgcaffe.engine.layers.inner_product import InnerProduct
from mgcaffe.tools.convert.torch_out.emitter import Blob, Emitter, Operator, call, pair

_MOST_AXES = 3


def convolution(e: Emitter, layer: Convolution) -> list[str]:
    """nn.Conv1d, 2d or 3d, called for each bottom; F.conv1d, 2d or 3d with parameters that are another layer's."""
    return _filtered(e, layer, "Conv", "F.conv", layer.missing)


def deconvolution(e: Emitter, layer: Deconvolution) -> list[str]:
    """nn.ConvTranspose1d, 2d or 3d: its weights have Caffe's layout, groups included."""
    return _filtered(e, layer, "ConvTranspose", "F.conv_transpose")


def _filtered(e: Emitter, layer: FilterLayer, name: str, function: str, missing: Sequence[int] = ()) -> list[str]:
    """Return the tops' expressions; `missing` zeros are put behind the bottoms, along each spatial axis."""
    geometry = layer.geometry
    if geometry.rank > _MOST_AXES:
        e.refuse(f"its filters have {geometry.rank} spatial axes; nn.{name}3d has the most, three")
    # Without spatial axes it is a product of matrices, which a filter over one axis of size 1 is as well.
    flat = geometry.rank == 0
    rank = geometry.rank or 1
    kernel = geometry.kernel or (1,)
    has_bias = len(layer.parameters) > 1
    blobs = {"weight": Blob(0, (*layer.weight_shape(), 1) if flat else None), **({"bias": Blob(1)} if has_bias else {})}
    fields = {
        "stride": (pair(geometry.stride or (1,)), "1"),
        "padding": (pair(geometry.pad or (0,)), "0"),
        "dilation": (pair(geometry.dilation or (1,)), "1"),
        "groups": (str(geometry.groups), "1"),
    }
    sizes = (str(layer.channels), str(layer.outputs), pair(kernel))
    own = e.attribute(call(f"nn.{name}{rank}d", *sizes, **fields, bias=(str(has_bias), "True")), blobs)
    arrays = "" if own else ", ".join(e.parameter(part, blob) for part, blob in blobs.items())
    tops = []
    for bottom in e.bottoms:
        x = _filled(_one_batch_axis(bottom, layer.channel_axis), missing)
        x = f"{x}.unsqueeze(-1)" if flat else x
        if own:
            y = f"{own}({x})"
        else:
            y = call(f"{function}{rank}d", x, arrays, **fields)
        y = f"{y}.squeeze(-1)" if flat else y
        tops.append(_all_batch_axes(y, bottom, layer.channel_axis))
    return tops


def _one_batch_axis(x: str, axis: int) -> str:
    """Return x with one axis before its channels."""
    return {0: f"{x}.unsqueeze(0)", 1: x}.get(axis, f"{x}.flatten(0, {axis - 1})")


def _all_batch_axes(y: str, like: str, axis: int) -> str:
    """Return y with the axes that `like` has before its channels."""
    return {0: f"{y}.squeeze(0)", 1: y}.get(axis, f"{y}.unflatten(0, {like}.shape[:{axis}])")


def _filled(x: str, missing: Sequence[int]) -> str:
    """Return x with zeros behind its pixels, along each spatial axis."""
    return call("F.pad", x, str([amount for more in reversed(missing) for amount in (0, more)])) if any(missing) else x


def im2col(e: Emitter, layer: Im2col) -> list[str]:
    """`im2col`, which cuts the windows out with the method unfold, for any number of axes."""
    geometry = layer.geometry
    x = _filled(_one_batch_axis(e.x, layer.axis), layer.missing)
    sizes = (geometry.kernel, geometry.stride, geometry.pad, geometry.dilation)
    return [_all_batch_axes(call(e.helper("im2col"), x, *map(str, sizes)), e.x, layer.axis)]


def inner_product(e: Emitter, layer: InnerProduct) -> list[str]:
    """nn.Linear, behind flatten where several axes are summed; F.linear with parameters that are another layer's."""
    has_bias = len(layer.parameters) > 1
    blobs = {"weight": Blob(0, transposed=layer.transpose), **({"bias": Blob(1)} if has_bias else {})}
    x = e.x if e.rank == layer.axis + 1 else f"{e.x}.flatten({layer.axis})"
    sizes = (str(layer.inputs), str(layer.outputs))
    own = e.attribute(call("nn.Linear", *sizes, bias=(str(has_bias), "True")), blobs)
    if own:
        return [f"{own}({x})"]
    return [call("F.linear", x, *(e.parameter(part, blob) for part, blob in blobs.items()))]


def embed(e: Emitter, layer: Embed) -> list[str]:
    """nn.Embedding, and the sum with a bias; F.embedding with a table that is another layer's."""
    table = Blob(0)
    own = e.attribute(call("nn.Embedding", *map(str, layer.parameters[0].shape)), {"weight": table})
    rows = f"{e.x}.long()"
    y = f"{own}({rows})" if own else call("F.embedding", rows, e.parameter("weight", table))
    return [f"{y} + {e.parameter('bias', Blob(1))}" if len(layer.parameters) > 1 else y]


def embedding_bag(e: Emitter, layer: EmbeddingBag) -> list[str]:
    """nn.EmbeddingBag; F.embedding_bag with a table that is another layer's."""
    table, mode = Blob(0), (f'"{"mean" if layer.is_mean else "sum"}"', '"mean"')
    own = e.attribute(call("nn.EmbeddingBag", *map(str, layer.table.shape), mode=mode), {"weight": table})
    if len(e.bottoms) == 1:
        axes = {1: "[:, None]", 2: ""}.get(e.rank, ".flatten(1)")
        given = [f"{e.x}.long(){axes}"]
    else:
        bags = f"{e.bottoms[1]}.flatten().long()"
        given = [f"{e.x}.flatten().long()", f"{bags}.cumsum(0) - {bags}" if layer.gives_lengths else bags]
    if own:
        return [call(own, *given)]
    return [call("F.embedding_bag", given[0], e.parameter("weight", table), *given[1:], mode=mode)]


_NO_EFFECT = ("force_nd_im2col",)
_CONVOLUTIONS = "nn.Conv1d, nn.Conv2d, nn.Conv3d, F.conv2d, F.pad"
_TOO_MANY_AXES = {"kernel_size": "for more than three spatial axes"}

OPERATORS = (
    Operator("Convolution", convolution, _CONVOLUTIONS, _TOO_MANY_AXES, _NO_EFFECT),
    Operator(
        "Deconvolution",
        deconvolution,
        "nn.ConvTranspose2d, F.conv_transpose2d",
        _TOO_MANY_AXES,
        _NO_EFFECT,
    ),
    Operator("DepthwiseConvolution", convolution, "nn.Conv2d, F.conv2d, F.pad", _TOO_MANY_AXES, _NO_EFFECT),
    Operator("ConvolutionDepthwise", convolution, "nn.Conv2d, F.conv2d, F.pad", _TOO_MANY_AXES, _NO_EFFECT),
    Operator("Im2col", im2col, "im2col, F.pad", without_effect=("num_output", "group", "bias_term", "force_nd_im2col")),
    Operator(
        "InnerProduct",
        inner_product,
        "nn.Linear, F.linear",
        {"relu": "true (a field of a fork)"},
        ("negative_slope",),
    ),
    Operator("Embed", embed, "nn.Embedding, F.embedding"),
    Operator("EmbeddingBag", embedding_bag, "nn.EmbeddingBag, F.embedding_bag"),
)
