"""What planning needs to know, measured in place: the cost of an all-reduce, and the layers' backward times.

The all-reduce is measured over the real path (`exchange/gradient_path.py`: staging, MPI, mean, copy back) at powers of
two from 1 KiB up to the whole model, on the gradient buffer itself; `measure_allreduce_costs` puts its values back.
Noise only adds time, so of several rounds the least counts, and of each round the median; the slowest rank decides, and
all ranks end with the same numbers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy

from mgcaffe.comm.exchange.emulation import emulate
from mgcaffe.comm.exchange.gradient_path import make_path
from mgcaffe.comm.exchange.sums.base import TransferSettings
from mgcaffe.comm.exchange.sums.make import make_sum
from mgcaffe.comm.exchange.transports import open_channel, waits_in_one_way
from mgcaffe.comm.planning.cost import AllReduceCost, AllReduceCosts
from mgcaffe.comm.planning.plan import Segment
from mgcaffe.comm.transport.communicator import Communicator, Operation, Waiting
from mgcaffe.errors import CommError

if TYPE_CHECKING:
    import torch

_MIN_BYTES = 1024
_SAMPLES = 5
_WAYS = [(False, False), (False, True), (True, True)]
"""Ways of waiting: by blocking calls, and polling without a pause."""

CALIBRATION_BUDGET_S = 2.4
"""Seconds for which training stands still while the all-reduce is measured."""


def calibration_sizes(total_bytes: int) -> list[int]:
    """Return the sizes in bytes to measure: 1 KiB, 2 KiB, ... below `total_bytes`, and `total_bytes`."""
    sizes = []
    size = _MIN_BYTES
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
    transfer: TransferSettings | None = None,
    segments: Sequence[Segment] = (),
    busy_polling: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> AllReduceCost:
    """Measure the all-reduce and return the same curve on every rank; a collective call.

    Args:
        communicator: as the reducer uses it (a `duplicate()`), since its way of waiting is part of the cost.
        flat: the gradient buffer; it is zeroed.
        budget_s: the time to spend, in seconds, beyond which no further size or round is begun. The smallest
            size is always measured; sizes that would not fit are left to the curve's linear continuation.
        rounds: how often every size is measured, `_SAMPLES` times each, the first of them not counted.
        transfer, segments: how gradients travel, as the reducer is given them (`sums.make.make_sum`).
        busy_polling: whether the calls are tested as when the computing thread waits (`Communicator.set_busy_polling`).
        clock: the clock to measure with.

    Raises:
        CommError: the buffer is empty, or cannot be reduced.
    """
    if len(flat) == 0:
        raise CommError("an all-reduce of an empty gradient buffer cannot be measured")
    flat[:] = 0
    transfer = transfer if transfer is not None else TransferSettings()
    summing = make_sum(communicator, transfer, segments)
    for channel in summing.channels:
        channel.set_busy_polling(busy_polling)
    path = emulate(make_path(communicator, flat, summing, transfer.transport, divides=transfer.divides), transfer)
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
                start = clock()
                token = path.mark(0, count)
                path.reduce(0, count, token)
                times.append(clock() - start)
            median = _slowest(communicator, float(numpy.median(times[1:])))
            best[count] = min(median, best.get(count, median))
    path.finish()
    return AllReduceCost([(count * path.element_bytes, max(best[count], 1e-9)) for count in best])


def measure_allreduce_costs(
    communicator: Communicator,
    flat: torch.Tensor | numpy.ndarray,
    *,
    budget_s: float = CALIBRATION_BUDGET_S,
    transfer: TransferSettings | None = None,
    segments: Sequence[Segment] = (),
) -> AllReduceCosts:
    """Measure the all-reduce in all ways of waiting; arguments as for `measure_allreduce`; a collective call.

    A call that is tested now and then costs 0.1 to 1 ms more than one that is waited for, so that one curve for
    both would predict neither. Over gloo and NCCL there is one way, and one curve. The buffer holds afterwards what it
    held before: a snapshot may still want the gradients.
    """
    kept: Any = flat.copy() if isinstance(flat, numpy.ndarray) else flat.to("cpu", copy=True)
    transport = transfer.transport if transfer is not None else ""
    ways = [(False, False)] if waits_in_one_way(transport, communicator) else _WAYS
    curves = []
    for blocking, busy_polling in ways:
        channel = open_channel(communicator, transport, Waiting(blocking=blocking))
        budget = budget_s / len(ways)
        curve = measure_allreduce(
            channel, flat, budget_s=budget, transfer=transfer, segments=segments, busy_polling=busy_polling
        )  # fmt: skip
        curves.append(curve)
        channel.close()
    flat[:] = kept
    curves *= len(_WAYS) // len(ways)
    largest = max(curves, key=lambda curve: float(curve.sizes[-1]))
    return AllReduceCosts(*(_completed(curve, largest) for curve in curves))


def _completed(curve: AllReduceCost, other: AllReduceCost) -> AllReduceCost:
    """Go on as another curve does where the budget had ended: a burst of other work says nothing of the slope."""
    end = curve.points[-1][0]
    excess = max(0.0, curve(end) - other(end))
    return AllReduceCost([*curve.points, *((size, cost + excess) for size, cost in other.points if size > end)])


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
    return _agree(communicator, times, "max")


def agree_least_times(communicator: Communicator, times: Sequence[float]) -> list[float]:
    """Return the shortest times of any rank: an all-reduce without the waiting for a late peer."""
    return _agree(communicator, times, "min")


def _agree(communicator: Communicator, times: Sequence[float], operation: Operation) -> list[float]:
    values = numpy.array(times, dtype=numpy.float64)
    if len(values):
        communicator.allreduce(values, operation)
    agreed: list[float] = values.tolist()
    return agreed
