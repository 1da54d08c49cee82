"""The interface of a sum over the ranks, the settings that choose one, and the plain all-reduce."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy

from mgcaffe.comm.planning.cost import AffineCost
from mgcaffe.comm.transport.communicator import Communicator, Operation, Waiting
from mgcaffe.errors import CommError

TRANSFER_TYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class TransferSettings:
    """How gradients travel, as the user chooses it.

    Attributes:
        type: the type that gradients travel in: `float32` (as they are, whatever the net's type), `float16` or
            `bfloat16`.
        hierarchical: whether ranks of one host first add up among themselves.
        hosts: each rank's host by rank; None: as the ranks say.
        link: the link to emulate, None for the real one alone (`emulation.py`).
        transport: over what they travel (`transports.choose_transport`); empty: the ranks' own.
        divides: whether sums are divided by the number of ranks; False: gradients were, before they came.
    """

    type: str = "float32"
    hierarchical: bool = False
    hosts: tuple[str, ...] | None = None
    link: AffineCost | None = None
    transport: str = ""
    divides: bool = True

    def __post_init__(self) -> None:
        if self.type not in TRANSFER_TYPES:
            raise CommError(
                f"gradients cannot travel as '{self.type}'", hint=f"known types: {', '.join(TRANSFER_TYPES)}"
            )


Started = Callable[[], None]
"""A sum that goes on by itself; returns when it is done, or raises what went wrong."""


class Sum(Protocol):
    """Replaces slices of the gradient buffer by their sums over the ranks.

    Attributes:
        channels: the communicators that it uses.
    """

    channels: list[Communicator]

    def __call__(self, offset: int, part: numpy.ndarray) -> None:
        """Replace `part`, which begins at element `offset` of the buffer, by its sum; equal to the bit on all ranks."""


@runtime_checkable
class StartsAllReduces(Protocol):
    """A communicator whose all-reduces go on by themselves, one after the other."""

    def start_allreduce(self, buffer: numpy.ndarray, op: Operation = "sum") -> Started:
        """Start to reduce the buffer in place over all ranks; return what waits for the end."""


class PlainSum:
    """One all-reduce in the gradients' own type; see `Sum`.

    Attributes:
        starter: starts all-reduces that go on by themselves; None where the communicator cannot.
    """

    def __init__(self, communicator: Communicator) -> None:
        self.channels = [communicator]
        self.starter = communicator if isinstance(communicator, StartsAllReduces) else None

    def __call__(self, offset: int, part: numpy.ndarray) -> None:
        """Let MPI add up."""
        self.channels[0].allreduce(part, "sum")


def set_waiting(summing: Sum, waiting: Waiting) -> None:
    """Have all channels of a sum wait in this way from now on; alike on all ranks."""
    for channel in summing.channels:
        channel.set_waiting(waiting)


def set_busy_polling(summing: Sum, enabled: bool) -> None:
    """Have all channels of a sum poll without a pause, or not: see `Communicator.set_busy_polling`."""
    for channel in summing.channels:
        channel.set_busy_polling(enabled)
