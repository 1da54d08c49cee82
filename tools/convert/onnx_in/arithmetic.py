"""Operators of several values, with broadcasting, and reductions over axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mgcaffe.tools.convert.importing import arithmetic
from mgcaffe.tools.convert.importing.reductions import largest_of, log_of_sum, reduced, root_of
from mgcaffe.tools.convert.importing.shapes import reshaped
from mgcaffe.tools.convert.importing.values import Constant, Shape, Value
from mgcaffe.tools.convert.onnx_in.names import are_one_layer
from mgcaffe.tools.convert.onnx_in.operation import Known, Operation, Table


def _operand(op: Operation, number: int) -> Value | Constant | float:
    """Return an input: a constant of one value as a number, others as something that is not trained unless a weight."""
    found = op.input(number)
    if found is None:
        op.refuse(f"its input {number} is missing")
    if isinstance(found, Value):
        return op.as_blob(found)
    if not found.tensor.is_floating_point():
        op.refuse(f"its input {number} holds {str(found.tensor.dtype).removeprefix('torch.')}, not floats")
    return float(found.tensor.reshape(())) if found.tensor.numel() == 1 else found


def _pair(op: Operation) -> tuple[Any, Any]:
    """Return the two operands of an operator, whose shape is set."""
    op.shape = op.broadcast(*(_shape(op.input(number)) for number in (0, 1)))
    _check_axes(op, 2)
    return _operand(op, 0), _operand(op, 1)


def _check_axes(op: Operation, count: int) -> None:
    """Refuse constants of more axes than the blobs, among so many inputs: not even one value is a number then."""
    blobs = [len(each.shape) for each in op.inputs[:count] if isinstance(each, Value)]
    most = max((len(_shape(each)) for each in op.inputs[:count]), default=0)
    if most > max(blobs, default=0):
        op.refuse(f"a constant gives the result {most} axes, which no layer does")


def _shape(known: Known | None) -> Shape:
    if isinstance(known, Constant):
        return tuple(known.tensor.shape)
    return known.shape if known is not None else ()


def _plain(value: Any) -> Any:
    """Return a constant as one that is not trained, so that it may be negated or inverted."""
    return Constant(value.tensor) if isinstance(value, Constant) else value


def add(op: Operation) -> Value:
    """Eltwise SUM, Bias, or Power with a number."""
    return arithmetic.sum_of(op, *_pair(op))


def subtract(op: Operation) -> Value:
    """As Add, with a coefficient of -1."""
    one, two = _pair(op)
    return arithmetic.sum_of(op, one, _plain(two), -1)


def multiply(op: Operation) -> Value:
    """Eltwise PROD, Scale, or Power with a number; with an Add behind it a Scale, if the exporter here wrote it so."""
    one, two = _pair(op)
    factor = two if isinstance(two, Constant) else one
    bias = _bias_behind(op, factor) if isinstance(factor, Constant) else None
    if bias is None:
        return arithmetic.product_of(op, one, two)
    x = op.as_blob(one if factor is two else two)
    return arithmetic.with_constant(op, "Scale", x, factor, bias)


def _bias_behind(op: Operation, factor: Constant) -> Constant | None:
    """Return what the only reader adds, of the same layer and as large as the factor; that node is absorbed."""
    node = op.only_reader()
    if node is None or node.kind != "Add" or not are_one_layer(op.node, node) or len(node.inputs) != 2:
        return None
    found = op.lookup(node.inputs[0 if node.inputs[1] == op.node.outputs[0] else 1])
    if not isinstance(found, Constant) or found.tensor.shape != factor.tensor.shape:
        return None
    op.absorbed.append(node)
    return found


def divide(op: Operation) -> Value:
    """Power or Scale with the reciprocal, Eltwise PROD or Scale with the power -1."""
    one, two = _pair(op)
    return arithmetic.quotient_of(op, one, _plain(two))


def power(op: Operation) -> Value:
    """Power, with a number as exponent."""
    x, exponent = op.blob(), op.number(1, "exponent")
    if exponent is None:
        op.refuse("its exponent is missing")
    return op.layer("Power", [x], power_param={"power": exponent})


def total(op: Operation) -> Value:
    """Eltwise SUM, or one after the other where shapes differ."""
    return _summed(op, 1.0)


def average(op: Operation) -> Value:
    """Eltwise SUM with coefficients, or a sum and a Power."""
    return _summed(op, 1 / max(1, len(op.inputs)))


def _summed(op: Operation, factor: float) -> Value:
    _check_axes(op, len(op.inputs))
    values = [_operand(op, number) for number in range(len(op.inputs))]
    if not values:
        op.refuse("it has no inputs")
    blobs = [each for each in values if isinstance(each, Value)]
    if len(blobs) == len(values) > 1 and len({each.shape for each in blobs}) == 1:
        return op.layer("Eltwise", blobs, eltwise_param={"coeff": [factor] * len(blobs)} if factor != 1 else {})
    if not blobs:
        op.refuse("it computes with constants alone, which no layer does")
    y: Any = blobs[0]
    first = next(number for number, each in enumerate(values) if each is y)
    for each in values[:first] + values[first + 1 :]:
        shape = tuple(each.tensor.shape) if isinstance(each, Constant) else getattr(each, "shape", ())
        op.shape = op.broadcast(y.shape, shape)
        y = arithmetic.sum_of(op, y, each)
    result: Value = y
    return result if factor == 1 else op.layer("Power", [result], part="mean", power_param={"scale": factor})


def maximum(op: Operation) -> Value:
    """Eltwise MAX, or Clip (ReLU) with a number."""
    return _extreme(op, smallest=False)


def minimum(op: Operation) -> Value:
    """Power, Eltwise MAX and Power: the largest of the negated values, negated; or Clip with a number."""
    return _extreme(op, smallest=True)


def _extreme(op: Operation, *, smallest: bool) -> Value:
    if not op.inputs:
        op.refuse("it has no inputs")
    _check_axes(op, len(op.inputs))
    operands = [_operand(op, number) for number in range(len(op.inputs))]
    return arithmetic.extreme_of(op, operands, smallest=smallest)


def _axes(op: Operation, x: Value, since: int) -> list[int] | None:
    """Return the axes of a reduction; None: it reduces none."""
    given = op.listed("axes", 1, since)
    if not given:
        return None if op.integer("noop_with_empty_axes", 0) else list(range(len(x.shape)))
    return op.axes(given, len(x.shape))


def _reduction(operation: str, since: int = 18) -> Callable[[Operation], Value]:
    """Return the function of a reduction; its axes are an input since that opset."""

    def convert(op: Operation) -> Value:
        x = op.blob()
        axes = _axes(op, x, since)
        if axes is None:
            return _of_each(op, x, operation)
        keep = bool(op.integer("keepdims", 1))
        op.shape = tuple(
            1 if axis in axes else size for axis, size in enumerate(x.shape) if keep or axis not in axes
        )  # fmt: skip
        return reduced(op, x, operation, axes, keep_axes=keep)

    pooling = "Global Pooling over H and W, else " if operation == "MEAN" else ""
    convert.__doc__ = f"{pooling}Reduction {operation}, behind a Permute where the axes are not the last."
    return convert


def _of_each(op: Operation, x: Value, operation: str) -> Value:
    """Return what a reduction over no axes makes of each value: L1 and squares are computed all the same."""
    if operation == "ASUM":
        return op.layer("AbsVal", [x])
    return op.layer("Power", [x], power_param={"power": 2}) if operation == "SUMSQ" else x


def length(op: Operation) -> Value:
    """Reduction SUMSQ, Power."""
    return root_of(op, _reduction("SUMSQ")(op))


def log_sum(op: Operation) -> Value:
    """Reduction SUM, Log."""
    with op.step("sum", op.shape):
        total = _reduction("SUM")(op)
    return op.layer("Log", [total], total.shape)


def log_sum_exp(op: Operation) -> Value:
    """As ReduceMax, Bias, Exp, Reduction SUM, Log, Eltwise."""
    x = op.blob()
    axes = _axes(op, x, 18)
    return x if axes is None else log_of_sum(op, x, axes, keep_axes=bool(op.integer("keepdims", 1)))


def largest(op: Operation) -> Value:
    """Pooling MAX, global; of other axes than H and W between a Permute and Reshapes."""
    return _over_axes(op, smallest=False)


def smallest(op: Operation) -> Value:
    """As ReduceMax, between Powers that negate."""
    return _over_axes(op, smallest=True)


def _over_axes(op: Operation, *, smallest: bool) -> Value:
    x = op.blob()
    axes = _axes(op, x, 18)
    if axes is None:
        return x
    return largest_of(op, x, axes, keep_axes=bool(op.integer("keepdims", 1)), smallest=smallest)


def arg_max(op: Operation) -> Value:
    """ArgMax, which of equal values takes the last."""
    x = op.blob()
    axis = op.axis(op.integer("axis", 0), len(x.shape))
    if axis == 0:
        op.refuse("it goes over the batch axis, over which no layer but a loss goes")
    if not op.integer("select_last_index", 0):
        op.refuse("of equal values it takes the first; ArgMax takes the last (select_last_index=1)")
    op.shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    y = op.layer("ArgMax", [x], argmax_param={"axis": axis})
    return y if op.integer("keepdims", 1) else reshaped(op, y, (*x.shape[:axis], *x.shape[axis + 1 :]), "reshape")


OPERATORS: Table = {
    "Add": add,
    "Sub": subtract,
    "Mul": multiply,
    "Div": divide,
    "Pow": power,
    "Sum": total,
    "Mean": average,
    "Max": maximum,
    "Min": minimum,
    "ReduceMean": _reduction("MEAN"),
    "ReduceSum": _reduction("SUM", 13),
    "ReduceL1": _reduction("ASUM"),
    "ReduceSumSquare": _reduction("SUMSQ"),
    "ReduceL2": length,
    "ReduceLogSum": log_sum,
    "ReduceLogSumExp": log_sum_exp,
    "ReduceMax": largest,
    "ReduceMin": smallest,
    "ArgMax": arg_max,
}
