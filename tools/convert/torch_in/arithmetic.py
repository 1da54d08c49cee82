"""Operators of two values, with broadcasting, and sums over axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mgcaffe.tools.convert.importing.arithmetic import extreme_of, product_of, quotient_of, sum_of
from mgcaffe.tools.convert.importing.reductions import largest_of, reduced, root_of
from mgcaffe.tools.convert.importing.values import Constant, Result, Value
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
    """linalg_vector_norm, norm: Reduction of squares and Power, or of absolute values."""
    order = op[next(name for name in ("ord", "p") if name in op.arguments)]
    order = 2 if order is None else order
    if order not in (1, 2):
        op.refuse(f"it is a norm of order {order}; Reduction adds squares or absolute values")
    y = _reduced(op, "SUMSQ" if order == 2 else "ASUM")
    return root_of(op, y) if order == 2 else y


def _reduced(op: Operation, operation: str) -> Value:
    x = op.blob()
    axes = op.arguments.get("dim") or range(len(x.shape))
    return reduced(op, x, operation, axes, keep_axes=bool(op.arguments.get("keepdim")))


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
}
