"""What an all-reduce of so many bytes costs: a measured curve, or the paper's straight line a + bM.

The straight line is what MG-WFBP assumes (arXiv 1811.11141, section III; 1912.09268). Real networks change
protocol with size: on the authors' 10 GbE cluster of 8 nodes, 12 KiB cost four times as much as 8 KiB, and
one line through everything is 40 % off. So the measured curve is kept, and the line is fitted beside it for
the paper's rule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy

from mgcaffe.errors import CommError, DataError
from mgcaffe.errors.checked_json import Json, json_value, parse_json
from mgcaffe.errors.file_names import shown_name

MAX_BYTES = 2**63
MAX_SECONDS = 1e6
"""What an all-reduce can transfer and take; more makes no sense and would overflow predictions."""


class Cost(Protocol):
    """Seconds for bytes. Non-decreasing; nothing costs nothing."""

    def __call__(self, size: float) -> float:
        """Return the seconds that an all-reduce of `size` bytes takes."""

    def many(self, sizes: numpy.ndarray) -> numpy.ndarray:
        """Return the seconds for a one-dimensional array of sizes in bytes."""

    def affine(self) -> tuple[float, float, float]:
        """Return (a in seconds, b in seconds per byte, R squared) of the straight line a + bM."""

    def to_json(self) -> dict[str, Any]:
        """Return a form that `cost_from_json` reads back."""


class AffineCost:
    """a + b * bytes."""

    def __init__(self, a: float, b: float) -> None:
        if not (0 <= a < math.inf and 0 <= b < math.inf):
            raise CommError(f"an all-reduce cannot cost a + bM with a={a}, b={b}: both must be at least 0")
        self.a = float(a)
        self.b = float(b)

    def __call__(self, size: float) -> float:
        """Return the seconds for `size` bytes."""
        return self.a + self.b * size if size > 0 else 0.0

    def many(self, sizes: numpy.ndarray) -> numpy.ndarray:
        """Return the seconds for a one-dimensional array of sizes in bytes."""
        seconds = self.b * sizes
        seconds += self.a
        seconds[sizes <= 0] = 0.0
        return seconds

    def affine(self) -> tuple[float, float, float]:
        """Return (a, b, 1)."""
        return self.a, self.b, 1.0

    def to_json(self) -> dict[str, Any]:
        """Return {"kind": "affine", "a": seconds, "b": seconds per byte}."""
        return {"kind": "affine", "a": self.a, "b": self.b}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AffineCost) and (self.a, self.b) == (other.a, other.b)

    def __hash__(self) -> int:
        return hash((self.a, self.b))

    def __repr__(self) -> str:
        return f"AffineCost(a={self.a}, b={self.b})"


class AllReduceCost:
    """A piecewise-linear curve through measured points.

    Below the smallest measured size its time is taken; above the largest the curve goes on with the slope of
    its last octave. Noise only ever adds time, so where a larger size was faster than a smaller one, the
    larger one's time counts for both, which makes the curve non-decreasing.

    Args:
        points: (bytes, seconds) pairs, in any order; of a size that occurs twice the least time counts.

    Raises:
        CommError: no points, or sizes or times that are not positive.
    """

    def __init__(self, points: Sequence[tuple[float, float]]) -> None:
        least: dict[float, float] = {}
        for size, seconds in points:
            if not (0 < size <= MAX_BYTES and 0 < seconds <= MAX_SECONDS):
                raise CommError(f"a measured all-reduce of {size} bytes in {seconds} s makes no sense")
            least[float(size)] = min(float(seconds), least.get(float(size), float("inf")))
        if not least:
            raise CommError("a cost curve needs at least one measured all-reduce")
        self.sizes = numpy.array(sorted(least))
        self.measured = numpy.array([least[size] for size in self.sizes])
        self.seconds = numpy.minimum.accumulate(self.measured[::-1])[::-1]

    @property
    def points(self) -> list[tuple[float, float]]:
        """The (bytes, seconds) pairs of the curve, by size."""
        return list(zip(self.sizes.tolist(), self.seconds.tolist(), strict=True))

    def __call__(self, size: float) -> float:
        """Return the seconds for `size` bytes."""
        return float(self.many(numpy.array([size], dtype=float))[0])

    def many(self, sizes: numpy.ndarray) -> numpy.ndarray:
        """Return the seconds for a one-dimensional array of sizes in bytes."""
        seconds: numpy.ndarray = numpy.interp(sizes, self.sizes, self.seconds)
        beyond = sizes > self.sizes[-1]
        seconds[beyond] += self._last_slope() * (sizes[beyond] - self.sizes[-1])
        seconds[sizes <= 0] = 0.0
        return seconds

    def _last_slope(self) -> float:
        # The model's size may lie just above a power of two: two points that near give a slope of noise.
        before = numpy.searchsorted(self.sizes, self.sizes[-1] / 2, side="right") - 1
        if before < 0:
            return float(self.seconds[-1] / self.sizes[-1])
        rise = self.seconds[-1] - self.seconds[before]
        return float(rise / (self.sizes[-1] - self.sizes[before]))

    def affine(self) -> tuple[float, float, float]:
        """Return (a, b, R squared) of the line a + bM through the points, a and b at least 0.

        The logarithms are fitted: sizes span five orders of magnitude; in plain least squares the start-up
        cost a would drown in the scatter of the largest, or, with relative weights, be that of the smallest.
        """
        # With r = a / b the line is b (r + M), so log b is a mean, and r is left to be searched for.
        low, high = numpy.log(self.sizes[0]) - 12, numpy.log(self.sizes[-1]) + 12
        for _ in range(12):
            candidates = numpy.linspace(low, high, 101)
            spread = self._log_residuals(candidates).var(axis=1)
            best = candidates[spread.argmin()]
            step = candidates[1] - candidates[0]
            low, high = best - step, best + step
        b = float(numpy.exp(self._log_residuals(numpy.array([best])).mean()))
        a = float(b * numpy.exp(best))
        residual = float(((self.seconds - a - b * self.sizes) ** 2).sum())
        total = float(((self.seconds - self.seconds.mean()) ** 2).sum())
        return a, b, 1.0 - residual / total if total > 0 else 1.0

    def _log_residuals(self, log_ratios: numpy.ndarray) -> numpy.ndarray:
        """Return log(seconds) - log(r + M), one row for every log(r)."""
        residuals: numpy.ndarray = numpy.log(self.seconds) - numpy.log(numpy.exp(log_ratios)[:, None] + self.sizes)
        return residuals

    def to_json(self) -> dict[str, Any]:
        """Return {"kind": "curve", "points": [[bytes, seconds], ...]}."""
        return {"kind": "curve", "points": [list(point) for point in self.points]}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AllReduceCost) and self.points == other.points

    def __hash__(self) -> int:
        return hash(tuple(self.points))


def line_error(cost: AllReduceCost) -> tuple[float, float, float]:
    """Return how far the fitted line is off: the mean, the worst (both relative), and the bytes of the worst."""
    a, b, _ = cost.affine()
    errors = numpy.abs((a + b * cost.sizes) / cost.seconds - 1)
    return float(errors.mean()), float(errors.max()), float(cost.sizes[errors.argmax()])


def cost_from_json(value: str | Mapping[str, Any]) -> AffineCost | AllReduceCost:
    """Read what `to_json` gave, as text or already parsed.

    Raises:
        CommError: the value is no cost.
    """
    complaint = "not the cost of an all-reduce"
    try:
        return read_cost(
            parse_json(value, "<text>", complaint) if isinstance(value, str) else json_value(value, complaint)
        )
    except DataError as error:
        raise CommError(error.message) from None


def read_cost(value: Json) -> AffineCost | AllReduceCost:
    """Read what `to_json` gave as a part of a document.

    Raises:
        DataError: the value is no cost; located.
    """
    kind = value["kind"].text()
    try:
        if kind == "affine":
            return AffineCost(*(value[name].number(least=0, most=MAX_SECONDS) for name in ("a", "b")))
        if kind == "curve":
            return AllReduceCost([_point(point) for point in value["points"].elements()])
    except CommError as error:
        value.fail(error.message)
    value["kind"].fail(f"unknown kind of all-reduce cost '{shown_name(kind)}'; known are affine and curve")


def _point(point: Json) -> tuple[float, float]:
    if len(point.elements()) != 2:
        point.fail(f"{point.path} should be a size in bytes and a time in seconds")
    size, seconds = point.elements()
    return size.number(), seconds.number()


@dataclass(frozen=True)
class AllReduceCosts:
    """What an all-reduce costs by the way in which the reducer's thread waits (`communicator.Waiting`).

    Attributes:
        polled: tested now and then, as beside the backward pass.
        busy_polled: tested without a pause at first, as when the computing thread itself waits.
        blocking: by MPI's blocking call.
    """

    polled: AllReduceCost
    busy_polled: AllReduceCost
    blocking: AllReduceCost

    def alone(self, blocking: bool) -> AllReduceCost:
        """Return the cost of an all-reduce that the computing thread waits for."""
        return self.blocking if blocking else self.busy_polled

    def beside(self, blocking: bool) -> AllReduceCost:
        """Return the cost of one in the background."""
        return self.blocking if blocking else self.polled
