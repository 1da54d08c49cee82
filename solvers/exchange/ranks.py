"""What a solver asks of the other ranks beside averaging gradients: sums, means and broadcasts of small values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from mgcaffe.comm import Communicator
from mgcaffe.engine import Net


class Ranks:
    """The ranks that train in step. With one rank every call gives back what it was given.

    Args:
        communicator: used by the thread that trains, and for nothing else.

    Attributes:
        communicator: the same.
    """

    def __init__(self, communicator: Communicator) -> None:
        self.communicator = communicator

    @property
    def rank(self) -> int:
        """The number of this rank."""
        return self.communicator.rank

    @property
    def size(self) -> int:
        """How many ranks there are; fewer where trainers have died (`Communicator.shrink`)."""
        return self.communicator.size

    def sum(self, values: Sequence[float] | np.ndarray) -> np.ndarray:
        """Add up each value over all ranks, in float64."""
        total = np.array(values, dtype=np.float64)
        if self.size > 1 and total.size:
            self.communicator.allreduce(total)
        return total

    def mean(self, values: Sequence[float] | np.ndarray) -> np.ndarray:
        """Average each value over all ranks, in float64."""
        return self.sum(values) / self.size

    def sum_of(self, value: float) -> float:
        """Add up one number over all ranks."""
        return float(self.sum([value])[0])

    def broadcast_from_rank0(self, tensors: Iterable[torch.Tensor]) -> None:
        """Overwrite the tensors of every rank with those of rank 0."""
        if self.size == 1:
            return
        for tensor in tensors:
            if tensor.numel():
                self.communicator.broadcast(tensor)

    def average_statistics(self, net: Net) -> None:
        """Give every rank the mean of the parameters that forward itself changes (BatchNorm's sums).

        The ranks keep the mean. Such sums are linear in what each batch adds, and training does not read
        them, so the mean taken again later is the same, and no weight depends on how often it was taken.
        """
        if self.size == 1:
            return
        for statistics in changed_by_forward(net):
            self.communicator.allreduce(statistics)
            statistics.div_(self.size)


def changed_by_forward(net: Net) -> list[torch.Tensor]:
    """Return the values of the parameters that the forward pass changes: the statistics of BatchNorm and BN layers."""
    return [piece.parameter.data.view(-1) for piece in net.arena.slices if piece.parameter.measured]
