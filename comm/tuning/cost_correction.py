"""Move a measured cost curve to what was seen of all-reduces in training; pure functions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from mgcaffe.comm.planning.cost import AllReduceCost, Cost

_MIN_FACTOR = 0.5
"""The least factor by which a curve is multiplied as a whole: where small all-reduces take longer in training, that is
a delay, and does not make the link faster for large ones."""
_MAX_FACTOR = 2.0
"""The largest such factor where all sizes are of one octave, which does not distinguish a factor from a delay."""
_MAX_RATIO = 4.0
"""The largest ratio, and the inverse of the least, that is applied beyond the sizes that were seen."""


def corrected_cost(cost: Cost, seen: Sequence[tuple[int, float]]) -> Cost:
    """Return a measured curve moved to what was seen.

    First the curve is moved as a whole, by the delay for each all-reduce and the factor that come closest to what was
    seen; then by the ratio that is left, octave by octave, interpolated between octaves. Beyond them the last octave's
    ratio holds, within limits. All-reduces of less than half the smallest size that was seen become slower in the same
    proportion as that half, at most: what delays large ones (ranks that are not level, cores that are busy) need not
    delay each small one by as much.

    Args:
        cost: the curve; a cost of another kind is returned as it is.
        seen: (bytes, seconds) of all-reduces.
    """
    if not seen or not isinstance(cost, AllReduceCost):
        return cost
    sizes, seconds = (numpy.array(values, dtype=float) for values in zip(*seen, strict=True))
    delay, factor = _fit_delay_and_factor(cost.many(sizes), seconds, _octaves(sizes))
    at = numpy.array(sorted({*cost.sizes.tolist(), float(sizes.max())}))
    expected, moved = delay + factor * cost.many(sizes), delay + factor * cost.many(at)
    moved = _interpolated_ratios(at, sizes, seconds, expected) * moved
    moved = _limit_small_sizes(cost, at, moved, sizes.min(keepdims=True) / 2)
    return AllReduceCost(list(zip(at.tolist(), moved.tolist(), strict=True)))


def _octaves(sizes: numpy.ndarray) -> numpy.ndarray:
    """Return the power of two that is nearest to each size."""
    octaves: numpy.ndarray = numpy.round(numpy.log2(sizes)).astype(int)
    return octaves


def _fit_delay_and_factor(
    expected: numpy.ndarray, seconds: numpy.ndarray, octaves: numpy.ndarray
) -> tuple[float, float]:
    """Return (delay, factor) with the least squares of (delay + factor * expected) / seconds - 1.

    The delay is at least 0, the factor at least `_MIN_FACTOR`. Sizes of one octave do not distinguish the two: there
    the factor is at most `_MAX_FACTOR`, and the rest is a delay.
    """
    inverse, share = 1 / seconds, expected / seconds
    if len(set(octaves.tolist())) > 1:
        columns = numpy.stack([inverse, share], axis=1)
        delay, factor = numpy.linalg.lstsq(columns, numpy.ones(len(seconds)), rcond=None)[0]
        if delay >= 0 and factor >= _MIN_FACTOR:
            return float(delay), float(factor)
        factor = _MIN_FACTOR if factor < _MIN_FACTOR else share.sum() / (share**2).sum()
    else:
        factor = min(share.sum() / (share**2).sum(), _MAX_FACTOR)
    factor = max(factor, _MIN_FACTOR)
    delay = (inverse * (1 - factor * share)).sum() / (inverse**2).sum()
    return max(0.0, float(delay)), float(factor)


def _interpolated_ratios(
    at: numpy.ndarray, sizes: numpy.ndarray, seconds: numpy.ndarray, expected: numpy.ndarray
) -> numpy.ndarray:
    """Return, for each size of `at`, the ratio of seen over expected seconds, from those of the octaves around it."""
    octaves = _octaves(sizes)
    places = sorted(set(octaves.tolist()))
    ratios = [seconds[octaves == place].sum() / expected[octaves == place].sum() for place in places]
    ends = numpy.clip([ratios[0], ratios[-1]], 1 / _MAX_RATIO, _MAX_RATIO)
    found: numpy.ndarray = numpy.interp(numpy.log2(at), places, ratios, left=ends[0], right=ends[1])
    return found


def _limit_small_sizes(cost: Cost, at: numpy.ndarray, moved: numpy.ndarray, below: numpy.ndarray) -> numpy.ndarray:
    """Return the moved seconds, below a size (an array of one) slower than before by that size's ratio at most."""
    ratio = numpy.interp(below, at, moved) / cost.many(below)
    limited: numpy.ndarray = numpy.where(at < below, numpy.minimum(moved, ratio * cost.many(at)), moved)
    return limited
