"""One node of an exported graph, as the functions of the operator tables see it: arguments, names, refusals, layers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch.fx import Node

from mgcaffe.errors import Location, NetError
from mgcaffe.tools.convert.importing import operation as importing
from mgcaffe.tools.convert.importing.layers_made import LayersMade
from mgcaffe.tools.convert.importing.values import Constant, Result, Shape, Value

CHECKS = {"_assert_tensor_metadata", "_assert_scalar", "_assert_async", "_guards_fn"}
"""Checks that export leaves in a graph; they compute nothing."""
_RESIZING = ("upsample_", "_upsample_", "adaptive_")
"""How the names begin of operators that make an image anew, also where it keeps its size."""
_OF_MANY_OPERATORS = ("MultiheadAttention", "TransformerEncoderLayer", "TransformerDecoderLayer")
"""Modules of PyTorch's own whose layers are called after their operators as well, as those of a user's modules are."""
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_TORCH = Path(torch.__file__).parent


def operator_name(node: Node) -> str:
    """Return the operator's name without namespace, overload and the underscore of those that work in place."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return str(getattr(node.target, "__name__", node.target))
    return str(schema.name).partition("::")[2].rstrip("_")


def works_in_place(node: Node) -> bool:
    """Return whether the operator writes over the values of its first argument."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or schema.name == "aten::detach_":  # which export puts behind each constant in a forward
        return False
    return bool(schema.is_mutable) and str(schema.name).endswith("_")


def is_cast(node: Node) -> bool:
    """Return whether the operator makes other floating-point numbers of such."""
    if operator_name(node) not in ("to", "_to_copy") or not isinstance(node.args[0], Node):
        return False
    return all(each.meta["val"].is_floating_point() for each in (node, node.args[0]))


def holds_whole_numbers(node: Node) -> bool:
    """Return whether a node's value is a tensor of whole numbers of 32 or 64 bits."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in (torch.int32, torch.int64)


def holds_flags(node: Node) -> bool:
    """Return whether a node's value is a tensor of truth values."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype == torch.bool


def is_counted(node: Node) -> bool:
    """Return whether a node's value is whole numbers or flags."""
    return holds_whole_numbers(node) or holds_flags(node)


def is_copy(node: Node) -> bool:
    """Return whether the operator makes the same values, or the same as other numbers, in memory of their own."""
    if operator_name(node) in ("to", "type_as"):
        first: Any = node.args[0]
        return bool(arguments_of(node).get("copy")) or node.meta["val"].dtype != first.meta["val"].dtype
    if operator_name(node) == "contiguous":
        order: Any = node.kwargs.get("memory_format", torch.contiguous_format)
        return not node.all_input_nodes[0].meta["val"].is_contiguous(memory_format=order)
    name = operator_name(node)
    return name in ("clone", "_to_copy", "lift_fresh_copy", "repeat", "tile") or name.startswith(_RESIZING)


def memory_of(node: Node) -> Node:
    """Return the copy, or the input, that a node's value goes back to by first arguments.

    Of two nodes that have become one blob it is another one where one of them is a copy: what writes over that leaves
    the other as it is.
    """
    while node.all_input_nodes and not (node.op == "call_function" and is_copy(node)):
        node = node.all_input_nodes[0]
    return node


def shape_of(node: Node) -> Shape:
    """Return the shape of a node's value in the example."""
    return tuple(int(size) for size in node.meta["val"].shape)


def every_axis(sizes: Any, axes: int) -> list[int]:
    """Return the sizes along so many axes, where one may be given for all."""
    given: list[int] = [sizes] if isinstance(sizes, int) else list(sizes)
    return given * axes if len(given) == 1 else given


def module_path(node: Node) -> tuple[str, bool]:
    """Return the path of the module that a node belongs to, and whether that is one of PyTorch's own."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    if not stack:
        return "", False
    path, kind = stack[-1]
    kind = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
    path = path.replace("L['self']", "").removeprefix(".")
    return path.partition("@")[0], kind.startswith("torch.nn.modules.") and not kind.endswith(_OF_MANY_OPERATORS)


def place_of(node: Node) -> Location | None:
    """Return the line of the user's Python that made a node: the innermost in a `forward` outside of PyTorch."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    for file, line in reversed(frames):
        if not Path(file).is_relative_to(_TORCH):
            return Location(file, int(line), 1)
    return None


