"""Which layers are computed a second time in backward, so that their values need not be kept (`recompute`).

A range of layers is one segment: of what its layers keep for backward, only the values that enter the range stay. Not
all of them have to run again (`_again`): a layer that keeps nothing, or only what is kept anyway, does so only for the
sake of others.

`auto` divides the whole net. Candidates for the borders are its narrow places, where one value alone goes on; of all
divisions it takes one with the lowest peak, and of these the one that keeps the least at its borders. The last segment
does not run again: backward begins with it. (Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016, divide
into equal parts.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from mgcaffe.engine.graph.fused_layer import FusedLayer
from mgcaffe.engine.graph.node import Node
from mgcaffe.engine.graph.segment import Segment
from mgcaffe.errors import NetError

OFF, AUTO = "off", "auto"
_ROUNDS = 20
_GRADIENTS = 4  # of the largest value of a segment, alive at a time in its backward pass: those of a residual block
_HINT = f"give {OFF}, {AUTO} or ranges of layers, FIRST..LAST,FIRST..LAST"


@dataclass(eq=False)
class _Value:
    """A value of a blob.

    Attributes:
        maker: the number of the step that makes it.
        root: the value whose storage this one shares; itself where that is its own.
        readers: the numbers of the steps that read it.
        size: bytes, of a root.
        last: of a root, the last step that reads it under any name.
        held: of a root, whether a segment keeps it.
    """

    maker: int
    size: int
    root: _Value = field(init=False)
    readers: list[int] = field(default_factory=list)
    last: int = -1
    held: bool = False

    def __post_init__(self) -> None:
        self.root = self


@dataclass(frozen=True)
class Recomputation:
    """What is computed again.

    Attributes:
        segments: in the net's order.
        layers: how many layers run again.
        bytes_before, bytes_after: about how much is kept for backward at most, without and with it.
    """

    segments: list[Segment]
    layers: int
    bytes_before: int
    bytes_after: int


class Recomputer:
    """Looks at what the steps of a training net keep for backward.

    Args:
        steps: what runs, in order.
        item_size: bytes of one number.
    """

    def __init__(self, steps: Sequence[Node], item_size: int) -> None:
        self._steps = steps
        self._reads: list[list[_Value]] = []
        self._writes: list[list[_Value]] = []
        current: dict[object, _Value] = {}
        for index, node in enumerate(steps):
            read = [current[blob] for blob in node.bottoms]
            for value in read:
                value.readers.append(index)
                value.root.last = index
            written = [_Value(index, math.prod(blob.shape) * item_size) for blob in node.tops]
            if read and node.layer.tops_share_bottoms:
                for value in written:
                    value.root = read[0].root
            self._reads.append(read)
            self._writes.append(written)
            current.update(zip(node.tops, written, strict=True))
        self._roots = [value for written in self._writes for value in written if value.root is value]
        self._kept: set[_Value] = set()
        self._sizes = self._kept_sizes()

    def make(self, setting: str) -> Recomputation:
        """Return what a setting asks for.

        Args:
            setting: `auto`, or ranges of layers: FIRST..LAST, separated by commas.

        Raises:
            NetError: there are no such layers, ranges overlap, or a layer cannot run a second time.
        """
        ranges = self._divided() if setting == AUTO else self._named(setting)
        segments = self._segments(ranges)
        before = sum(self._sizes)
        layers = sum(len(node.members) for segment in segments for node in segment.steps)
        return Recomputation(segments, layers, before, self._peak(ranges))

    # -- what is kept ------------------------------------------------------------------------------------

    def _kept_sizes(self) -> list[int]:
        """Return the bytes that backward needs of what each step makes; what is kept besides blobs is a guess."""
        sizes = [0] * len(self._steps)
        for index, node in enumerate(self._steps):
            if not node.needs_backward:
                continue
            self._kept.update(value.root for value in self._blobs_kept(index))
            if node.layer.keeps_others:
                sizes[index] += sum(value.size for value in self._writes[index][:1])
        for value in self._kept:
            sizes[value.maker] += value.size
        return sizes

    def _blobs_kept(self, index: int) -> list[_Value]:
        layer = self._steps[index].layer
        return [
            *(self._reads[index] if layer.keeps_bottoms else ()),
            *(self._writes[index] if layer.keeps_tops else ()),
        ]

    def _peak(self, ranges: Sequence[range]) -> int:
        """Return about how many bytes are kept at most where these ranges run again."""
        inside = {index for steps in ranges for index in steps}
        outside = [*accumulate((0 if index in inside else size for index, size in enumerate(self._sizes)), initial=0)]
        entering = [*self._entering()]
        held = peak = 0
        for steps in ranges:
            held += sum(root.size for root in entering[steps.start] if root not in self._kept or root.maker in inside)
            peak = max(peak, outside[steps.stop] + held + sum(self._sizes[steps.start : steps.stop]))
        return max(peak, outside[-1] + held)

    def _entering(self) -> Iterator[list[_Value]]:
        """Yield for each step what it or a later one reads of the steps before; what data layers make is not here."""
        alive: list[_Value] = []
        for index, written in enumerate(self._writes):
            alive = [root for root in alive if root.last >= index]
            yield alive
            if self._steps[index].bottoms:
                alive = alive + [value for value in written if value.root is value]

    # -- ranges ------------------------------------------------------------------------------------------

    def _divided(self) -> list[range]:
        """Return the segments of the whole net that run again."""
        entering = [*self._entering()]
        borders = [index for index, values in enumerate(entering) if len(values) == 1]
        if len(borders) < 2:
            borders = [index for index, values in enumerate(entering) if values]
        borders = [index for index in borders if self._sizes[index:] and any(self._sizes[:index])]
        points = [0, *borders, len(self._steps)]
        widths = [0, *(sum(root.size for root in entering[index]) for index in borders)]
        low = 0
        largest = max((root.size for root in self._roots), default=0)
        high = sum(self._sizes) + max(widths, default=0) + _GRADIENTS * largest
        best = self._cheapest(points, widths, high)
        for _ in range(_ROUNDS):
            middle = (low + high) // 2
            found = self._cheapest(points, widths, middle)
            if found is None:
                low = middle
            else:
                best, high = found, middle
        assert best is not None
        return [range(start, stop) for start, stop in pairwise(best)][:-1]

    def _cheapest(self, points: Sequence[int], widths: Sequence[int], limit: int) -> list[int] | None:
        """Return the borders that keep the least with at most `limit` bytes at any time; None if there are none."""
        sums = [*accumulate(self._sizes, initial=0)]
        largest = [max((value.size for value in written), default=0) for written in self._writes]
        held: list[float] = [0, *[math.inf] * (len(points) - 1)]
        before = [0] * len(points)
        for start in range(len(points) - 1):
            if math.isinf(held[start]):
                continue
            kept, gradient = held[start] + widths[start], 0
            for stop in range(start + 1, len(points)):
                gradient = max([gradient, *largest[points[stop - 1] : points[stop]]])
                if kept + sums[points[stop]] - sums[points[start]] + _GRADIENTS * gradient > limit:
                    break
                if kept < held[stop]:
                    held[stop], before[stop] = kept, start
        if math.isinf(held[-1]):
            return None
        chosen = [len(points) - 1]
        while chosen[-1]:
            chosen.append(before[chosen[-1]])
        return [points[place] for place in reversed(chosen)]

    def _named(self, setting: str) -> list[range]:
        """Return the ranges of steps that a setting names."""
        ranges: list[range] = []
        for text in setting.split(","):
            first, dots, last = (part.strip() for part in text.partition(".."))
            if not (first and dots and last):
                raise NetError(f"recompute: '{text}' is no range of layers", hint=_HINT)
            start, stop = self._step_of(first), self._step_of(last) + 1
            if stop <= start:
                raise NetError(f"recompute: layer '{last}' stands before layer '{first}'", hint=_HINT)
            ranges.append(range(start, stop))
        ranges.sort(key=lambda steps: steps.start)
        for one, other in pairwise(ranges):
            if other.start < one.stop:
                name = self._steps[other.start].layer.name
                raise NetError(
                    f"recompute: the ranges overlap at layer '{name}'", hint="let each layer be in one range"
                )
        for index in (index for steps in ranges for index in steps):
            layer = self._steps[index].layer
            if why := self._why_once(index):
                layer.fail(f"recompute: the layer cannot run a second time: {why}", hint="leave it out of the ranges")
        return ranges

    def _step_of(self, name: str) -> int:
        for index, node in enumerate(self._steps):
            members = node.layer.members if isinstance(node.layer, FusedLayer) else [node.layer]
            if any(layer.name == name for layer in members):
                return index
        raise NetError(f"recompute: the training net has no layer '{name}'", hint=_HINT)

    def _why_once(self, index: int) -> str:
        """Return why a step cannot run a second time; empty: it can."""
        node = self._steps[index]
        return node.layer.only_once or ("" if node.bottoms else "it has no bottom, and makes new values each time")

    # -- segments ----------------------------------------------------------------------------------------

    def _segments(self, ranges: Sequence[range]) -> list[Segment]:
        """Return what runs again of each range, last range first: what it keeps at its border, those before can use."""
        segments = []
        for steps in reversed(ranges):
            again = self._again(steps)
            held = {}
            for index in again:
                numbers = [number for number, value in enumerate(self._reads[index]) if value.maker not in again]
                held[self._steps[index]] = numbers
                for number in numbers:
                    self._reads[index][number].root.held = True
            if again:
                segments.append(Segment([self._steps[index] for index in sorted(again)], held))
        return segments[::-1]

    def _again(self, steps: range) -> set[int]:
        """Return which steps of a range run again."""
        again: set[int] = set()
        for index in reversed(steps):
            is_read = any(reader in again for value in self._writes[index] for reader in value.readers)
            if not self._why_once(index) and (is_read or self._keeps_inner(index, steps)):
                again.add(index)
        return again

    def _keeps_inner(self, index: int, steps: range) -> bool:
        """Return whether backward needs values of a step that nobody else keeps."""
        node = self._steps[index]
        if not node.needs_backward or node.layer.keeps_others:
            return node.needs_backward
        return any(not value.root.held and value.root.maker in steps for value in self._blobs_kept(index))
