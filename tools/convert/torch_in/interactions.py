"""Finds the dot products of all pairs of vectors, as DLRM writes them: T times T transposed, below the diagonal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch.fx import Node

from mgcaffe.tools.convert.importing.shapes import cut
from mgcaffe.tools.convert.importing.values import Value
from mgcaffe.tools.convert.torch_in.idioms import Idiom, is_call, is_written_over
from mgcaffe.tools.convert.torch_in.operation import Operation, arguments_of, shape_of

_NAME = "dot_interaction"


def find_interactions(nodes: Sequence[Node], constants: Mapping[Node, torch.Tensor]) -> dict[Node, Idiom]:
    """Return all of them, by their last node.

    Args:
        nodes: of a graph, in their order.
        constants: what is known of their values.
    """
    found: dict[Node, Idiom] = {}
    for node in nodes:
        pairs = _pairs(node, constants)
        if pairs is None:
            continue
        vectors, diagonal, inner = pairs
        joining = _behind_the_first(node, vectors)
        if joining is None:
            last, idiom = node, Idiom(vectors, _NAME, partial(_pairs_alone, diagonal=diagonal), {*inner, node})
        else:
            first, last = joining
            alone = {first} if is_call(first, "select") and len(first.users) == 1 else set()
            idiom = Idiom(vectors, _NAME, partial(_layer, diagonal=diagonal), {*inner, node, last, *alone})
        if not is_written_over(idiom, nodes, last):
            found[last] = idiom
    return found


def _layer(op: Operation, vectors: Value, diagonal: bool) -> Value:
    return op.layer("DotInteraction", [vectors], dot_interaction_param={"diagonal": True} if diagonal else {})


def _pairs_alone(op: Operation, vectors: Value, diagonal: bool) -> Value:
    """Add the layer, and cut off the first vector, which stands before the pairs."""
    pairs, size = op.shape, vectors.shape[2]
    op.shape = (pairs[0], size + pairs[1])
    y = _layer(op, vectors, diagonal)
    op.shape = pairs
    return cut(op, y, 1, [size, pairs[1]])[1]


def _pairs(node: Node, constants: Mapping[Node, torch.Tensor]) -> tuple[Node, bool, set[Node]] | None:
    """Match (T T')[:, i, j] of all pairs below the diagonal, or with it, row by row.

    Returns:
        T (N, F, d), whether the diagonal counts, and the nodes between.
    """
    if not is_call(node, "index") or not is_call(node.args[0], "bmm", "matmul"):
        return None
    given: Any = node.args
    product, places = given
    vectors, turned = product.args[:2]
    if not isinstance(vectors, Node) or not isinstance(turned, Node) or not _is_transposed(turned, vectors):
        return None
    if set(product.users) != {node} or set(turned.users) != {product} or len(shape_of(vectors)) != 3:
        return None
    if len(places) != 3 or places[0] is not None or not all(each in constants for each in places[1:]):
        return None
    rows, columns = (constants[each] for each in places[1:])
    count = shape_of(vectors)[1]
    for diagonal in (False, True):
        wanted = torch.tril_indices(count, count, int(diagonal) - 1).to(rows)
        if torch.equal(rows, wanted[0]) and torch.equal(columns, wanted[1]):
            return vectors, diagonal, {product, turned}
    return None


def _is_transposed(node: Node, of: Node) -> bool:
    """Return whether a node is a batch of matrices with their axes exchanged."""
    if node.all_input_nodes != [of]:
        return False
    given: dict[Any, Any] = arguments_of(node)
    if is_call(node, "mT"):
        return True
    if is_call(node, "transpose"):
        return {given["dim0"] % 3, given["dim1"] % 3} == {1, 2}
    return is_call(node, "permute") and [axis % 3 for axis in given["dims"]] == [0, 2, 1]


def _behind_the_first(pairs: Node, vectors: Node) -> tuple[Node, Node] | None:
    """Return the first vector, and what joins it and the pairs; None where nothing does, or more reads the pairs."""
    readers = list(pairs.users)
    if len(readers) != 1 or not is_call(readers[0], "cat", "concat"):
        return None
    given = arguments_of(readers[0])
    parts = list(given["tensors"])
    joins = len(parts) == 2 and parts[1] is pairs and given["dim"] % 2 == 1 and _is_first(parts[0], vectors)
    return (parts[0], readers[0]) if joins else None


def _is_first(one: Node, vectors: Node) -> bool:
    """Return whether a node is the first of the vectors."""
    if is_call(one, "select"):
        given = arguments_of(one)
        return one.args[0] is vectors and given["dim"] % 3 == 1 and given["index"] == 0
    whole: Any = vectors
    if is_call(whole, "view", "reshape"):
        whole = whole.args[0]
    if not is_call(whole, "cat", "concat", "stack") or arguments_of(whole)["dim"] % len(shape_of(whole)) != 1:
        return False
    first = next(iter(arguments_of(whole)["tensors"]))
    if is_call(first, "unsqueeze"):
        first = first.args[0]
    return first is one and shape_of(one) == (shape_of(vectors)[0], shape_of(vectors)[2])
