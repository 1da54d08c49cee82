"""What an exported program computes of its parameters, buffers and constants alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from mgcaffe.tools.convert.importing.values import Constant
from mgcaffe.tools.convert.torch_in.operation import operator_name, works_in_place

_OF_A_SHAPE = ("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full")
"""Operators that make constants, and read no more of a tensor than its shape and type."""


def constants_of(program: ExportedProgram) -> dict[str, Constant]:
    """Return the parameters, buffers and other tensors that a program reads, by the names of their placeholders."""
    signature = program.graph_signature
    found = {}
    for placeholder, name in signature.inputs_to_parameters.items():
        tensor = program.state_dict[name]
        found[placeholder] = Constant(tensor, name, isinstance(tensor, torch.nn.Parameter) and tensor.requires_grad)
    for placeholder, name in signature.inputs_to_buffers.items():
        tensor = program.state_dict[name] if name in program.state_dict else program.constants[name]
        found[placeholder] = Constant(tensor, name)
    for placeholder, name in signature.inputs_to_lifted_tensor_constants.items():
        found[placeholder] = Constant(program.constants[name])
    return found


def constant_values(nodes: Iterable[Node], given: Mapping[Node, torch.Tensor]) -> dict[Node, Any]:
    """Return the values of all nodes that depend on these constants, and on shapes, alone, and the constants."""
    computed: dict[Node, Any] = dict(given)
    for node in nodes:
        if node.op != "call_function" or not (_is_repeatable(node) or _writes_over_new(node, computed, given)):
            continue
        known: Callable[[Node], Any] = computed.__getitem__
        if operator_name(node) in _OF_A_SHAPE:
            known = _of_the_shape
        elif not computed.keys() >= set(node.all_input_nodes):
            continue
        arguments = torch.fx.map_arg((node.args, node.kwargs), known)
        function: Any = node.target
        computed[node] = function(*arguments[0], **arguments[1])
    return computed


def _is_repeatable(node: Node) -> bool:
    """Return whether an operator computes the same each time and changes nothing."""
    tags = getattr(node.target, "tags", ())
    return torch.Tag.nondeterministic_seeded not in tags and not works_in_place(node)


def _of_the_shape(node: Node) -> Any:
    value = node.meta["val"]
    return torch.empty(value.shape, dtype=value.dtype) if isinstance(value, torch.Tensor) else value


def _writes_over_new(node: Node, computed: Mapping[Node, Any], given: Mapping[Node, torch.Tensor]) -> bool:
    """Return whether an operator in place writes over a constant that the graph has made, and nothing else read yet."""
    first: Any = node.args[0] if node.args else None
    if not works_in_place(node) or first not in computed:
        return False
    own = _memory(computed[first])
    if any(own == _memory(each) for each in given.values()):
        return False
    same = [each for each, value in computed.items() if isinstance(value, torch.Tensor) and _memory(value) == own]
    return all(user in computed or user >= node for each in same for user in each.users)


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
