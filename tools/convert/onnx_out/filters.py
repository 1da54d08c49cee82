"""Filters and products: how each is written in ONNX."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from mgcaffe.engine.kernels.geometry import Geometry
from mgcaffe.engine.layers.convolution import Convolution, FilterLayer
from mgcaffe.engine.layers.deconvolution import Deconvolution
from mgcaffe.engine.layers.embed import Embed
from mgcaffe.engine.layers.embedding_bag import EmbeddingBag
from mgcaffe.engine.layers.im2col import Im2col
from mgcaffe.engine.layers.inner_product import InnerProduct
from mgcaffe.engine.types import Shape
from mgcaffe.tools.convert.onnx_out.emitter import Emitter, Operator


def convolution(e: Emitter, layer: Convolution) -> list[str]:
    """Conv, one for each bottom, all with the same arrays."""
    return _filtered(e, layer, "Conv", layer.missing)


def deconvolution(e: Emitter, layer: Deconvolution) -> list[str]:
    """ConvTranspose, one for each bottom: its weights have Caffe's layout, groups included."""
    return _filtered(e, layer, "ConvTranspose")


def _filtered(e: Emitter, layer: FilterLayer, operator: str, missing: Sequence[int] = ()) -> list[str]:
    """Return the tops' values; `missing` zeros are put behind the bottoms, along each spatial axis."""
    # Without spatial axes it is a product of matrices, which a filter over one axis of size 1 is as well.
    flat = layer.geometry.rank == 0
    geometry = Geometry((1,), (1,), (0,), (1,), layer.geometry.groups) if flat else layer.geometry
    weight_shape = (*layer.weight_shape(), 1) if flat else None
    arrays = [e.weight(0, weight_shape), *(e.weight(1) for _ in layer.parameters[1:])]
    tops = []
    for x, shape, top_shape in zip(e.bottoms, e.bottom_shapes, e.top_shapes, strict=True):
        inner = _one_batch_axis(shape, layer.channel_axis)
        if inner != shape:
            x = e.reshape(x, inner)
        y = e.node(operator, x, *arrays, **_attributes(geometry, missing))
        tops.append(e.reshape(y, top_shape) if inner != shape else y)
    return tops


def _one_batch_axis(shape: Shape, axis: int) -> Shape:
    """Return the shape with one axis before the channels and at least one behind them."""
    return (math.prod(shape[:axis]), *shape[axis:], *[1] * (len(shape) == axis + 1)) if needs(shape, axis) else shape


def needs(shape: Shape, axis: int) -> bool:
    """Return whether a blob with its channels at `axis` has other axes than ONNX's N, C and spatial ones."""
    return axis != 1 or len(shape) == axis + 1


def _attributes(geometry: Geometry, missing: Sequence[int]) -> dict[str, object]:
    behind = (pad + more for pad, more in zip_longest(geometry.pad, missing, fillvalue=0))
    return {
        "kernel_shape": geometry.kernel,
        "strides": geometry.stride,
        "pads": (*geometry.pad, *behind),
        "dilations": geometry.dilation,
        "group": geometry.groups,
    }


def im2col(e: Emitter, layer: Im2col) -> list[str]:
    """Conv in groups of one channel, with a filter for each point that is 1 there and 0 elsewhere."""
    axis, points, shape = layer.axis, layer.points, e.bottom_shapes[0]
    geometry, channels = layer.geometry, shape[axis]
    one_hot = np.eye(points, dtype=np.float32).reshape(points, 1, *geometry.kernel)
    grouped = Geometry(geometry.kernel, geometry.stride, geometry.pad, geometry.dilation, channels)
    x = e.x if axis == 1 else e.reshape(e.x, (math.prod(shape[:axis]), *shape[axis:]))
    filters = e.floats(np.tile(one_hot, (channels, *[1] * (one_hot.ndim - 1))))
    y = e.node("Conv", x, filters, **_attributes(grouped, layer.missing))
    return [y if axis == 1 else e.reshape(y, e.top_shapes[0])]


def inner_product(e: Emitter, layer: InnerProduct) -> list[str]:
    """Flatten and Gemm; `transpose` is Gemm's transB."""
    x = e.x
    if len(e.bottom_shapes[0]) != 2 or layer.axis != 1:
        x = e.node("Flatten", x, axis=layer.axis)
    arrays = [e.weight(0), *(e.weight(1) for _ in layer.parameters[1:])]
    y = e.node("Gemm", x, *arrays, transB=int(not layer.transpose))
    return [y if layer.axis == 1 else e.reshape(y, e.top_shapes[0])]


def embed(e: Emitter, layer: Embed) -> list[str]:
    """Gather of the table's rows, then Add of the bias."""
    y = e.node("Gather", e.weight(0), e.to_integers(e.x), axis=0)
    return [e.node("Add", y, e.weight(1)) if len(layer.parameters) > 1 else y]


def embedding_bag(e: Emitter, layer: EmbeddingBag) -> list[str]:
    """Gather of the table's rows, then their sum or mean over each item's ids."""
    if len(e.bottom_shapes) == 2:
        e.refuse("bags of different lengths have no operator: only a bottom of ids alone, N x length, can be written")
    if 0 in e.bottom_shapes[0][1:]:
        e.refuse("its bags have no ids")
    y = e.node("Gather", e.weight(0), e.to_integers(e.x), axis=0)
    axes = range(1, len(e.bottom_shapes[0]))
    return [e.sums(y, axes, keep=False, operator="ReduceMean" if layer.is_mean else "ReduceSum") if axes else y]


_NO_EFFECT = ("force_nd_im2col",)

OPERATORS = (
    Operator("Convolution", convolution, "Conv, Reshape", without_effect=_NO_EFFECT, any_batch=True),
    Operator("Deconvolution", deconvolution, "ConvTranspose, Reshape", without_effect=_NO_EFFECT, any_batch=True),
    Operator("DepthwiseConvolution", convolution, "Conv, Reshape", without_effect=_NO_EFFECT, any_batch=True),
    Operator("ConvolutionDepthwise", convolution, "Conv, Reshape", without_effect=_NO_EFFECT, any_batch=True),
    Operator("Im2col", im2col, "Conv, Reshape", without_effect=("num_output", "group", "bias_term", "force_nd_im2col")),
    Operator(
        "InnerProduct",
        inner_product,
        "Flatten, Gemm, Reshape",
        {"relu": "true (a field of a fork)"},
        ("negative_slope",),
        any_batch=True,
    ),
    Operator("Embed", embed, "Cast, Gather, Add", any_batch=True),
    Operator(
        "EmbeddingBag",
        embedding_bag,
        "Cast, Gather, ReduceSum, ReduceMean",
        {"bags": "a second bottom of offsets or lengths"},
        any_batch=True,
    ),
)
