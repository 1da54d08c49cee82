"""What planning needs to know, measured in place: the cost of an all-reduce, and the layers' backward times.

The all-reduce is measured over the real path (`path.py`: staging, MPI, mean, copy back) at powers of two from
1 KiB up to the whole model, on the gradient buffer itself, so that no second one is needed. Noise only adds
time, so of several rounds the least counts, and of each round the median; the slowest rank decides, and all
ranks end with the same numbers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy

from mgcaffe.comm.communicator import Communicator
from mgcaffe.comm.cost import AllReduceCost
from mgcaffe.comm.path import make_path
from mgcaffe.errors import CommError

if TYPE_CHECKING:
    import torch

_LEAST_BYTES = 1024
_SAMPLES = 5


def calibration_sizes(total_bytes: int) -> list[int]:
    """Return the sizes in bytes to measure: 1 KiB, 2 KiB, ... below `total_bytes`, and `total_bytes`."""
    sizes = []
    size = _LEAST_BYTES
    while size < total_bytes:
        sizes.append(size)
        size *= 2
    return [*sizes, total_bytes]


def measure_allreduce(
    communicator: Communicator,
    flat: torch.Tensor | numpy.ndarray,
    *,
    budget_s: float = 1.5,
    rounds: int = 3,
    clock: Callable[[], float] = time.perf_counter,
) -> AllReduceCost:
    """Measure the all-reduce and return the same curve on every rank; a collective call.

    Args:
        communicator: as the reducer uses it (a `duplicate()`), since its way of waiting is part of the cost.
        flat: the gradient buffer; it is zeroed.
        budget_s: the time to spend, in seconds, beyond which no further size or round is begun. The smallest
            size is always measured; sizes that would not fit are left to the curve's linear continuation.
        rounds: how often every size is measured, `_SAMPLES` times each, the first of them not counted.
        clock: the clock to measure with.

    Raises:
        CommError: the buffer is empty, or cannot be reduced.
    """
    if len(flat) == 0:
        raise CommError("an all-reduce of an empty gradient buffer cannot be measured")
    flat[:] = 0
    path = make_path(communicator, flat)
    counts = [max(1, size // path.element_bytes) for size in calibration_sizes(len(flat) * path.element_bytes)]
    best: dict[int, float] = {}
    began = clock()
    for _ in range(rounds):
        for count in counts:
            elapsed = _slowest(communicator, clock() - began)
            expected = _SAMPLES * _expected(best, count)
            if best and elapsed + expected > budget_s:
                break
            times = []
            for _ in range(_SAMPLES):
                token = path.mark()
                start = clock()
                path.reduce(0, count, token)
                times.append(clock() - start)
            median = _slowest(communicator, float(numpy.median(times[1:])))
            best[count] = min(median, best.get(count, median))
    path.finish()
    return AllReduceCost([(count * path.element_bytes, max(best[count], 1e-9)) for count in best])


def _expected(best: dict[int, float], count: int) -> float:
    """Guess the time of `count` elements from what has been measured: at worst proportional to the size."""
    if count in best:
        return best[count]
    if not best:
        return 0.0
    largest = max(best)
    return best[largest] * count / largest


def _slowest(communicator: Communicator, seconds: float) -> float:
    value = numpy.array([seconds])
    communicator.allreduce(value, "max")
    return float(value[0])


def agree_times(communicator: Communicator, times: Sequence[float]) -> list[float]:
    """Return, for every layer, the longest time that any rank measured; a collective call.

    A gradient can be reduced only when the slowest rank has it.

    Raises:
        CommError: the ranks measured different numbers of layers.
    """
    lengths = communicator.allgather(len(times))
    if len(set(lengths)) > 1:
        raise CommError(f"the ranks timed different numbers of layers: {lengths}")
    values = numpy.array(times, dtype=numpy.float64)
    if len(values):
        communicator.allreduce(values, "max")
    return values.tolist()
