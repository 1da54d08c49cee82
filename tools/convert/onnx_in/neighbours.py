"""Finds LRN across channels as PyTorch's exporters write it: squares, pooled as images of one more axis, to a power."""

from __future__ import annotations

from mgcaffe.tools.convert.importing.normalization import neighbours
from mgcaffe.tools.convert.importing.values import Value
from mgcaffe.tools.convert.onnx_in.graph import Node
from mgcaffe.tools.convert.onnx_in.operation import Operation
from mgcaffe.tools.convert.onnx_in.search import Idiom, Search


def local_response_norm(search: Search, last: Node) -> Idiom | None:
    """Match x / (k + alpha mean(x^2))^beta, where the mean is over neighbouring channels of (N, C, H, W)."""
    power = search.maker(last.inputs[1], "Pow") if last.operator == "Div" and len(last.inputs) == 2 else None
    beta = None if power is None else search.number(power.inputs[1])
    total = None if power is None else search.terms(power.inputs[0], "Add")
    if total is None or beta is None:
        return None
    mean, alpha = search.terms(total[0], "Mul") or (total[0], 1.0)
    pool = _pool(search, mean)
    found = None if pool is None else _channels(search, pool, last.inputs[0])
    if found is None:
        return None
    size, channels = found

    def make(op: Operation, x: Value) -> Value:
        if channels is not None and x.shape[1:2] != (channels,):
            op.refuse(f"the mean of its squares is not over channels of {x.shape}")
        return neighbours(op, x, size, alpha=alpha, beta=beta, k=total[1])

    return Idiom(last.inputs[0], make)


def _pool(search: Search, name: str) -> Node | None:
    """Return the pooling whose values a value has, without the axis that was added.

    Where the size of that axis is not sure, PyTorch's older exporter writes an If on it. Its branches, a Squeeze and an
    Identity, are not read; the Reshape behind is what counts.
    """
    while True:
        node = search.maker(name, "Reshape") or search.maker(name, "Squeeze")
        if node is None:
            break
        name = node.inputs[0]
    asked = search.maker(name, "If")
    if asked is None:
        return search.maker(name, "AveragePool")
    equal = search.maker(asked.inputs[0], "Equal")
    gathered = None if equal is None else search.maker(equal.inputs[0], "Gather")
    shape = None if gathered is None else search.maker(gathered.inputs[0], "Shape")
    return None if shape is None else search.maker(shape.inputs[0], "AveragePool")


def _channels(search: Search, pool: Node, x: str) -> tuple[int, int | None] | None:
    """Return of how many channels a pooling is the mean of the squares, and of which count where a Reshape names it.

    None: it is not that.
    """
    given = pool.attributes
    size, kernel = 0, given.get("kernel_shape")
    if isinstance(kernel, list) and len(kernel) == 3 and kernel[1:] == [1, 1] and isinstance(kernel[0], int):
        size = kernel[0]
    usual = given.get("pads", [0] * 6) == [0] * 6 and given.get("strides", [1] * 3) == [1] * 3
    if not size or not usual or given.get("ceil_mode", 0) or given.get("auto_pad", b"NOTSET") != b"NOTSET":
        return None
    padded = search.maker(pool.inputs[0], "Pad")
    if padded is None or padded.attributes.get("mode", b"constant") != b"constant":
        return None
    zeros = padded.attributes.get("pads") if search.graph.opset < 11 else _numbers(search, padded, 1)
    if zeros != [0, 0, size // 2, 0, 0, 0, 0, (size - 1) // 2, 0, 0] or any(padded.inputs[2:]):
        return None
    apart = search.maker(padded.inputs[0], "Reshape") or search.maker(padded.inputs[0], "Unsqueeze")
    square = None if apart is None else search.maker(apart.inputs[0], "Mul")
    if apart is None or square is None or list(square.inputs) != [x, x]:
        return None
    where = _numbers(search, apart, 1)
    if apart.operator == "Unsqueeze":
        where = where if search.graph.opset >= 13 else apart.attributes.get("axes")
        return (size, None) if where == [1] else None
    return (size, where[2]) if where is not None and len(where) == 5 and where[1] == 1 else None


def _numbers(search: Search, node: Node, number: int) -> list[int] | None:
    """Return an input that is constant whole numbers; None where it is not."""
    known = search.constants.get(node.inputs[number]) if len(node.inputs) > number else None
    if known is None or known.tensor.is_floating_point():
        return None
    return [int(each) for each in known.tensor.reshape(-1)]
