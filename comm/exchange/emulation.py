"""Emulates a slower network: an all-reduce takes at least a + bM seconds, the rest of which is slept.

It shows on one machine what a schedule does on a link with a large start-up cost. Results are marked as emulated
wherever they are shown: the sums are real, the time is that of a straight line.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from mgcaffe.comm.exchange.gradient_path import HostPath
from mgcaffe.comm.planning.cost import AffineCost
from mgcaffe.errors import CommError, UsageError

if TYPE_CHECKING:
    from mgcaffe.comm.exchange.gradient_path import GradientPath
    from mgcaffe.comm.exchange.sums.base import TransferSettings

_TESTED_S = 3e-4


def parse_link(text: str) -> AffineCost:
    """Read `a=9.08e-4,b=7.40e-10`: seconds, and seconds per byte.

    Raises:
        UsageError: something else.
    """
    try:
        named = dict(part.split("=", 1) for part in text.replace(" ", "").split(","))
        if set(named) != {"a", "b"}:
            raise ValueError
        return AffineCost(float(named["a"]), float(named["b"]))
    except (ValueError, CommError):
        raise UsageError(
            f"the emulated link '{text}' is not understood",
            hint="give seconds, and seconds per byte, neither below 0: a=9.08e-4,b=7.40e-10",
        ) from None


def emulate(path: GradientPath, transfer: TransferSettings) -> GradientPath:
    """Return the path as slow as `transfer.link` says, or as it is where no link is emulated."""
    if transfer.link is None:
        return path
    return EmulatedPath(path, transfer.link, path.element_bytes if transfer.type == "float32" else 2)


class EmulatedPath:
    """A path (`path.GradientPath`) that takes as long as on another link.

    Args:
        path: does the work.
        cost: a + bM of the link.
        sent_bytes: the bytes that travel of each element.
    """

    def __init__(self, path: GradientPath, cost: AffineCost, sent_bytes: int) -> None:
        self._path = path
        self._cost = cost
        self._sent_bytes = sent_bytes
        self.element_bytes = path.element_bytes

    def mark(self, offset: int, count: int) -> Any:
        """Do as the path does on a GPU; in the host's memory one all-reduce takes its time after the other."""
        return None if isinstance(self._path, HostPath) else self._path.mark(offset, count)

    def reduce(self, offset: int, count: int, token: Any) -> None:
        """Reduce the slice, and sleep until a + bM seconds have passed."""
        if token is not None:
            token.synchronize()  # on a GPU the gradients may yet have to be computed
        deadline = time.perf_counter() + self._cost(count * self._sent_bytes)
        self._path.reduce(offset, count, token)
        sleep_until(deadline)

    def finish(self) -> None:
        """Do as the path does."""
        self._path.finish()


def sleep_until(deadline: float) -> None:
    """Return when the clock (`time.perf_counter`) says so: sleep, but test for the last 0.3 ms.

    A sleeping thread wakes up 0.06 ms late, now and then 0.2 ms, which would add up over the groups of an iteration.
    """
    rest = deadline - _TESTED_S - time.perf_counter()
    if rest > 0:
        time.sleep(rest)
    while time.perf_counter() < deadline:
        os.sched_yield()
