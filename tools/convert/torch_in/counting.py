"""Operators of whole numbers and flags that are computed of ids: which ids are padding, and the places of the others.

Blobs hold float32, which has every whole number up to 2^24. So what is computed has to be known to be no larger: it
begins with comparisons of ids with a number, and a bound goes with each value from there on (`Value.largest`). Ids
themselves have none, and are compared and looked up only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Node

from mgcaffe.tools.convert.importing.arithmetic import with_constant
from mgcaffe.tools.convert.importing.axes import check_size, multiplied
from mgcaffe.tools.convert.importing.operation import COMPUTES_WITH_WHOLE
from mgcaffe.tools.convert.importing.products import MOST_ROWS, looked_up_by
from mgcaffe.tools.convert.importing.shapes import expanded, permuted, reshaped, tiled
from mgcaffe.tools.convert.importing.values import Constant, Result, Value
from mgcaffe.tools.convert.torch_in import activations, arithmetic, products
from mgcaffe.tools.convert.torch_in.operation import Operation, holds_flags, holds_whole_numbers, is_counted

_CAST = "cast an input of whole numbers in forward: ids.long()"


def _bounded(op: Operation, value: Result, largest: float) -> Result:
    """Return a value with the bound that its whole numbers have; one of other numbers as it is."""
    return _with_bound(op, value, largest) if is_counted(op.node) else value


def _with_bound(op: Operation, value: Result, largest: float) -> Result:
    if isinstance(value, Constant):
        return value
    if largest > MOST_ROWS:
        op.refuse(f"it makes whole numbers of up to {largest:.0f}; float32 has all of them up to {MOST_ROWS}")
    bound = math.ceil(largest)
    return replace(value, largest=bound) if isinstance(value, Value) else [replace(x, largest=bound) for x in value]


def _largest(op: Operation, value: Any) -> float:
    """Return what no number of a value is larger than, without sign; 0 of others than whole numbers.

    Raises:
        NetError: it is a blob of whole numbers of which nothing is known.
    """
    if isinstance(value, Constant):
        return float(value.tensor.detach().double().abs().max()) if value.tensor.numel() else 0
    if isinstance(value, Value):
        if value.largest is None and any(op.value_of(each) == value and is_counted(each) for each in op.inputs):
            op.refuse(COMPUTES_WITH_WHOLE, _CAST)
        return value.largest or 0
    return float(abs(value)) if isinstance(value, (int, float)) else 0


def moved(op: Operation, result: Result, sources: Sequence[Node] | None = None) -> Result:
    """Return what an operator that moves whole numbers makes of them, with the bound of what it moves.

    Args:
        op: the operator.
        result: what it makes.
        sources: the nodes whose values it moves; None: all that it reads.
    """
    sources = op.inputs if sources is None else sources
    if not all(map(is_counted, sources)):
        return result
    known = [op.value_of(each) for each in sources]
    if any(isinstance(each, Value) and each.largest is None for each in known):
        return result
    return _with_bound(op, result, max(_largest(op, each) for each in known))


def _sum(op: Operation) -> float:
    one, two = (_largest(op, op[name]) for name in ("self", "other"))
    return one + float(abs(op["alpha"])) * two


def _product(op: Operation) -> float:
    return math.prod(_largest(op, op[name]) for name in ("self", "other"))


def _total(op: Operation) -> float:
    x = op.blob()
    return _largest(op, x) * math.prod(x.shape) / max(1, math.prod(op.shape))


def _clamped(op: Operation) -> float:
    return max(_largest(op, op[name]) for name in ("self", "min", "max") if name in op.arguments)


def _of_counts(function: Callable[[Operation], Result], largest: Callable[[Operation], float]) -> Any:
    """Return the function of an operator that also computes with whole numbers of which a bound is known.

    Args:
        function: makes the layers.
        largest: returns the bound of the result.
    """

    def convert(op: Operation) -> Result:
        if not any(is_counted(each) for each in op.inputs):
            return function(op)
        bound = largest(op)
        return _bounded(op, function(op), bound)

    convert.__doc__ = function.__doc__
    return convert


def add(op: Operation) -> Result:
    """add: Eltwise SUM, Bias, or Power with a number; nothing with a zero, of whole numbers."""
    if holds_flags(op.node):
        op.refuse("it is true where one of two flags is, which no layer computes", "cast the flags: mask.int()")
    if is_counted(op.node) and op["other"] == 0 and isinstance(op["self"], Value):
        return op["self"]
    return arithmetic.add(op)


def divide(op: Operation) -> Result:
    """div: Eltwise PROD, Scale, or Power; of whole numbers of which a bound is known as of others."""
    for name in ("self", "other"):
        _largest(op, op[name])
    return arithmetic.divide(op)


def _as_number(op: Operation) -> int:
    """Return the number that ids are compared with."""
    other = op["other"]
    if isinstance(other, Constant) and not other.trained and other.tensor.numel() == 1:
        other = other.tensor.item()
    if not isinstance(other, (bool, int, float)) or not float(other).is_integer() or abs(other) > MOST_ROWS:
        op.refuse(f"it compares whole numbers with something else than one whole number of at most {MOST_ROWS}")
    return int(other)


def _flags(op: Operation, x: Value, param: Mapping[str, float], limit: int = 0, *, inverted: bool = False) -> Value:
    """Tell where a function of whole numbers, as a Power has it, is above a limit, or where it is not."""
    if param:
        x = op.layer("Power", [x], x.shape, part="difference", power_param=param)
    fields: dict[str, Any] = {"threshold_param": {"threshold": limit}} if limit else {}
    y = op.layer("Threshold", [x], x.shape, part="not" if inverted else "", **fields)
    return replace(_inverted(op, y) if inverted else y, largest=1)


def _inverted(op: Operation, flags: Value) -> Value:
    return op.layer("Power", [flags], flags.shape, power_param={"scale": -1, "shift": 1})


def _differ(op: Operation, x: Value, number: int, *, inverted: bool = False) -> Value:
    """Tell where whole numbers are not a number, or where they are: by the square of the difference."""
    return _flags(op, x, {"power": 2, **({"shift": -number} if number else {})}, inverted=inverted)


def _compare(op: Operation) -> Result:
    """ne, eq, gt, ge, lt, le of whole numbers with one: Power, Threshold, and Power to invert flags."""
    x = op.blob()
    if not is_counted(op.inputs[0]):
        op.refuse(
            "it compares floating-point numbers; flags are made of ids alone, which have no gradients",
            _CAST if op.inputs[0].op == "placeholder" else None,
        )
    number = _as_number(op)
    if op.name in ("ne", "eq"):
        return _differ(op, x, number, inverted=op.name == "eq")
    if op.name in ("gt", "le"):
        return _flags(op, x, {}, number, inverted=op.name == "le")
    return _flags(op, x, {"scale": -1}, -number, inverted=op.name == "ge")


def _not(op: Operation) -> Result:
    """logical_not, bitwise_not: Power."""
    x = op.blob()
    if not holds_flags(op.inputs[0]):
        op.refuse("it inverts numbers, which no layer does; flags are inverted")
    return replace(_inverted(op, x), largest=1)


def both(op: Operation) -> Result:
    """__and__, bitwise_and, logical_and of flags: Eltwise PROD; Scale by those that are known, unless all are true."""
    one, two = (Constant(torch.tensor(each)) if isinstance(each, bool) else each for each in (op["self"], op["other"]))
    given = [op.arguments[name] for name in ("self", "other")]
    if not all(isinstance(each, bool) or (isinstance(each, Node) and holds_flags(each)) for each in given):
        op.refuse("it joins bits of numbers, which no layer does; flags are joined")
    if isinstance(one, Constant):
        one, two = two, one
    if not isinstance(two, Constant):
        return _bounded(op, arithmetic.multiply(op), 1)
    x = expanded(op, op.as_blob(one), op.shape)
    return _bounded(op, x if two.tensor.all() else with_constant(op, "Scale", x, Constant(two.tensor.float())), 1)


def index(op: Operation) -> Result:
    """index with numbers that are known; of whole numbers and flags Reshape, where it takes each once."""
    if any(is_counted(each) and isinstance(op.value_of(each), Value) for each in op.inputs[1:]):
        op.refuse(COMPUTES_WITH_WHOLE, _CAST)
    return moved(op, products.index(op), op.inputs[:1])


def masked(function: Callable[[Operation], Result]) -> Callable[[Operation], Result]:
    """Return the function of an operator that reads a mask: flags, where it is computed."""

    def convert(op: Operation) -> Result:
        for name, each in op.arguments.items():
            if isinstance(each, Node) and is_counted(each) and isinstance(op[name], Value):
                if name not in _MASKS or not holds_flags(each):
                    op.refuse(COMPUTES_WITH_WHOLE, _CAST)
        return function(op)

    convert.__doc__ = function.__doc__
    return convert


_MASKS = ("attn_mask", "mask", "condition")


def cast(op: Operation) -> Result:
    """to, type_as: nothing; of whole numbers to flags Power and Threshold."""
    given, made = (node.meta["val"].dtype for node in (op.inputs[0], op.node))
    value: Any = op["self"]
    if made == torch.bool and given.is_floating_point:
        op.refuse("it makes flags of floating-point numbers; they are made of whole ones", _CAST)
    if not isinstance(value, Value) or not is_counted(op.inputs[0]) or made == given:
        return activations.unchanged(op)
    if made == torch.bool:
        return _differ(op, op.blob(), 0)
    if made.is_floating_point:
        _largest(op, value)
        return replace(value, largest=None)
    return value if holds_whole_numbers(op.node) else activations.unchanged(op)


def cumulative_sum(op: Operation) -> Result:
    """cumsum: InnerProduct with a triangle of ones (frozen); of whole numbers Tile, Scale by it and Reduction.

    Those are exact in every precision that a net trains in: products of 16 bits would round numbers above 256.
    """
    x = op.blob()
    axis = op["dim"] % len(x.shape)
    size = x.shape[axis]
    if axis == 0 and op.first_is_batch and not op.made.is_fixed(x):
        op.refuse("it adds up over the batch axis, over which no layer but a loss goes")
    check_size(op, size, size)
    triangle = torch.ones(size, size).tril()
    if not is_counted(op.inputs[0]):
        return multiplied(op, x, axis, triangle, "sums")
    bound = _largest(op, x) * size
    order = [each for each in range(len(x.shape)) if each != axis] + [axis]
    turned = permuted(op, x, order, "last")
    rank = len(turned.shape)
    rows = reshaped(op, turned, (*turned.shape[:-1], 1, size), "row")
    wanted, op.shape = op.shape, (*turned.shape[:-1], size, size)
    rows = tiled(op, rows, [1] * (rank - 1) + [size, 1])
    param = {"axis": rank - 1, "num_axes": 2}
    rows = op.layer("Scale", [rows], part="triangle", blobs=[Constant(triangle)], scale_param=param)
    op.shape = wanted
    y = op.layer("Reduction", [rows], turned.shape, reduction_param={"axis": rank})
    return _bounded(op, permuted(op, y, [order.index(each) for each in range(rank)], "back"), bound)


def gather(op: Operation) -> Result:
    """gather of a constant that is the same along all other axes: Embed, of rows of one value, and Reshape."""
    table, numbers = op["self"], op["index"]
    if not isinstance(table, Constant) or table.trained or not isinstance(numbers, Value):
        op.refuse("it takes values of single places, which layers do of constants alone, by numbers that are computed")
    last = table.tensor.movedim(op["dim"], -1)
    rows = last.reshape(-1, last.shape[-1])
    if not torch.equal(rows, rows[:1].expand_as(rows)):
        op.refuse("it takes values of a constant that is not the same along its other axes")
    numbers = op.as_blob(numbers)
    y = looked_up_by(op, Constant(rows[0].float()[:, None]), numbers)
    return _bounded(op, reshaped(op, y, numbers.shape, "reshape"), _largest(op, table))


OPERATORS: Mapping[str, Callable[[Operation], Result]] = {
    **dict.fromkeys(("ne", "eq", "gt", "ge", "lt", "le"), _compare),
    **dict.fromkeys(("logical_not", "bitwise_not"), _not),
    **dict.fromkeys(("to", "_to_copy", "type_as"), cast),
    **dict.fromkeys(("clamp", "clamp_min", "clamp_max"), _of_counts(activations.clamp, _clamped)),
    "add": _of_counts(add, _sum),
    "sub": _of_counts(arithmetic.subtract, _sum),
    "rsub": _of_counts(arithmetic.subtract_reversed, _sum),
    "mul": _of_counts(arithmetic.multiply, _product),
    "div": divide,
    "sum": _of_counts(arithmetic.total, _total),
    **dict.fromkeys(("__and", "bitwise_and", "logical_and"), both),
    **{name: masked(products.OPERATORS[name]) for name in ("scaled_dot_product_attention", "masked_fill", "where")},
    "index": index,
    "cumsum": cumulative_sum,
    "gather": gather,
}

COUNTING = OPERATORS.keys()
"""Operators that may be given whole numbers and flags that are not known, and check themselves which."""
