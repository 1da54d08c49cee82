"""What is found in the graph that autograd recorded: tensors in a module's output, parameters behind them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn


def find_tensors(output: object) -> Iterator[torch.Tensor]:
    """Return the tensors in what a module returned that have a gradient: in sequences, mappings and dataclasses."""
    if isinstance(output, torch.Tensor):
        if output.requires_grad:
            yield output
    elif isinstance(output, Mapping):
        for value in output.values():
            yield from find_tensors(value)
    elif isinstance(output, list | tuple | set | frozenset):
        for value in output:
            yield from find_tensors(value)
    elif dataclasses.is_dataclass(output) and not isinstance(output, type):
        for field in dataclasses.fields(output):
            yield from find_tensors(getattr(output, field.name))


def accumulator_of(parameter: nn.Parameter) -> Any:
    """Return the node of the graph that adds to a parameter's gradient; it stays the same one while it is kept."""
    with torch.enable_grad():
        node = parameter.view_as(parameter).grad_fn
    assert node is not None
    return node.next_functions[0][0]


def reached(tensors: Iterable[torch.Tensor], accumulators: Mapping[Any, int]) -> set[int]:
    """Return the numbers of the parameters that a backward pass from these tensors reaches.

    Args:
        tensors: results of the module.
        accumulators: the number of each parameter by its `accumulator_of`.
    """
    found: set[int] = set()
    seen: set[Any] = set()
    waiting: list[Any] = []
    for tensor in tensors:
        if tensor.grad_fn is not None:
            waiting.append(tensor.grad_fn)
        elif tensor.requires_grad:
            waiting.append(accumulator_of(tensor))  # type: ignore[arg-type]
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        number = accumulators.get(node)
        if number is not None:
            found.add(number)
        waiting.extend(behind for behind, _ in node.next_functions if behind is not None)
    return found
