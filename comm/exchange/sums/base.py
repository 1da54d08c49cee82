"""The interface of a sum over the ranks, the settings that choose one, and the plain all-reduce."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy

from mgcaffe.comm.planning.cost import AffineCost
from mgcaffe.comm.transport.communicator import Communicator, Waiting
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
    """

    type: str = "float32"
    hierarchical: bool = False
    hosts: tuple[str, ...] | None = None
    link: AffineCost | None = None

    def __post_init__(self) -> None:
        if self.type not in TRANSFER_TYPES:
            raise CommError(
                f"gradients cannot travel as '{self.type}'", hint=f"known types: {', '.join(TRANSFER_TYPES)}"
            )


@dataclass(frozen=True)
class Rounding:
    """What travelling in 16 bits changed, on this rank, in the groups that were sampled.

    Attributes:
        sent_error, sent: the sums of squares of (what was sent - what it stood for) and of the latter.
        returned_error, returned: the same of the sums that came back, over the part that this rank added up.
    """

    sent_error: float = 0.0
    sent: float = 0.0
    returned_error: float = 0.0
    returned: float = 0.0

    def __add__(self, other: Rounding) -> Rounding:
        """Both samples together."""
        return Rounding(
            self.sent_error + other.sent_error,
            self.sent + other.sent,
            self.returned_error + other.returned_error,
            self.returned + other.returned,
        )

    @property
    def relative(self) -> float:
        """The L2 norm of the rounding errors on both ways over that of the values, 0 where there were none."""
        sent = self.sent_error / self.sent if self.sent else 0.0
        returned = self.returned_error / self.returned if self.returned else 0.0
        return float((sent + returned) ** 0.5)


class Sum(Protocol):
    """Replaces slices of the gradient buffer by their sums over the ranks.

    Attributes:
        channels: the communicators that it uses.
    """

    channels: list[Communicator]

    def __call__(self, offset: int, part: numpy.ndarray) -> None:
        """Replace `part`, which begins at element `offset` of the buffer, by its sum; equal to the bit on all ranks."""

    def sample(self, wanted: bool) -> None:
        """Measure rounding errors from now on, or not."""

    def take_rounding(self) -> Rounding | None:
        """Return what was sampled since the last call, None where nothing was."""


class PlainSum:
    """One all-reduce in the gradients' own type; see `Sum`."""

    def __init__(self, communicator: Communicator) -> None:
        self.channels = [communicator]

    def __call__(self, offset: int, part: numpy.ndarray) -> None:
        """Let MPI add up."""
        self.channels[0].allreduce(part, "sum")

    def sample(self, wanted: bool) -> None:
        """Do nothing: nothing is rounded."""

    def take_rounding(self) -> None:
        """Return None."""


def set_waiting(summing: Sum, waiting: Waiting) -> None:
    """Have all channels of a sum wait in this way from now on; alike on all ranks."""
    for channel in summing.channels:
        channel.set_waiting(waiting)


def set_busy_polling(summing: Sum, enabled: bool) -> None:
    """Have all channels of a sum poll without a pause, or not: see `Communicator.set_busy_polling`."""
    for channel in summing.channels:
        channel.set_busy_polling(enabled)
