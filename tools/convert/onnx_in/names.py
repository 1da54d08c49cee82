"""Names of layers: after modules where the file says which node is of which, after weights or nodes else."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from mgcaffe.tools.convert.onnx_in.graph import Graph, Node

_OURS = re.compile(r"(.+):[A-Z]\w*(#\d+)?")
"""`layer:Operator`, as onnx_out names nodes, with a number where there are several."""
_WEIGHT = re.compile(r"(.+)[./](weight|kernel|gamma|W)$")
_GENERATED = re.compile(r"(?i)(node_|n)?(?P<operator>[a-z]*?)_?\d*$")
_LINEAR = {"MatMul", "Add"}
"""What a module of one InnerProduct may be."""
_WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul", "BatchNormalization", "PRelu", "InstanceNormalization")


def layer_names(graph: Graph, nodes: Iterable[Node]) -> dict[int, str]:
    """Return what to call the layers of each of these nodes, by the nodes' numbers.

    In this order: the layer's name that our own exporter gives; that of the weight without `.weight`, if no other node
    reads it; the path of PyTorch's module, with the operator's name where other operators are in that module as well;
    the node's name; operator and number.
    """
    names: dict[int, str] = {}
    paths: dict[int, str] = {}
    for node in nodes:
        name = of_ours(node) or _of_weight(graph, node)
        path = _module_path(node)
        if name is not None:
            names[node.number] = name
        elif path is not None:
            paths[node.number] = path
        else:
            names[node.number] = _of_node(node)
    operators: dict[str, set[str]] = defaultdict(set)
    by_number = {node.number: node for node in graph.nodes}
    for number, path in paths.items():
        operators[path].add(by_number[number].operator)
    holders = {""} | {
        ".".join(words[:count])
        for words in (path.split(".") for path in {*paths.values(), *names.values()})
        for count in range(1, len(words))
    }
    for number, path in paths.items():
        operator = by_number[number].operator.lower()
        alone = path not in holders and (len(operators[path]) == 1 or operators[path] == _LINEAR)
        names[number] = path if alone else ".".join(filter(None, (path, operator)))
    return names


def of_ours(node: Node) -> str | None:
    """Return the name of the layer that our own exporter wrote a node for."""
    found = _OURS.fullmatch(node.name)
    return found[1] if found else None


def are_one_layer(node: Node, other: Node | None) -> bool:
    """Return whether our own exporter wrote both nodes for one layer."""
    return other is not None and of_ours(node) is not None and of_ours(node) == of_ours(other)


def _of_weight(graph: Graph, node: Node) -> str | None:
    """Return the weight's name without its ending, if the node alone reads it."""
    if node.operator not in _WEIGHTED or len(node.inputs) < 2:
        return None
    weight = node.inputs[1]
    found = _WEIGHT.fullmatch(weight)
    return found[1] if found and weight in graph.tensors and len(graph.readers[weight]) == 1 else None


def _module_path(node: Node) -> str | None:
    """Return the path that PyTorch's exporters give, `layer1.0.conv1`; None where the file has none.

    The newer one lists all modules around a node, the older one puts them into its name: `/layer1/layer1.0/conv1/Conv`.
    """
    if node.scopes:
        words = re.findall(r"'([^']*)'", node.scopes)
        return words[-2] if len(words) > 1 else ""
    if not node.name.startswith("/"):
        return None
    words = node.name.split("/")[1:-1]
    return ".".join(
        word.removeprefix(f"{before}.") for before, word in zip(["", *words], words, strict=False)
    )  # fmt: skip


def _of_node(node: Node) -> str:
    found = _GENERATED.fullmatch(node.name)
    if node.name and not (found and found["operator"].lower() in ("", node.operator.lower())):
        return node.name
    return f"{node.operator.lower()}_{node.number}"