def refuse(node: Node, message: str, hint: str | None = None) -> NoReturn:
    """Raise the error that names a node's operator, its module and its line.

    Raises:
        NetError: always.
    """
    path = module_path(node)[0]
    module = f", module '{path}'" if path else ""
    raise NetError(f"{message} (operator {node.target}{module})", location=place_of(node), hint=hint)


class Operation(importing.Operation):
    """One node.

    Args:
        node: the node.
        known: what the nodes before it have become.
        made: takes the layers.

    Attributes:
        name: the operator's, for the layer's name.
        arguments: by name.
        inputs: the nodes before it that it reads.
        replaced: the parameter that the net trains in place of those that the node's value is computed of, where it is.
        shape: of the node's value; () for a list of values.
    """

    def __init__(self, node: Node, known: dict[Node, Result], made: LayersMade) -> None:
        value = node.meta.get("val")
        super().__init__(made, shape_of(node) if isinstance(value, torch.Tensor) else ())
        self.node = node
        self.inputs = node.all_input_nodes
        self.replaced: Constant | None = None
        self._known = known
        self.name = operator_name(node)
        self.arguments = arguments_of(node)

    def __getitem__(self, name: str | int) -> Any:
        """Return an argument, with its default; nodes as what they have become."""
        return self._resolved(self.arguments[name])

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, Node):
            return self._known[value]
        if isinstance(value, (list, tuple)):
            return [self._resolved(each) for each in value]
        return value

    def value_of(self, node: Node) -> Result:
        """Return what a node before this one has become."""
        return self._known[node]

    def readers(self) -> set[Node]:
        """Return the nodes that read the result, or, of one that writes in place, what it writes over."""
        nodes = [self.node]
        if works_in_place(self.node):
            nodes += [each for each, value in self._known.items() if value == self._known[self.inputs[0]]]
        return {user for each in nodes for user in each.users} - {self.node}

    def any_blob(self, items: int) -> Value | None:
        """Return a blob that has so many items, the first that there is; None where there is none."""
        blobs = (each for each in self._known.values() if isinstance(each, Value) and not each.pad)
        return next((each for each in blobs if each.shape[:1] == (items,) and not self.made.is_fixed(each)), None)

    def stands_in(self, node: Any) -> bool:
        """Return whether another node has become a value with finite numbers in the place of infinite ones or NaN."""
        value = self._known.get(node) if isinstance(node, Node) else None
        return isinstance(value, Value) and value.stands_in

    def is_constant(self, node: Node) -> bool:
        """Return whether another node has become a parameter or constant; not if it comes later."""
        return isinstance(self._known.get(node), Constant)

    def blob(self, name: str | None = None, *, padded: bool = False) -> Value:
        """Return an argument, the first unless named, that has to be a blob; zeros around it only if `padded`."""
        return self.as_blob(self[next(iter(self.arguments)) if name is None else name], padded=padded)

    def constant(self, name: str) -> Constant | None:
        """Return an argument that has to be a parameter or buffer, or None where there is none."""
        value = self[name]
        if value is None or isinstance(value, Constant):
            return value
        return self.refuse(f"its {name} is computed in the net; layers have theirs as parameters")

    def refuse(self, message: str, hint: str | None = None) -> NoReturn:
        """Raise the error that names operator, module and line."""
        refuse(self.node, message, hint)

    def layer_name(self, part: str) -> str:
        """Return the module's path, and the operator's name unless the module is one of PyTorch's own."""
        path, is_torchs = module_path(self.node)
        words = [path] if path else []
        if not is_torchs or not path:
            words.append(self.name)
        return ".".join([*words, *([part] if part else [])])


def arguments_of(node: Node) -> dict[Any, Any]:
    """Return a node's arguments by name, with their defaults; by position for what is no operator of PyTorch's."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return dict(enumerate(node.args))
    given = {**dict(zip([each.name for each in schema.arguments], node.args, strict=False)), **node.kwargs}
    for each in schema.arguments:
        if each.name not in given and each.has_default_value():
            given[each.name] = each.default_value
    return given
