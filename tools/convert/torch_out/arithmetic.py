"""Arithmetic on whole blobs, and reductions: how each is written in PyTorch."""

from __future__ import annotations

from functools import reduce

from mgcaffe.engine.layers.argmax import ArgMax
from mgcaffe.engine.layers.axpy import Axpy
from mgcaffe.engine.layers.bias import Bias
from mgcaffe.engine.layers.dot_interaction import DotInteraction
from mgcaffe.engine.layers.eltwise import PROD, SUM, Eltwise
from mgcaffe.engine.layers.matmul import MatMul
from mgcaffe.engine.layers.reduction import ASUM, MEAN, SUMSQ, Reduction
from mgcaffe.engine.layers.scale import Scale
from mgcaffe.engine.layers.shared.broadcast import BroadcastLayer
from mgcaffe.engine.layers.softmax import Softmax
from mgcaffe.engine.types import Shape
from mgcaffe.tools.convert.torch_out.emitter import Blob, Emitter, Operator, call, number


def eltwise(e: Emitter, layer: Eltwise) -> list[str]:
    """Sum of the bottoms, each times its coefficient; their product, or torch.maximum."""
    if layer.operation == PROD:
        return [" * ".join(e.bottoms)]
    if layer.operation != SUM:
        return [reduce(lambda largest, x: call("torch.maximum", largest, x), e.bottoms)]
    text = ""
    for x, coefficient in zip(e.bottoms, layer.coefficients, strict=True):
        sign = "-" if coefficient < 0 else "+"
        term = x if abs(coefficient) == 1 else f"{number(abs(coefficient))} * {x}"
        text = f"{text} {sign} {term}" if text else f"{'-' if coefficient < 0 else ''}{term}"
    return [text]


def scale(e: Emitter, layer: Scale) -> list[str]:
    """`Scale`, with weight and bias; product with the second bottom."""
    shape = _stretched_shape(e, layer)
    if not layer.learned:
        y = f"{e.x} * {_stretched(e, layer)}"
        return [y if layer.bias is None else f"{y} + {e.parameter('bias', Blob(0, shape))}"]
    blobs = {"weight": Blob(0, shape), **({"bias": Blob(1, shape)} if layer.bias is not None else {})}
    own = e.attribute(call(e.helper("Scale"), *map(str, shape), bias=(str(layer.bias is not None), "False")), blobs)
    if own:
        return [f"{own}({e.x})"]
    y = f"{e.x} * {e.parameter('weight', blobs['weight'])}"
    return [f"{y} + {e.parameter('bias', blobs['bias'])}" if "bias" in blobs else y]


def bias(e: Emitter, layer: Bias) -> list[str]:
    """`Bias`, sum with the second bottom."""
    if not layer.learned:
        return [f"{e.x} + {_stretched(e, layer)}"]
    shape = _stretched_shape(e, layer)
    blob = Blob(0, shape)
    own = e.attribute(call(e.helper("Bias"), *map(str, shape)), {"bias": blob})
    return [f"{own}({e.x})" if own else f"{e.x} + {e.parameter('bias', blob)}"]


def _stretched_shape(e: Emitter, layer: BroadcastLayer) -> Shape:
    """Return the shape in which the layer's values broadcast over the first bottom."""
    covered = tuple(layer.blob_shape)
    return (*covered, *[1] * (e.rank - layer.axis - len(covered))) if covered else ()


def _stretched(e: Emitter, layer: BroadcastLayer) -> str:
    """Return the second bottom so that it broadcasts over the first."""
    return _with_axes(e.bottoms[1], len(_stretched_shape(e, layer)) - len(e.bottom_shapes[1]))


def _with_axes(x: str, count: int) -> str:
    return f"{x}[..., {', '.join(['None'] * count)}]" if count else x


def axpy(e: Emitter, layer: Axpy) -> list[str]:
    """Product with the factors, with axes of size 1 behind the channels, and sum."""
    factors, x, y = e.bottoms
    given, image = e.bottom_shapes[:2]
    if len(given) > 2 and len(given) != len(image):
        factors, given = f"{factors}.flatten(1)", given[:2]
    return [f"{_with_axes(factors, len(image) - len(given))} * {x} + {y}"]


def matmul(e: Emitter, layer: MatMul) -> list[str]:
    """Write `@`, with `mT` where a bottom is transposed."""
    return [" @ ".join(f"{x}.mT" if turn else x for x, turn in zip(e.bottoms, layer.transposed, strict=True))]


def dot_interaction(e: Emitter, layer: DotInteraction) -> list[str]:
    """`dot_interaction` of the vectors, joined along a new axis."""
    diagonal = layer.param.dot_interaction_param.diagonal
    vectors = [x if joined else f"{x}[:, None]" for x, joined in zip(e.bottoms, layer.joined, strict=True)]
    joined = vectors[0] if len(vectors) == 1 else call("torch.cat", f"[{', '.join(vectors)}]", "1")
    return [call(e.helper("dot_interaction"), joined, diagonal=(str(diagonal), "False"))]


def softmax(e: Emitter, layer: Softmax) -> list[str]:
    """torch.softmax."""
    return [call("torch.softmax", e.x, str(layer.axis))]


def reduction(e: Emitter, layer: Reduction) -> list[str]:
    """Tensor.sum or mean over the axes, of absolute values or squares, times coeff."""
    of = {ASUM: f"{e.x}.abs()", SUMSQ: f"{e.x}.square()"}.get(layer.operation, e.x)
    axes = layer.summed_axes
    chosen = "" if len(axes) == e.rank else str(axes[0]) if len(axes) == 1 else str(axes)
    y = f"{of}.{'mean' if layer.operation == MEAN else 'sum'}({chosen})"
    coefficient = layer.param.reduction_param.coeff
    return [y if coefficient == 1 else f"{number(coefficient)} * {y}"]


def argmax(e: Emitter, layer: ArgMax) -> list[str]:
    """`largest`, which sorts values in reversed order: the last of equal ones counts in Caffe."""
    with_values, count = layer.param.argmax_param.out_max_val, layer.param.argmax_param.top_k
    helper = e.helper("largest")
    if layer.axis is not None:
        return [f"{helper}({e.x}, {count}, {layer.axis})[{0 if with_values else 1}]"]
    rows = e.x if e.rank == 2 else f"{e.x}.flatten(1)" if e.rank > 2 else f"{e.x}.unsqueeze(1)"
    chosen = f"{helper}({rows}, {count}, 1)"
    y = f"torch.stack({chosen}[::-1], 1)" if with_values else f"{chosen}[1].unsqueeze(1)"
    return [_with_axes(y, len(e.top_shapes[0]) - 3)]


OPERATORS = (
    Operator("Eltwise", eltwise, "torch.maximum", without_effect=("stable_prod_grad",)),
    Operator("Scale", scale, "Scale"),
    Operator("Bias", bias, "Bias"),
    Operator("Axpy", axpy, ""),
    Operator("MatMul", matmul, ""),
    Operator("DotInteraction", dot_interaction, "dot_interaction, torch.cat"),
    Operator("Softmax", softmax, "torch.softmax"),
    Operator("Reduction", reduction, ""),
    Operator("ArgMax", argmax, "largest, torch.stack"),
)
