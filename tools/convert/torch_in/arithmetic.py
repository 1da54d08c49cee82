"""Operators of two values, with broadcasting, and sums over axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mgcaffe.tools.convert.importing.arithmetic import maximum_of, product_of, quotient_of, sum_of
from mgcaffe.tools.convert.importing.reductions import reduced
from mgcaffe.tools.convert.importing.values import Result, Value
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


def maximum(op: Operation) -> Value:
    """maximum: Eltwise MAX."""
    return maximum_of(op, op.blob(), op.blob("other"))


def mean(op: Operation) -> Value:
    """mean: a global Pooling over H and W, else Reduction over the last axes."""
    return _reduced(op, "MEAN")


def total(op: Operation) -> Value:
    """sum: Reduction over the last axes."""
    return _reduced(op, "SUM")


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
    "mean": mean,
    "sum": total,
}
