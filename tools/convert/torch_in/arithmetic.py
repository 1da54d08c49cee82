"""Operators of two values, with broadcasting, and sums over axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mgcaffe.tools.convert.importing.arithmetic import extreme_of, product_of, quotient_of, sum_of
from mgcaffe.tools.convert.importing.reductions import largest_of, log_of_sum, norm_of, reduced, variance_of
from mgcaffe.tools.convert.importing.values import Constant, Result, Shape, Value
from mgcaffe.tools.convert.torch_in.operation import Operation


def add(op: Operation) -> Value:
    """add: Eltwise SUM, Bias, or Power with a number."""
    return sum_of(op, op["self"], op["other"], op["alpha"])


def subtract(op: Operation) -> Value:
    """sub: as add, with a coefficient of -1."""
    return sum_of(op, op["self"], op["other"], -op["alpha"])


def subtract_reversed(op: Operation) -> Value:
    """rsub: as add, with a coefficient of -1 on the first."""
    if op["alpha"] != 1:
        op.refuse("its alpha is not 1")
    return sum_of(op, op["other"], op["self"], -1)


def multiply(op: Operation) -> Value:
    """mul: Eltwise PROD, Scale, or Power with a number."""
    return product_of(op, op["self"], op["other"])


def divide(op: Operation) -> Value:
    """div: Power or Scale with the reciprocal, Eltwise PROD with the power -1."""
    if op.arguments.get("rounding_mode") is not None:
        op.refuse("it rounds the quotient, which no layer does")
    return quotient_of(op, op["self"], op["other"])


def maximum(op: Operation) -> Result:
    """maximum, max of two: Eltwise MAX, or Clip (ReLU) with a number; max over an axis: as amax."""
    return _extreme(op, smallest=False)


def minimum(op: Operation) -> Result:
    """minimum, min of two: Power, Eltwise MAX and Power, or Clip with a number; min over an axis: as amin."""
    return _extreme(op, smallest=True)


def _extreme(op: Operation, *, smallest: bool) -> Result:
    if "dim" in op.arguments:  # the places are not made
        return [largest_of(op, op.blob(), [op["dim"]], keep_axes=bool(op["keepdim"]), smallest=smallest)]
    if "other" not in op.arguments:
        op.refuse("it is over all values, the batch among them; layers compare two blobs, or values of one item")
    return extreme_of(op, [_number(op[name]) for name in ("self", "other")], smallest=smallest)


def _number(value: Any) -> Any:
    """Return a constant of one value as a number."""
    is_one = isinstance(value, Constant) and not value.trained and value.tensor.dim() == 0
    return float(value.tensor) if is_one else value


def largest(op: Operation) -> Value:
    """amax: a global Pooling MAX, of other axes than H and W between a Permute and Reshapes."""
    return _over_axes(op, smallest=False)


def smallest(op: Operation) -> Value:
    """amin: as amax, between Powers that negate."""
    return _over_axes(op, smallest=True)


def _over_axes(op: Operation, *, smallest: bool) -> Value:
    x = op.blob()
    axes = op["dim"] or range(len(x.shape))
    return largest_of(op, x, axes, keep_axes=bool(op["keepdim"]), smallest=smallest)


def mean(op: Operation) -> Value:
    """mean: a global Pooling over H and W, else Reduction, behind a Permute where the axes are not the last."""
    return _reduced(op, "MEAN")


def total(op: Operation) -> Value:
    """sum: Reduction, behind a Permute where the axes are not the last."""
    return _reduced(op, "SUM")


def norm(op: Operation) -> Value:
    """linalg_vector_norm, norm: Reduction of squares and Power, or of absolute values; of order inf as amax."""
    order = op[next(name for name in ("ord", "p") if name in op.arguments)]
    x = op.blob()
    return norm_of(op, x, 2 if order is None else order, _axes(op, x), keep_axes=_keeps_axes(op))


def log_sum_exp(op: Operation) -> Value:
    """logsumexp: as amax, Bias, Exp, Reduction, Log, Eltwise."""
    x = op.blob()
    return log_of_sum(op, x, _axes(op, x), keep_axes=_keeps_axes(op))


def variance(op: Operation) -> Value:
    """var: as mean, Bias, Reduction, Power."""
    return _variance(op)[0]


def variance_and_mean(op: Operation) -> Sequence[Value]:
    """var_mean: as var, and mean."""
    return _variance(op)


def deviation(op: Operation) -> Value:
    """std: as var, with a Power for the root."""
    return _variance(op, root=True)[0]


def deviation_and_mean(op: Operation) -> Sequence[Value]:
    """std_mean: as std, and mean."""
    return _variance(op, root=True)


def _variance(op: Operation, *, root: bool = False) -> Sequence[Value]:
    x, given = op.blob(), op.arguments
    correction = float(bool(op["unbiased"])) if "unbiased" in given else given.get("correction")
    correction = 1.0 if correction is None else float(correction)
    return variance_of(op, x, _axes(op, x), correction=correction, keep_axes=_keeps_axes(op), root=root)


def _reduced(op: Operation, operation: str) -> Value:
    x = op.blob()
    return reduced(op, x, operation, _axes(op, x), keep_axes=_keeps_axes(op))


def _axes(op: Operation, x: Value) -> Sequence[int]:
    """Return the axes of a reduction, counted from the front; all of them where none are given."""
    given = op.arguments.get("dim")
    given = [given] if isinstance(given, int) else given or range(len(x.shape))
    return [axis % len(x.shape) for axis in given]


def _keeps_axes(op: Operation) -> bool:
    return bool(op.arguments.get("keepdim"))


def interpolate(op: Operation) -> Value:
    """lerp: as sub, then as add; with weights that are computed as mul between."""
    weight = op["weight"]
    with op.step("difference", _shape(op["self"], op["end"])):
        difference = sum_of(op, op["end"], op.as_blob(op["self"]), -1)
    if isinstance(weight, (int, float)):
        return sum_of(op, op["self"], difference, weight)
    with op.step("part", _shape(difference, weight)):
        part = product_of(op, difference, weight)
    return sum_of(op, op["self"], part)


def add_product(op: Operation) -> Value:
    """addcmul: as mul, then as add."""
    with op.step("product", _shape(op["tensor1"], op["tensor2"])):
        product = product_of(op, op["tensor1"], op["tensor2"])
    return sum_of(op, op["self"], product, op["value"])


def add_quotient(op: Operation) -> Value:
    """addcdiv: as div of two blobs, then as add."""
    with op.step("quotient", _shape(op["tensor1"], op["tensor2"])):
        quotient = quotient_of(op, op["tensor1"], op.as_blob(op["tensor2"]))
    return sum_of(op, op["self"], quotient, op["value"])


def _shape(*values: Value | Constant) -> Shape:
    """Return the shape that values have together."""
    shapes = [each.tensor.shape if isinstance(each, Constant) else each.shape for each in values]
    return tuple(np.broadcast_shapes(*shapes))


OPERATORS: Mapping[str, Callable[[Operation], Result]] = {
    "add": add,
    "sub": subtract,
    "rsub": subtract_reversed,
    "mul": multiply,
    "div": divide,
    "maximum": maximum,
    "max": maximum,
    "minimum": minimum,
    "min": minimum,
    "amax": largest,
    "amin": smallest,
    "mean": mean,
    "sum": total,
    "linalg_vector_norm": norm,
    "norm": norm,
    "logsumexp": log_sum_exp,
    "var": variance,
    "var_mean": variance_and_mean,
    "std": deviation,
    "std_mean": deviation_and_mean,
    "lerp": interpolate,
    "addcmul": add_product,
    "addcdiv": add_quotient,
}
