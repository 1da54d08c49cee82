"""What ranks compare and copy when a module is wrapped: arguments, its description, and its values from rank 0."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from mgcaffe.comm import Communicator
from mgcaffe.errors import RankDisagreement

_CHUNK_BYTES = 64 * 2**20

Description = list[tuple[str, str]]
"""The name of each parameter and buffer, and what the ranks must agree on of it, in the module's order."""


def describe(module: nn.Module, excluded: frozenset[str]) -> Description:
    """Return what all ranks must agree on of a module: its parameters and buffers that are not excluded."""
    described = [
        (f"parameter '{name}'", f"{_shape(each)}{'' if each.requires_grad else ', frozen'}")
        for name, each in module.named_parameters()
        if name not in excluded
    ]
    buffers = [(f"buffer '{name}'", _shape(each)) for name, each in module.named_buffers() if name not in excluded]
    return described + buffers


def compare_modules(communicator: Communicator, described: Description) -> None:
    """Make sure that all ranks have the same parameters and buffers; a collective call.

    Raises:
        RankDisagreement: on every rank, with the first difference from rank 0 and the rank that has it.
    """
    first, *others = communicator.allgather(described)
    for rank, other in enumerate(others, start=1):
        difference = _first_difference(first, other, rank)
        if difference:
            raise RankDisagreement(
                f"the module on rank {rank} is not that of rank 0: {difference}",
                hint="build the same module on every rank",
            )


def compare_arguments(communicator: Communicator, function: str, arguments: Mapping[str, Any]) -> None:
    """Make sure that a function was called with the same arguments on all ranks; a collective call.

    Args:
        communicator: the ranks.
        function: its name.
        arguments: the values by name, the same names on all ranks.

    Raises:
        RankDisagreement: on every rank, with the first difference from rank 0 and the rank that has it.
    """
    first, *others = communicator.allgather(dict(arguments))
    for rank, other in enumerate(others, start=1):
        for name, value in first.items():
            if other[name] != value:
                raise RankDisagreement(
                    f"{function} was called with {name}={other[name]!r} on rank {rank}, and {value!r} on 0"
                )


def _shape(tensor: torch.Tensor) -> str:
    order = "" if tensor.is_contiguous() else f" with strides {tuple(tensor.stride())}"
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}{order} on {tensor.device.type}"


def _first_difference(first: Description, other: Description, rank: int) -> str:
    for (name, value), (other_name, other_value) in zip(first, other, strict=False):
        if name != other_name:
            return f"{other_name} stands there where rank 0 has {name}"
        if value != other_value:
            return f"{name} is {other_value} there, and {value} on rank 0"
    if len(other) > len(first):
        return f"it has {other[len(first)][0]} besides"
    if len(other) < len(first):
        return f"it lacks {first[len(other)][0]}"
    return ""


def broadcast_tensors(communicator: Communicator, tensors: Sequence[torch.Tensor], root: int = 0) -> None:
    """Overwrite tensors, of any types and on any devices, by those of a rank; a collective call.

    They travel as bytes, many at a time. A tensor's version counter stays as it is: what autograd has kept of it for a
    backward pass may still be used, as with DDP.
    """
    if communicator.size == 1:
        return
    with torch.no_grad():
        for chunk in _chunks([each.data for each in tensors if each.numel()]):
            _broadcast_bytes(communicator, chunk, root)


def _chunks(tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Return tensors of one device at a time, up to 64 MiB, those of large elements first so that all are aligned."""
    chunk: list[torch.Tensor] = []
    size = 0
    for tensor in sorted(tensors, key=lambda each: (str(each.device), -each.element_size())):
        if chunk and (size + tensor.nbytes > _CHUNK_BYTES or tensor.device != chunk[0].device):
            yield chunk
            chunk, size = [], 0
        chunk.append(tensor)
        size += tensor.nbytes
    if chunk:
        yield chunk


def _broadcast_bytes(communicator: Communicator, tensors: Sequence[torch.Tensor], root: int) -> None:
    packed = torch.empty(sum(each.nbytes for each in tensors), dtype=torch.uint8, device=tensors[0].device)
    parts = packed.split([each.nbytes for each in tensors])
    places = [part.view(each.dtype).view(each.shape) for part, each in zip(parts, tensors, strict=True)]
    if communicator.rank == root:
        torch._foreach_copy_(places, list(tensors))
    communicator.broadcast(packed, root)
    if communicator.rank != root:
        torch._foreach_copy_(list(tensors), places)
