"""Operators that look up rows of a table by whole numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node

from mgcaffe.tools.convert.importing import products
from mgcaffe.tools.convert.importing.arithmetic import with_constant
from mgcaffe.tools.convert.importing.filters import inner_product
from mgcaffe.tools.convert.importing.shapes import reshaped
from mgcaffe.tools.convert.importing.values import Constant, Result, Value
from mgcaffe.tools.convert.torch_in import shapes
from mgcaffe.tools.convert.torch_in.operation import Operation, arguments_of, operator_name, shape_of

_MODES = ("SUM", "MEAN")


def embedding(op: Operation) -> Value:
    """embedding: Embed; with a row that is not trained (padding_idx), a Scale by zeros for it, from another Embed."""
    table, rows, padding = _table(op), op["indices"], op["padding_idx"]
    if isinstance(rows, Constant):
        y = products.looked_up(op, table, rows.tensor)
        at_padding = (rows.tensor == padding)[..., None]
        if not table.trained or padding == -1 or not at_padding.any():
            return y
        y = with_constant(op, "Scale", y, Constant((~at_padding).float()))
        return with_constant(op, "Bias", y, Constant(at_padding * table.tensor[padding].detach()))
    rows = op.as_blob(rows)
    y = products.looked_up_by(op, table, rows)
    if not table.trained or padding == -1:
        return y
    others = torch.ones(len(table.tensor), 1)
    others[padding] = 0
    mask = products.looked_up_by(op, Constant(others), rows, "others")
    y = op.layer("Scale", [y, reshaped(op, mask, rows.shape, "others_flat")], part="masked", scale_param={"axis": 0})
    row = table.tensor[padding].detach()
    if not row.any():
        return y
    at_row = op.layer("Power", [mask], mask.shape, part="padding", power_param={"scale": -1, "shift": 1})
    values = inner_product(op, at_row, Constant(row[:, None]), None, "padding_row")
    return op.layer("Eltwise", [y, values], part="with_padding")


def embedding_bag(op: Operation) -> Sequence[Value]:
    """embedding_bag: EmbeddingBag, of a sum or mean."""
    table = _table(op)
    if op["mode"] >= len(_MODES):
        op.refuse("it takes the largest values of its bags; EmbeddingBag takes sums and means")
    if op["per_sample_weights"] is not None:
        op.refuse("it multiplies rows by per_sample_weights, which EmbeddingBag does not")
    if op["include_last_offset"]:
        op.refuse("its last offset is the number of ids (include_last_offset), which EmbeddingBag does not read")
    op.shape = tuple(int(size) for size in op.node.meta["val"][0].shape)
    param: dict[str, Any] = {"num_output": table.tensor.shape[1], "input_dim": table.tensor.shape[0]}
    if op["mode"]:
        param["mode"] = _MODES[op["mode"]]
    return [op.layer("EmbeddingBag", _bags(op), blobs=[table], embedding_bag_param=param)]


def _table(op: Operation) -> Constant:
    table = op.constant("weight")
    assert table is not None
    if op["scale_grad_by_freq"]:
        op.refuse("it divides gradients by how often a row is read", "scale_grad_by_freq=False")
    padding = op.arguments.get("padding_idx")
    if padding is not None and padding != -1 and op.name == "embedding_bag":
        op.refuse("it has a row that is left out (padding_idx), which no layer has", "padding_idx=None")
    return table


def _bags(op: Operation) -> list[Value]:
    """Return the ids and where bags begin; of bags of one size, which PyTorch makes of a matrix, the matrix alone."""
    ids, offsets = op.blob("indices"), op["offsets"]
    if isinstance(offsets, Value):
        return [ids, op.as_blob(offsets)]
    count, total = offsets.tensor.numel(), ids.shape[0]
    size = total // max(1, count)
    if not torch.equal(offsets.tensor, torch.arange(0, total, max(1, size)).to(offsets.tensor)):
        op.refuse("its offsets are numbers of the program, and bags of different sizes", "make them an input")
    before = _before(op.node.args[1])
    if before is not None and shape_of(before) == (count, size):
        return [op.as_blob(op.value_of(before))]
    return [reshaped(op, ids, (count, size), "bags")]


def _before(node: object) -> Node | None:
    """Return what a node gives another shape; None where it does something else."""
    if not isinstance(node, Node) or operator_name(node) not in ("view", "reshape", "flatten"):
        return None
    source = node.args[0]
    return source if isinstance(source, Node) else None


def rows_that_learn_elsewhere(nodes: Iterable[Node]) -> list[Node]:
    """Return the look-ups with a row that is not trained by them, of a table that other nodes read too."""
    found = []
    for node in nodes:
        if operator_name(node) == "embedding" and arguments_of(node)["padding_idx"] not in (None, -1):
            table: Any = node.args[0]
            if any(operator_name(user) != "embedding" for user in table.users):
                found.append(node)
    return found


OPERATORS: Mapping[str, Callable[[Operation], Result]] = {"embedding": embedding, "embedding_bag": embedding_bag}

LOOKING_UP = OPERATORS.keys()
"""Operators that read whole numbers for rows of tables."""
MOVING = {*shapes.OPERATORS, "contiguous", "clone", "alias", "detach"}
"""Operators that may be given whole numbers that are not known, if they make such."""
