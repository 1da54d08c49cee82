"""Operators that multiply matrices of two values, and those that attention is written with."""

from __future__ import annotations

import math

from mgcaffe.tools.convert.importing import products
from mgcaffe.tools.convert.importing.products import as_mask, causal_mask
from mgcaffe.tools.convert.importing.shapes import permuted, reshaped
from mgcaffe.tools.convert.importing.values import Constant, Value
from mgcaffe.tools.convert.onnx_in.operation import Operation, Table, shape_of


def einsum(op: Operation) -> Value:
    """MatMul of two values, between Permutes and Reshapes."""
    operands = [op.blob(number) for number in range(len(op.inputs))]
    return products.einsum(op, operands, op.word("equation", ""))


def where(op: Operation) -> Value:
    """Between a value and a number, where the condition is known: Bias, behind a Scale for a number that is finite."""
    condition, one, two = (op.input(number) for number in range(3))
    if not isinstance(condition, Constant):
        op.refuse("its condition is computed in the net")
    op.shape = op.broadcast(*(shape_of(each) for each in (condition, one, two) if each is not None))
    return products.chosen(op, condition, one, two)


def attention(op: Operation) -> Value:
    """Power, MatMul, Softmax, MatMul; Bias or Eltwise for a mask; of three axes between Reshapes and Permutes."""
    query, key, value = (
        _heads(op, op.blob(number), name, f"{part}_num_heads")
        for number, (name, part) in enumerate((("query", "q"), ("key", "kv"), ("value", "kv")))
    )
    if query.shape[:2] != key.shape[:2] or key.shape[:3] != value.shape[:3] or query.shape[3] != key.shape[3]:
        op.refuse(
            f"its queries, keys and values are {query.shape}, {key.shape} and {value.shape}; MatMul repeats no heads"
        )
    if any(op.input(number) is not None for number in (4, 5, 6)):
        op.refuse("it goes on from keys and values of a call before (past_key, past_value), or counts them")
    if any(name in op.graph.readers or name in op.graph.outputs for name in op.node.outputs[1:] if name):
        op.refuse("it gives keys, values or products as well, which no layer makes")
    if op.real("softcap", 0.0):
        op.refuse("it limits its products (softcap), which no layer does")
    if any(op.integer(f"{side}_window_size", -1) != -1 for side in ("left", "right")):
        op.refuse("it looks at a window of its keys alone", "give the window as its mask")
    mask = op.input(3)
    if isinstance(mask, Constant):
        mask = as_mask(mask)
    if op.integer("is_causal", 0):
        if mask is not None:
            op.refuse("it is causal and has a mask as well", "give the sum of both as its mask")
        op.check_shape((query.shape[2], key.shape[2]))
        mask = causal_mask(query.shape[2], key.shape[2])
    scale = op.real("scale", 1 / math.sqrt(query.shape[3]))
    y = products.attention(op, query, key, value, scale=scale, mask=mask)
    if len(op.blob().shape) == 4:
        return y
    y = permuted(op, y, (0, 2, 1, 3), "heads_last")
    return reshaped(op, y, (*y.shape[:2], y.shape[2] * y.shape[3]))


def _heads(op: Operation, x: Value, name: str, attribute: str) -> Value:
    """Return (N, heads, T, size) of that or of (N, T, heads size)."""
    if len(x.shape) == 4:
        return x
    heads = op.integer(attribute, 0)
    if len(x.shape) != 3 or heads < 1 or x.shape[2] % heads:
        op.refuse(f"its {name} has shape {x.shape}, for {heads} heads")
    apart = reshaped(op, x, (*x.shape[:2], heads, x.shape[2] // heads), f"{name}_apart")
    return permuted(op, apart, (0, 2, 1, 3), f"{name}_heads")


OPERATORS: Table = {
    "Einsum": einsum,
    "Attention": attention,
    "Where": where,
}
