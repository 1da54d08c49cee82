"""Operators that multiply matrices, attention among them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Node

from mgcaffe.tools.convert.importing import products
from mgcaffe.tools.convert.importing.arithmetic import sum_of
from mgcaffe.tools.convert.importing.operation import COMPUTES_WITH_WHOLE
from mgcaffe.tools.convert.importing.products import as_mask, causal_mask, matrix_product
from mgcaffe.tools.convert.importing.shapes import reshaped
from mgcaffe.tools.convert.importing.values import Constant, Result, Value
from mgcaffe.tools.convert.torch_in.operation import Operation, arguments_of, holds_flags, is_counted, operator_name


def matmul(op: Operation) -> Value:
    """matmul, mm, bmm: MatMul of two blobs; InnerProduct with a parameter."""
    first, second = (op[name] for name in list(op.arguments)[:2])
    if isinstance(second, Constant):
        return products.transposed_product(op, op.as_blob(first), second)
    if isinstance(first, Constant):
        op.refuse("its first matrix is a parameter or constant; an InnerProduct has it as the second")
    return matrix_product(op, op.as_blob(first), op.as_blob(second))


def product_and_sum(op: Operation) -> Value:
    """addmm, baddbmm: InnerProduct with a bias where both are parameters, else MatMul and Eltwise or Bias."""
    one, two = (op[name] for name in list(op.arguments)[1:3])
    added, beta, alpha = op["self"], op["beta"], op["alpha"]
    if alpha != 1 or beta not in (0, 1):
        op.refuse(f"its factors alpha and beta are {alpha} and {beta}, which no layer has")
    is_bias = isinstance(added, Constant) and added.tensor.dim() == 1
    if isinstance(two, Constant) and is_bias and beta:
        return products.transposed_product(op, op.as_blob(one), two, added)
    if isinstance(two, Constant):
        y = products.transposed_product(op, op.as_blob(one), two)
    else:
        y = matrix_product(op, op.as_blob(one), op.as_blob(two), part="product")
    return sum_of(op, y, added) if beta else y


def attention(op: Operation) -> Value:
    """scaled_dot_product_attention: Power, MatMul, Softmax, MatMul; Bias or Eltwise for a mask."""
    query, key, value = (op.blob(name) for name in ("query", "key", "value"))
    if op["dropout_p"]:
        op.refuse("it drops values at random in evaluation too", "dropout_p=0.0 unless self.training")
    if op["enable_gqa"]:
        op.refuse("several of its queries share a key (enable_gqa), which MatMul does not")
    mask, flags = op["attn_mask"], None
    if isinstance(mask, Value) and holds_flags(op.arguments["attn_mask"]):
        mask, flags = None, op.as_blob(mask)
    if op["is_causal"]:
        mask = causal_mask(query.shape[-2], key.shape[-2])
    elif isinstance(mask, Constant):
        mask = as_mask(mask)
    return products.attention(
        op, query, key, value, scale=scale_of(op["scale"], query.shape[-1]), mask=mask, flags=flags
    )


def scale_of(given: float | None, size: int) -> float:
    """Return what attention multiplies products of vectors of that size by."""
    return 1 / math.sqrt(size) if given is None else given


def einsum(op: Operation) -> Value:
    """einsum of two blobs: MatMul, between Permutes and Reshapes."""
    return products.einsum(op, [op.as_blob(each) for each in op["tensors"]], op["equation"])


def masked_fill(op: Operation) -> Value:
    """masked_fill: Bias, behind a Scale unless the number is infinite."""
    mask, number = op["mask"], op["value"]
    number = number.tensor if isinstance(number, Constant) and not number.trained else number
    if isinstance(number, (Constant, Value)):
        op.refuse("its number is computed in the net, or learned")
    number, source = float(number), op.arguments["self"]
    _check_overwritten(op, [number], [source])
    if isinstance(mask, Constant):
        return _marked(op, products.filled(op, op.blob(), mask.tensor, number), [source])
    hides = number == -math.inf and _are_overwritten(op, op.readers())
    y = products.filled_by(op, op.blob(), op.as_blob(mask), number, for_softmax=hides)
    return replace(y, stands_in=True) if hides else _marked(op, y, [source])


def _numbers_filled(op: Operation, node: Node) -> list[float]:
    """Return the numbers of a fill or a choice; none of other operators."""
    if operator_name(node) not in ("masked_fill", "where"):
        return []
    given = [arguments_of(node).get(name) for name in ("self", "other", "value")]
    known = [op.value_of(each) if isinstance(each, Node) and op.is_constant(each) else each for each in given]
    tensors = [each.tensor for each in known if isinstance(each, Constant) and each.tensor.numel() == 1]
    return [float(each) for each in known if isinstance(each, (int, float))] + [float(each) for each in tensors]


def _is_infinite_fill(op: Operation, node: Node) -> bool:
    return any(map(math.isinf, _numbers_filled(op, node)))


def _are_overwritten(op: Operation, readers: Iterable[Node]) -> bool:
    """Return whether a softmax alone reads a fill, or another one in between, and what it makes is overwritten."""
    for each in readers:
        if operator_name(each) == "softmax":
            if not _are_filled(op, each.users):
                return False
        elif not _is_infinite_fill(op, each) or not _are_overwritten(op, each.users):
            return False
    return True


def _are_filled(op: Operation, readers: Iterable[Node]) -> bool:
    """Return whether nothing reads a value but what puts finite numbers over it, a dropout in between or not."""
    return all(
        _are_filled(op, each.users)
        if operator_name(each) == "dropout"
        else _numbers_filled(op, each) and not _is_infinite_fill(op, each)
        for each in readers
    )


def _marked(op: Operation, y: Value, sources: Iterable[Any]) -> Value:
    """Return a value, marked if it is made of one that finite numbers stand in for, and others are put over it yet."""
    if not any(map(op.stands_in, sources)):
        return y
    readers = op.readers()
    overwritten = _is_infinite_fill(op, op.node) or (bool(readers) and _are_filled(op, readers))
    return replace(y, stands_in=True) if overwritten else y


def _check_overwritten(op: Operation, numbers: Iterable[float], sources: Iterable[Any]) -> None:
    """Refuse to put finite numbers over what may be infinite or NaN, which products with zeros leave as it is."""
    if any(map(math.isinf, numbers)):
        return
    left = [(each, False) for each in sources if isinstance(each, Node)]
    seen = set()
    while left:
        node, is_weight = each = left.pop()
        if each in seen or op.is_constant(node):
            continue
        seen.add(each)
        if _is_infinite_fill(op, node) and not op.stands_in(node):
            given = arguments_of(node)
            mask: Any = given.get("mask", given.get("condition"))
            if not is_weight or not op.is_constant(mask):
                op.refuse(
                    "it overwrites what is computed of a fill with an infinite number, and where that is infinite or "
                    "NaN, no product with zeros makes it finite",
                    "fill with a finite number: masked_fill(mask, -1e30)",
                )
        is_weight = is_weight or operator_name(node) == "softmax"
        left += [(before, is_weight) for before in node.all_input_nodes]


def where(op: Operation) -> Value:
    """where between a blob and a number: as masked_fill; between two numbers, by flags that are computed, Power."""
    condition = op["condition"]
    one, two = (
        Constant(torch.tensor(float(each))) if isinstance(each, (int, float)) else each
        for each in (op["self"], op["other"])
    )
    if any(isinstance(each, Constant) and each.trained for each in (one, two)):
        op.refuse("it chooses between values and a learned parameter")
    numbers, sources = _numbers_filled(op, op.node), [op.arguments["self"], op.arguments["other"]]
    _check_overwritten(op, numbers, sources)
    if not isinstance(condition, Value):
        return _marked(op, products.chosen(op, condition, one, two), sources)
    hides = -math.inf in numbers and _are_overwritten(op, op.readers())
    y = products.chosen_by(op, op.as_blob(condition), one, two, for_softmax=hides)
    return replace(y, stands_in=True) if hides else _marked(op, y, sources)


def _rank(value: Value | Constant) -> int:
    return len(value.shape) if isinstance(value, Value) else value.tensor.dim()


def _keeps_all(op: Operation) -> bool:
    """Return whether an index takes each value of a blob once, in its order, as those of masks for attention do."""
    x, given = op["self"], op.arguments.get("indices")
    if not isinstance(x, Value) or given is None or math.prod(x.shape) != math.prod(op.shape):
        return False
    numbers: list[Any] = [op.value_of(each) if isinstance(each, Node) else slice(None) for each in given]
    if any(isinstance(each, Value) for each in numbers):
        return False
    places = torch.arange(math.prod(x.shape)).view(x.shape)
    taken = places[tuple(each.tensor if isinstance(each, Constant) else each for each in numbers)]
    return torch.equal(taken.flatten(), places.flatten())


def index(op: Operation) -> Value:
    """index, index_select with numbers that are known: Embed of a parameter's rows, else InnerProduct."""
    if _keeps_all(op):
        return reshaped(op, op.blob(), op.shape)
    if is_counted(op.inputs[0]) and isinstance(op["self"], Value):
        op.refuse(COMPUTES_WITH_WHOLE)
    given = op["indices"] if "indices" in op.arguments else [None] * (op["dim"] % _rank(op["self"])) + [op["index"]]
    found = [(axis, each) for axis, each in enumerate(given) if isinstance(each, Constant)]
    axes = [axis for axis, _ in found]
    if axes != list(range(axes[0], axes[0] + len(axes))):
        op.refuse("it takes values along axes that are not neighbours")
    value: Result = op["self"]
    if isinstance(value, Constant) and value.tensor.dim() == 2 and axes == [0]:
        return products.looked_up(op, value, found[0][1].tensor)
    x = op.blob()
    numbers = torch.zeros((), dtype=torch.int64)
    for axis, each in found:
        numbers = numbers * x.shape[axis] + each.tensor.long() % x.shape[axis]
    if axes[1:]:
        first, last = axes[0], axes[-1] + 1
        x = reshaped(op, x, (*x.shape[:first], math.prod(x.shape[first:last]), *x.shape[last:]), "pairs")
    return products.chosen_along(op, x, axes[0], numbers)


OPERATORS: Mapping[str, Callable[[Operation], Result]] = {
    "matmul": matmul,
    "mm": matmul,
    "bmm": matmul,
    "addmm": product_and_sum,
    "baddbmm": product_and_sum,
    "scaled_dot_product_attention": attention,
    "einsum": einsum,
    "index": index,
    "index_select": index,
    "masked_fill": masked_fill,
    "where": where,
}
