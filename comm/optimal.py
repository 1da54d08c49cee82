"""The merging of layers whose communication ends first, found exactly by dynamic programming.

Let R_k be when layer k's gradient is ready and T(M) the cost of M bytes. With f(k) the earliest end of the
communication of layers k..L-1 if a group ends at layer k,

    f(L) = 0,    f(k) = min over j >= k of  max(R_k, f(j + 1)) + T(bytes of k..j),

because all that matters about the groups above is when they leave the channel free. The paper's rule compares
one wait with one start-up at a time and misses this optimum in more than a third of small random cases.

Among plans that end within 1e-9 of the optimum the one with the fewest groups is wanted: fewer launches, less
to go wrong. Minimising (end, groups) lexicographically misses it, since a *part* that ends later may still be
in time. So:

1. f as above, which gives the best end.
2. Deadlines from below: D(k) is the latest end of the layers k..L-1 from which the layers below k can still
   end in time. D(0) = best + 1e-9; a group k..j that must end by D(k) may start at D(k) - T, if that is not
   before R_k.
3. From above again, keeping for every k all pairs (groups, end) that no other pair beats in both. Ends after
   D(k) are dropped; ends before R_(k-1) count as R_(k-1), since nothing below can start sooner. That leaves
   few pairs.
"""

from __future__ import annotations

import numpy

from mgcaffe.comm.cost import Cost

_TOLERANCE = 1e-9


def optimal_ranges(sizes: numpy.ndarray, ready: numpy.ndarray, cost: Cost) -> list[tuple[int, int]]:
    """Return (first, last) of every group from the highest layers down; O(L^2) for L layers.

    Args:
        sizes: bytes by layer, all positive.
        ready: when each layer's gradient is ready, by layer, falling.
        cost: any non-decreasing cost.
    """
    costs = _cost_table(sizes, cost)
    best = _earliest_end(costs, ready)
    limit = best + _TOLERANCE * max(1.0, best)
    return _fewest_groups(costs, ready, _deadlines(costs, ready, limit))


def _cost_table(sizes: numpy.ndarray, cost: Cost) -> list[numpy.ndarray]:
    """Return, for every layer k, the costs of the groups k..k, k..k+1, ..., k..L-1."""
    count = len(sizes)
    sums = numpy.concatenate([[0.0], numpy.cumsum(sizes)])
    lengths = numpy.arange(count, 0, -1)
    flat = cost.many(numpy.concatenate([sums[k + 1 :] - sums[k] for k in range(count)]))
    return numpy.split(flat, numpy.cumsum(lengths)[:-1])


def _earliest_end(costs: list[numpy.ndarray], ready: numpy.ndarray) -> float:
    count = len(ready)
    ends = numpy.zeros(count + 1)
    for k in range(count - 1, -1, -1):
        ends[k] = (numpy.maximum(ready[k], ends[k + 1 :]) + costs[k]).min()
    return float(ends[0])


def _deadlines(costs: list[numpy.ndarray], ready: numpy.ndarray, limit: float) -> numpy.ndarray:
    """Return D(k) for k = 0..L; minus infinity where no plan has a group that begins above k in time."""
    count = len(ready)
    deadlines = numpy.full(count + 1, -numpy.inf)
    deadlines[0] = limit
    for k in range(count):
        starts = deadlines[k] - costs[k]
        possible = numpy.where(starts >= ready[k], starts, -numpy.inf)
        numpy.maximum(deadlines[k + 1 :], possible, out=deadlines[k + 1 :])
    return deadlines


class _Parts:
    """The kept ways to communicate the layers k..L-1, as columns: k, the groups, the end, and a number.

    `history` tells for every number (k, the number of the part above), from which the groups are read back.
    """

    def __init__(self, layers: int) -> None:
        self._columns = [
            numpy.zeros(256, dtype=kind) for kind in (numpy.int64, numpy.int64, float, numpy.int64)
        ]
        self._filled = 0
        self.history: list[tuple[int, int]] = []
        self.add(layers, 0, 0.0, -1)

    def columns(self) -> list[numpy.ndarray]:
        """Return the layers, groups, ends and numbers of all kept parts."""
        return [column[: self._filled] for column in self._columns]

    def keep(self, rows: numpy.ndarray) -> None:
        for column in self._columns:
            column[: len(rows)] = column[rows]
        self._filled = len(rows)

    def add(self, layer: int, groups: int, end: float, parent: int) -> None:
        if self._filled == len(self._columns[0]):
            self._columns = [
                numpy.concatenate([column, numpy.zeros_like(column)]) for column in self._columns
            ]
        for column, value in zip(self._columns, (layer, groups, end, len(self.history)), strict=True):
            column[self._filled] = value
        self._filled += 1
        self.history.append((layer, parent))


def _fewest_groups(
    costs: list[numpy.ndarray], ready: numpy.ndarray, deadlines: numpy.ndarray
) -> list[tuple[int, int]]:
    count = len(ready)
    # Sums in different orders differ in their last bits; such differences are no reason to keep a part.
    margin = 1e-4 * _TOLERANCE * max(1.0, deadlines[0])
    parts = _Parts(count)
    for k in range(count - 1, -1, -1):
        _drop_overtaken(parts, ready[k])
        if deadlines[k] == -numpy.inf:
            continue
        layers, groups, ends, numbers = parts.columns()
        ends = numpy.maximum(ends, ready[k])
        ends += costs[k][layers - (k + 1)]
        in_time = (ends <= deadlines[k]).nonzero()[0]
        ends, groups = ends[in_time], groups[in_time]
        if k > 0:
            numpy.maximum(ends, ready[k - 1], out=ends)
        for row in _undominated(ends, groups, margin):
            parts.add(k, groups[row] + 1, ends[row], int(numbers[in_time[row]]))
    layers, groups, ends, numbers = parts.columns()
    final = (layers == 0).nonzero()[0]
    fewest = final[numpy.lexsort((ends[final], groups[final]))[0]]
    return _read_back(parts.history, int(numbers[fewest]))


def _drop_overtaken(parts: _Parts, ready: float) -> None:
    """Drop parts that ended before `ready` if another such part has no more groups and reaches further down.

    Whatever follows starts at `ready` or later, so among these only groups and reach matter.
    """
    layers, groups, ends, _ = parts.columns()
    over = (ends <= ready).nonzero()[0]
    if len(over) > 32:
        best = over[_undominated(layers[over], groups[over], 0.0)]
        parts.keep(numpy.concatenate([best, (ends > ready).nonzero()[0]]))


def _undominated(values: numpy.ndarray, groups: numpy.ndarray, margin: float) -> list[int]:
    """Return one row for each number of groups whose least value is less than with fewer groups."""
    if not len(values):
        return []
    fewest = (groups == numpy.minimum.reduce(groups)).nonzero()[0]
    row = int(fewest[values[fewest].argmin()])
    if numpy.minimum.reduce(values) >= values[row] - margin:
        return [row]
    least = numpy.full(int(groups.max()) + 2, numpy.inf)
    numpy.minimum.at(least[1:], groups, values)
    improving = least[1:] < numpy.minimum.accumulate(least)[:-1] - margin
    rows = (improving[groups] & (values == least[1:][groups])).nonzero()[0]
    return list(dict(zip(groups[rows].tolist(), rows.tolist(), strict=True)).values())


def _read_back(history: list[tuple[int, int]], number: int) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    layer, parent = history[number]
    while parent >= 0:
        above, grandparent = history[parent]
        ranges.append((layer, above - 1))
        layer, parent = above, grandparent
    return ranges[::-1]
