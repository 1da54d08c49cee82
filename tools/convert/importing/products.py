"""Layers that multiply matrices of two blobs, or a blob and a parameter."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from typing import Any

import torch

from mgcaffe.tools.convert.importing.arithmetic import product_of, sum_of, with_constant
from mgcaffe.tools.convert.importing.axes import check_size, multiplied
from mgcaffe.tools.convert.importing.operation import Operation
from mgcaffe.tools.convert.importing.shapes import expanded, joined, permuted, reshaped, tiled
from mgcaffe.tools.convert.importing.values import Constant, Shape, Value

MOST_ROWS = 2**24
"""The most rows that numbers of float32 tell apart."""
_PENALTY = 1e30
"""Next to it no product counts, and it is finite, so that rows of nothing else have weights."""


def matrix_product(op: Operation, a: Value, b: Value, *, transpose_b: bool = False, part: str = "") -> Value:
    """Multiply the matrices in the last two axes: MatMul.

    Args:
        op: the operator.
        a: (..., M, K).
        b: (..., K, N), or (..., N, K) to be transposed, with the same axes before.
        transpose_b: see there.
        part: what the layer is for.
    """
    if min(len(a.shape), len(b.shape)) < 2 or a.shape[:-2] != b.shape[:-2]:
        op.refuse(
            f"it multiplies matrices of shapes {a.shape} and {b.shape}; MatMul takes as many of one as of the other"
        )
    columns = b.shape[-2 if transpose_b else -1]
    param = {"transpose_b": True} if transpose_b else {}
    return op.layer("MatMul", [a, b], (*a.shape[:-1], columns), part=part, matmul_param=param)


def attention(
    op: Operation,
    query: Value,
    key: Value,
    value: Value,
    *,
    scale: float,
    mask: Value | Constant | None,
    flags: Value | None = None,
) -> Value:
    """Return softmax(scale Q K' + mask) V: Power, MatMul, Bias or Eltwise for a mask, Softmax and MatMul.

    Where all flags of a row are 0, all its weights are, as in PyTorch.

    Args:
        op: the operator.
        query: (..., T, d).
        key: (..., S, d).
        value: (..., S, e).
        scale: what products are multiplied by.
        mask: what is added to them, of a shape that broadcasts to (..., T, S), or None.
        flags: ones for the keys that count, and zeros, of such a shape; None: all do.
    """
    if isinstance(mask, Constant) and hides_a_row(mask.tensor):
        op.refuse("its mask hides all keys from a row, of which it makes zeros, and Softmax NaN")
    query = op.layer("Power", [query], query.shape, part="scale", power_param={"scale": scale})
    scores = matrix_product(op, query, key, transpose_b=True, part="scores")
    if mask is not None:
        wanted, op.shape = op.shape, scores.shape
        scores = sum_of(op, scores, mask)
        op.shape = wanted
    if flags is not None:
        flags = _for_each_row(op, flags, scores.shape)
        penalties = _penalties(op, flags)
        scores = op.layer("Eltwise", [scores, penalties], scores.shape, part="masked")
    axis = len(scores.shape) - 1
    weights = op.layer("Softmax", [scores], scores.shape, part="softmax", softmax_param={"axis": axis})
    if flags is not None:
        param = {"operation": "PROD"}
        weights = op.layer("Eltwise", [weights, flags], scores.shape, part="counted", eltwise_param=param)
    return matrix_product(op, weights, value)


def hides_a_row(mask: torch.Tensor) -> bool:
    """Return whether a mask that is added to (..., T, S) leaves nothing of one of the T rows."""
    return bool((mask == -math.inf).all(-1).any())


def _for_each_row(op: Operation, flags: Value, shape: Shape) -> Value:
    """Return flags in the shape of all products, once for all layers that read them."""
    return op.remembered(("flags", flags.blob, shape), lambda: [expanded(op, flags, shape)])[0]


def _penalties(op: Operation, flags: Value) -> Value:
    """Return what takes products out whose flags are 0, once for all layers that read them."""
    param = {"scale": _PENALTY, "shift": -_PENALTY}
    key = ("penalties", flags.blob)
    return op.remembered(key, lambda: [op.layer("Power", [flags], flags.shape, part="penalties", power_param=param)])[0]


def causal_mask(rows: int, columns: int) -> Constant:
    """Return what keeps each row from what is behind it: (rows, columns), zeros, and -inf above the diagonal."""
    return Constant(torch.full((rows, columns), -math.inf).triu(1))


def as_mask(mask: Constant) -> Constant:
    """Return a mask as numbers that are added: of flags, 0 where they say true, else -inf."""
    if mask.tensor.dtype != torch.bool:
        return mask
    return Constant(torch.zeros(mask.tensor.shape).masked_fill(~mask.tensor, -math.inf))


def filled(op: Operation, x: Value, mask: torch.Tensor, number: float) -> Value:
    """Put a number where a mask that is known says so: Bias, behind a Scale unless the number is infinite."""
    if not mask.any():
        return x
    if math.isfinite(number):
        x = product_of(op, x, Constant((~mask).float()))
    return sum_of(op, x, Constant(torch.zeros(mask.shape).masked_fill(mask, number)))


def filled_by(op: Operation, x: Value, flags: Value, number: float, *, for_softmax: bool = False) -> Value:
    """Put a number where flags that are computed are 1: as `filled`, with the Log of the others for -inf.

    Args:
        op: the operator.
        x: the value.
        flags: ones and zeros.
        number: which.
        for_softmax: a softmax alone reads the result, and its weights are overwritten, so -1e30 is added where the
            number is -inf: of a row that is filled as a whole the weights are finite.
    """
    shape = op.shape
    param = {"scale": -1, "shift": 1}
    kept = op.layer("Power", [flags], flags.shape, part="others", power_param=param)
    if number == -math.inf and for_softmax:
        return sum_of(op, x, _penalties(op, kept))
    if number == -math.inf:
        return sum_of(op, x, op.layer("Log", [kept], kept.shape, part="penalties"))
    if not math.isfinite(number):
        op.refuse(f"it puts {number} where flags say so that are computed")
    y = product_of(op, x, kept)
    if not number:
        return y
    op.shape = shape
    return sum_of(op, y, op.layer("Power", [flags], flags.shape, part="numbers", power_param={"scale": number}))


def chosen(op: Operation, condition: Constant, one: Any, two: Any) -> Value:
    """Choose by a condition that is known between a blob and a number, in either order: as `filled`.

    Args:
        op: the operator.
        condition: flags.
        one: what is taken where they say true.
        two: what is taken elsewhere.
    """
    mask = condition.tensor.bool()
    for x, other, place in ((one, two, ~mask), (two, one, mask)):
        if isinstance(x, Value) and isinstance(other, Constant) and other.tensor.numel() == 1:
            return filled(op, op.as_blob(x), place, float(other.tensor))
    return op.refuse("it chooses between other things than a blob and a number")


def chosen_by(op: Operation, flags: Value, one: Any, two: Any, *, for_softmax: bool = False) -> Value:
    """Choose by flags that are computed between a blob and a number, or two numbers.

    Args:
        op: the operator.
        flags: ones and zeros.
        one: what is taken where they are 1: a blob, or a constant.
        two: what is taken elsewhere.
        for_softmax: as for `filled_by`.
    """
    if any(isinstance(each, Constant) and each.tensor.numel() != 1 for each in (one, two)):
        op.refuse("it chooses between other things than blobs and numbers")
    if isinstance(one, Constant) and isinstance(two, Constant):
        first, second = float(one.tensor), float(two.tensor)
        if not math.isfinite(first - second):
            op.refuse(f"it chooses between {first} and {second} by flags that are computed")
        y = op.layer("Power", [flags], flags.shape, power_param={"scale": first - second, "shift": second})
        return expanded(op, y, op.shape)
    if isinstance(two, Constant):
        param = {"scale": -1, "shift": 1}
        others = op.layer("Power", [flags], flags.shape, part="not", power_param=param)
        return filled_by(op, op.as_blob(one), others, float(two.tensor), for_softmax=for_softmax)
    if isinstance(one, Constant):
        return filled_by(op, op.as_blob(two), flags, float(one.tensor), for_softmax=for_softmax)
    return op.refuse("it chooses between two blobs by flags that are computed")


def einsum(op: Operation, operands: Sequence[Value], equation: str) -> Value:
    """Compute an einsum of two blobs: MatMul, between Permutes and Reshapes."""
    left, arrow, result = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(operands) != 2:
        op.refuse(f"it multiplies {len(operands)} operands; MatMul takes two")
    if len(terms) != 2:
        op.refuse(f"its equation '{equation}' is not for two operands")
    counts = [len(x.shape) - len(term.replace("...", "")) for x, term in zip(operands, terms, strict=True)]
    fits = all(count == 0 or ("..." in term and count > 0) for count, term in zip(counts, terms, strict=True))
    known = set(left) >= set(result) - {"."}
    if not fits or not known or not set(equation) <= {*string.ascii_letters, *" .,->"}:
        axes = " and ".join(str(len(x.shape)) for x in operands)
        op.refuse(f"its equation '{equation}' does not fit operands of {axes} axes")
    rest = [letter for letter in string.ascii_letters if letter not in equation][: max(counts)]
    if not arrow:
        result = ("..." if "..." in left else "") + "".join(
            sorted(letter for letter in set(left) - {".", ","} if left.count(letter) == 1)
        )
    terms = [term.replace("...", "".join(rest[len(rest) - count :])) for term, count in zip(terms, counts, strict=True)]
    return _contracted(op, operands, terms, result.replace("...", "".join(rest)))


def _contracted(op: Operation, operands: Sequence[Value], terms: Sequence[str], result: str) -> Value:
    """Return the einsum of two blobs, with a letter for each axis of them and of the result."""
    (a, b), (one, two) = operands, terms
    sizes = {**dict(zip(one, a.shape, strict=True)), **dict(zip(two, b.shape, strict=True))}
    both = [letter for letter in one if letter in two]
    before = [letter for letter in both if letter in result]
    inner = [letter for letter in both if letter not in result]
    rows, columns = ([letter for letter in term if letter not in both] for term in terms)
    if set(rows + columns) - set(result) or any(len(set(each)) < len(each) for each in (one, two, result)):
        op.refuse("it sums over an axis of one operand, or takes a diagonal, which MatMul does not")
    if any(sizes[letter] != size for letter, size in zip(one + two, a.shape + b.shape, strict=True)):
        op.refuse(f"shapes {a.shape} and {b.shape} do not fit together; MatMul repeats no axis")

    def laid_out(x: Value, term: str, groups: Sequence[list[str]], part: str) -> Value:
        order = [term.index(letter) for letter in (*before, *groups[0], *groups[1])]
        shape = (*(sizes[letter] for letter in before), *(math.prod(sizes[each] for each in group) for group in groups))
        return reshaped(op, permuted(op, x, order, f"{part}_order"), shape, part)

    y = matrix_product(
        op, laid_out(a, one, (rows, inner), "a"), laid_out(b, two, (inner, columns), "b"), part="product"
    )
    made = [*before, *rows, *columns]
    y = reshaped(op, y, tuple(sizes[letter] for letter in made), "apart")
    return permuted(op, y, [made.index(letter) for letter in result], "order")


def transposed_product(op: Operation, x: Value, weight: Constant, bias: Constant | None = None) -> Value:
    """Multiply by a parameter (inputs, outputs) over the last axis: InnerProduct, which keeps it as it is."""
    if weight.tensor.dim() != 2 or weight.tensor.shape[0] != x.shape[-1] or len(x.shape) < 2:
        op.refuse(f"its matrices have shapes {x.shape} and {tuple(weight.tensor.shape)}")
    param: dict[str, Any] = {"num_output": weight.tensor.shape[1], "transpose": True}
    if bias is None:
        param["bias_term"] = False
    if len(x.shape) != 2:
        param["axis"] = len(x.shape) - 1
    blobs = [weight, *([bias] if bias else [])]
    shape: Shape = (*x.shape[:-1], weight.tensor.shape[1])
    return op.layer("InnerProduct", [x], shape, blobs=blobs, inner_product_param=param)


def joined_to_items(op: Operation, values: Sequence[Any], axis: int) -> Value:
    """Add a Concat of blobs and constants; constants beside a batch have to be the same for each of its items."""
    wanted = op.shape
    blobs = (each for each in values if isinstance(each, Value) and not each.pad and not op.made.is_fixed(each))
    source = next(blobs, None)
    parts = []
    for each in values:
        if isinstance(each, Constant) and source is not None:
            if not axis or not torch.equal(each.tensor, each.tensor[:1].expand_as(each.tensor)):
                op.refuse("it joins a batch and a constant, whose values differ from item to item")
            op.shape = tuple(each.tensor.shape)
            each = for_each_item(op, Constant(each.tensor[:1], each.name, each.trained), source)
        parts.append(op.as_blob(each))
    op.shape = wanted
    return joined(op, parts, axis)


def looked_up(op: Operation, table: Constant, rows: torch.Tensor) -> Value:
    """Take rows of a parameter whose numbers are known: Embed, of a Parameter layer that holds them.

    Args:
        op: the operator; its shape is (..., size).
        table: (rows, size).
        rows: whole numbers of any shape.
    """
    count = len(table.tensor)
    if count > MOST_ROWS:
        op.refuse(f"it takes rows of {count}, and float32 counts to {MOST_ROWS}")
    return looked_up_by(op, table, op.parameter(Constant((rows % count).float()), "rows"))


def looked_up_by(op: Operation, table: Constant, rows: Value, part: str = "") -> Value:
    """Take rows of a parameter, (rows, size), by numbers that are a blob: Embed."""
    count, size = table.tensor.shape
    param = {"num_output": size, "input_dim": count, "bias_term": False}
    return op.layer("Embed", [rows], (*rows.shape, size), part=part, blobs=[table], embed_param=param)


def chosen_along(op: Operation, x: Value, axis: int, numbers: torch.Tensor) -> Value:
    """Take values along an axis by numbers that are known: an InnerProduct whose weights are ones and zeros.

    Args:
        op: the operator; its shape has those of the numbers in place of the axis.
        x: the value.
        axis: which.
        numbers: whole numbers of any shape.
    """
    if axis == 0 and not op.made.is_fixed(x) and op.first_is_batch:
        op.refuse("it takes some items of the batch, which no layer does")
    size = x.shape[axis]
    check_size(op, numbers.numel(), size)
    matrix = torch.nn.functional.one_hot(numbers.flatten() % size, size).float()
    y = multiplied(op, x, axis, matrix, "chosen")
    return reshaped(op, y, (*x.shape[:axis], *numbers.shape, *x.shape[axis + 1 :]), "reshape")


def for_each_item(op: Operation, given: Constant | Value, source: Value) -> Value:
    """Give each item of a batch a parameter or constant: a Bias of zeros, which are made of another blob's items.

    Args:
        op: the operator; its shape is that of the result, (N, ...).
        given: of a shape that broadcasts to it, without an axis of items or with one of size 1; a blob that is computed
            of parameters alone.
        source: any blob (N, ...).
    """
    shape = op.shape
    items = (shape[0],)
    if source.shape[1:]:
        source = op.layer("Reduction", [source], items, part="items", reduction_param={"axis": 1})
    y = op.layer("Power", [source], items, part="zeros", power_param={"scale": 0})
    y = reshaped(op, y, (*items, *(1,) * (len(shape) - 1)), "axes")
    y = tiled(op, y, [1, *shape[1:]])
    op.shape = shape
    return with_constant(op, "Bias", y, given) if isinstance(given, Constant) else sum_of(op, y, given)
