"""Finds copies of which parts are written over with zeros before anything reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node

from mgcaffe.tools.convert.importing.arithmetic import with_constant
from mgcaffe.tools.convert.importing.values import Constant, Value
from mgcaffe.tools.convert.torch_in.idioms import Idiom, is_call
from mgcaffe.tools.convert.torch_in.operation import Operation, shape_of
from mgcaffe.tools.convert.torch_in.shapes import PARTS


def find_zeroed(nodes: Sequence[Node], constants: Mapping[Node, torch.Tensor]) -> dict[Node, Idiom]:
    """Return the copies as what they are after the zeros were written: a Scale by ones and zeros (frozen).

    Args:
        nodes: of a graph, in their order.
        constants: the values of nodes that are known.
    """
    found = {}
    for node in nodes:
        source: Any = node.args[0] if is_call(node, "clone") else None
        parts = _parts(node) if isinstance(source, Node) else []
        writing = [each for each in parts if not is_call(each, *PARTS)]
        if not writing or not all(_writes_zeros(each, constants) for each in writing):
            continue
        if any(user < writing[-1] or user.op == "output" for user in node.users if user not in parts):
            continue  # it is read before, or is compared with what PyTorch made at first
        if any(user not in parts for each in parts for user in each.users):
            continue  # a part is read
        found[node] = Idiom(source, "zeroed", _masking(_kept(node, parts)), {node, *parts}, changes=True)
    return found


def _parts(copy: Node) -> list[Node]:
    """Return the parts that are taken of a copy and are written over, and what writes, in their order."""
    parts: list[Node] = []
    waiting = [user for user in copy.users if is_call(user, *PARTS)]
    while waiting:
        part = waiting.pop()
        inner = [user for user in part.users if is_call(user, *PARTS, "zero", "fill")]
        if inner:
            parts += [part, *(user for user in inner if not is_call(user, *PARTS))]
            waiting += [user for user in inner if is_call(user, *PARTS)]
    return sorted(parts)


def _writes_zeros(node: Node, constants: Mapping[Node, torch.Tensor]) -> bool:
    if is_call(node, "zero"):
        return True
    number: Any = node.args[1]
    return bool((constants[number] if isinstance(number, Node) and number in constants else number) == 0)


def _kept(copy: Node, parts: Sequence[Node]) -> torch.Tensor:
    """Return ones, and zeros where such are written."""
    values = {copy: torch.ones(shape_of(copy))}
    for part in parts:
        first, *others = part.args
        function: Any = part.target
        if is_call(part, *PARTS):
            values[part] = function(values[first], *others, **part.kwargs)  # type: ignore[index]
        else:
            values[first].zero_()  # type: ignore[index]
    return values[copy]


def _masking(kept: torch.Tensor) -> Any:
    def make(op: Operation, x: Value) -> Value:
        return with_constant(op, "Scale", x, Constant(kept))

    return make
