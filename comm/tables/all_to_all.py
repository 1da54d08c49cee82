"""Exchange of parts of any lengths between all ranks in step, by MPI's all-to-all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
from numpy.typing import NDArray

from mgcaffe.comm.transport.communicator import Communicator

Array = NDArray[Any]


def all_to_all(communicator: Communicator, parts: Sequence[Array], counts: Sequence[int]) -> list[Array]:
    """Send parts[r] to rank r and return what each rank has sent here, by rank; a collective call.

    Args:
        communicator: the ranks.
        parts: flat, of one type that is the same on all ranks.
        counts: how many elements come from each rank.
    """
    send = numpy.concatenate(parts)
    receive = numpy.empty(sum(counts), send.dtype)
    communicator.alltoallv(send, [part.size for part in parts], receive, counts)
    ends = numpy.cumsum(counts).tolist()
    return [receive[end - count : end] for end, count in zip(ends, counts, strict=True)]
