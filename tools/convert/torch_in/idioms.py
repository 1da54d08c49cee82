"""Finds layers that are written out as several nodes: LRN across channels (also PyTorch's own) and within them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.fx import Node

from mgcaffe.tools.convert.importing.normalization import neighbours
from mgcaffe.tools.convert.importing.values import Value
from mgcaffe.tools.convert.torch_in.operation import (
    Operation,
    arguments_of,
    every_axis,
    operator_name,
    shape_of,
    works_in_place,
)

_SAME_VALUES = ("view", "reshape", "squeeze", "unsqueeze", "contiguous")


@dataclass
class Idiom:
    """Nodes that are one layer.

    Attributes:
        source: the node whose value they read.
        name: what to call the layer, where no module of PyTorch's names it.
        make: adds the layer.
        nodes: all of them.
        changes: the value is another one than the graph's at its last node, which later ones write over.
    """

    source: Node
    name: str
    make: Callable[[Operation, Value], Value]
    nodes: set[Node] = field(default_factory=set)
    changes: bool = False


def find_idioms(nodes: Sequence[Node]) -> dict[Node, Idiom]:
    """Return all idioms, by their last node.

    Args:
        nodes: of a graph, in their order.
    """
    found = {}
    for node in nodes:
        idiom = _local_response_norm(node)
        if idiom is not None and _closes(idiom, node) and not is_written_over(idiom, nodes, node):
            found[node] = idiom
    return found


def is_written_over(idiom: Idiom, nodes: Sequence[Node], last: Node) -> bool:
    """Return whether a node writes over values before the last one of an idiom, and since the first one."""
    first = min(nodes.index(each) for each in idiom.nodes)
    return any(works_in_place(each) for each in nodes[first : nodes.index(last)])


def _closes(idiom: Idiom, last: Node) -> bool:
    """Find the nodes between source and last one, and return whether nothing else reads what they make."""
    idiom.nodes = {last}
    waiting = [last]
    while waiting:
        for node in waiting.pop().all_input_nodes:
            if node is not idiom.source and node not in idiom.nodes:
                idiom.nodes.add(node)
                waiting.append(node)
    return all(set(node.users) <= idiom.nodes for node in idiom.nodes if node is not last)


def _local_response_norm(last: Node) -> Idiom | None:
    """Match x / (k + alpha mean(x^2))^beta, where the mean is over neighbouring channels or pixels."""
    for x, power in _quotients(last):
        total = _with_number(power[0], "add")
        if total is None:
            continue
        mean, alpha = _with_number(total[0], "mul") or (total[0], 1.0)
        pool, k, beta = _unwrapped(mean), total[1], power[1]
        size = _neighbouring_channels(pool, x)
        if size is not None:
            return Idiom(x, "local_response_norm", _across(size, alpha, beta, k))
        size = _neighbouring_pixels(pool, x)
        if size is not None and k == 1:
            return Idiom(x, "local_response_norm", _within(size, alpha, beta))
    return None


def _across(size: int, alpha: float, beta: float, k: float) -> Callable[[Operation, Value], Value]:
    return lambda op, x: neighbours(op, x, size, alpha=alpha, beta=beta, k=k)


def _within(size: int, alpha: float, beta: float) -> Callable[[Operation, Value], Value]:
    param = {"local_size": size, "alpha": alpha, "beta": beta, "norm_region": "WITHIN_CHANNEL"}
    return lambda op, x: op.layer("LRN", [x], lrn_param=param)


def is_call(node: Any, *names: str) -> bool:
    """Return whether a node calls an operator of one of these names."""
    return isinstance(node, Node) and node.op == "call_function" and operator_name(node) in names


def _quotients(last: Node) -> Iterator[tuple[Node, tuple[Node, float]]]:
    """Give x, and base and exponent of its divisor, of x / base^exponent or x base^-exponent."""
    if not is_call(last, "div", "mul") or len(last.args) != 2 or last.kwargs:
        return
    is_quotient = is_call(last, "div")
    for x, other in (last.args,) if is_quotient else (last.args, last.args[::-1]):
        if isinstance(x, Node) and isinstance(other, Node) and is_call(other, "pow") and len(other.args) == 2:
            base, exponent = other.args
            if isinstance(base, Node) and isinstance(exponent, (int, float)):
                yield x, (base, exponent if is_quotient else -exponent)


def _with_number(node: Any, operator: str) -> tuple[Node, float] | None:
    """Return the other value and the number of a sum or product with one."""
    if not is_call(node, operator) or len(node.args) != 2 or node.kwargs:
        return None
    for one, two in (node.args, node.args[::-1]):
        if isinstance(one, Node) and isinstance(two, (int, float)):
            return one, float(two)
    return None


def _unwrapped(node: Node) -> Node:
    """Return the node whose values another one only has in another shape."""
    while is_call(node, *_SAME_VALUES) and isinstance(node.args[0], Node):
        node = node.args[0]
    return node


def _is_square(node: Node, x: Node) -> bool:
    if is_call(node, "mul"):
        return node.args == (x, x)
    return node.args == (x,) if is_call(node, "square") else is_call(node, "pow") and node.args == (x, 2)


def _neighbouring_channels(pool: Node, x: Node) -> int | None:
    """Return of how many channels a node is the mean of the squares; None where it is not that."""
    windows = _windows(pool, 3)
    if windows is None or windows[0][1:] != [1, 1] or windows[1][1:] != [0, 0] or len(shape_of(x)) != 4:
        return None
    size, front = windows[0][0], windows[1][0]
    behind, inner = front, pool.args[0]
    if is_call(inner, "pad", "constant_pad_nd"):
        given = arguments_of(inner)  # type: ignore[arg-type]
        zeros = list(given["pad"])
        if given.get("mode", "constant") != "constant" or given.get("value") or zeros[:4] != [0] * 4 or len(zeros) != 6:
            return None
        front, behind, inner = front + zeros[4], behind + zeros[5], given["self"]
    if not isinstance(inner, Node) or shape_of(inner) != (shape_of(x)[0], 1, *shape_of(x)[1:]):
        return None
    fits = (front, behind) == (size // 2, (size - 1) // 2) and _is_square(_unwrapped(inner), x)
    return size if fits else None


def _neighbouring_pixels(pool: Node, x: Node) -> int | None:
    """Return the side of the square of pixels that a node is the mean of the squares of; None where it is not that."""
    windows = _windows(pool, 2)
    if windows is None or len(shape_of(x)) != 4 or not isinstance(pool.args[0], Node):
        return None
    size = windows[0][0]
    fits = windows == ([size] * 2, [size // 2] * 2) and size % 2 == 1 and _is_square(pool.args[0], x)
    return size if fits else None


def _windows(pool: Node, axes: int) -> tuple[list[int], list[int]] | None:
    """Return kernel and pad of an average pooling that goes on by one and counts the padding; None of other nodes."""
    if not is_call(pool, f"avg_pool{axes}d"):
        return None
    given = arguments_of(pool)
    kernel, stride, pad = (every_axis(given[name], axes) for name in ("kernel_size", "stride", "padding"))
    usual = stride == [1] * axes and not given["ceil_mode"] and given["divisor_override"] is None
    return (kernel, pad) if usual and (given["count_include_pad"] or not any(pad)) else None
