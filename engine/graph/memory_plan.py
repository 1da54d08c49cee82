"""What memory a pass takes, step by step: worked out from shapes, and from what layers keep, without running.

Counted are the values and gradients of blobs, and what layers keep besides (masks, places, normalized values; as much
as the first top takes, unless the layer says it). Not counted is what an operator needs while it runs, such as copies
in the memory format of a library, a parameter's gradient before it is added to what the arena holds, the ends of
residual blocks that are made again (`fused_residual.py`, up to three at a time), until backward has come to them, and
with `--winograd` at most 2 MiB of tiles of each convolution's bottom (`Convolution.tiles`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mgcaffe.engine.blob import Blob
from mgcaffe.engine.graph.node import Node


@dataclass(eq=False)
class _Storage:
    """Memory of values: its bytes, and the time after which nothing reads it.

    Times count steps: forward from 0 on, then backward.
    """

    size: int
    until: int


@dataclass(frozen=True)
class StepMemory:
    """What one step (a layer, or several that run as one) needs.

    Attributes:
        layers: the numbers of its layers.
        made: bytes of values that it makes, and keeps for backward besides; none where it works in place or on views.
        freed_after: the number of the layer after which the last of these are freed; None: they stay.
        freed_in_backward: whether that is in the backward pass.
        gradients: bytes of gradients that it makes for its bottoms.
        forward, backward: bytes that are needed while it runs in that direction; 0 where backward doesn't visit it.
    """

    layers: list[int]
    made: int
    freed_after: int | None
    freed_in_backward: bool
    gradients: int
    forward: int
    backward: int


@dataclass(frozen=True)
class MemoryPlan:
    """A pass.

    Attributes:
        steps: in order.
        peak: the most bytes that are needed at a time.
        peak_layer: the number of the layer that runs then.
        peak_in_backward: whether it does so backward.
    """

    steps: list[StepMemory]
    peak: int
    peak_layer: int
    peak_in_backward: bool


def plan_memory(steps: Sequence[Node], item_size: int) -> MemoryPlan:
    """Return the plan of a net that keeps no blobs.

    Args:
        steps: what runs, in order (`Net.steps`).
        item_size: bytes of one number.
    """
    return _Planner(steps, item_size).plan()


class _Planner:
    """Goes through a pass; `_end` is the time after it."""

    def __init__(self, steps: Sequence[Node], item_size: int) -> None:
        self._steps, self._item_size = steps, item_size
        self._end = 2 * len(steps)
        self._storages: list[list[_Storage]] = []  # those that each step makes

    def plan(self) -> MemoryPlan:
        """Return the plan."""
        self._follow_values()
        values = self._alive_values()
        gradients = self._gradients()
        rows = []
        for index, node in enumerate(self._steps):
            own = self._storages[index]
            until = max((storage.until for storage in own), default=index)
            backward = values[self._backward_time(index)] + gradients[index][1] if node.needs_backward else 0
            rows.append(
                StepMemory(
                    layers=list(node.members),
                    made=sum(storage.size for storage in own),
                    freed_after=None if until == self._end else self._layer_at(until),
                    freed_in_backward=len(self._steps) <= until < self._end,
                    gradients=gradients[index][0],
                    forward=values[index],
                    backward=backward,
                )
            )
        moments = [(row.forward, row.layers[0], False) for row in rows]
        moments += [(row.backward, row.layers[0], True) for row in reversed(rows)]
        return MemoryPlan(rows, *max(moments, default=(0, 0, False), key=lambda moment: moment[0]))

    def _backward_time(self, index: int) -> int:
        return self._end - 1 - index

    def _layer_at(self, time: int) -> int:
        """Return the number of the layer that runs at a time: the last of a step forward, its first backward."""
        if time < len(self._steps):
            return self._steps[time].members[-1]
        return self._steps[self._end - 1 - time].members[0]

    def _size(self, blob: Blob) -> int:
        return math.prod(blob.shape) * self._item_size

    # -- values ------------------------------------------------------------------------------------------

    def _follow_values(self) -> None:
        """Find each step's storages, and until when they are read."""
        current: dict[Blob, _Storage] = {}
        for index, node in enumerate(self._steps):
            layer = node.layer
            read = [current[blob] for blob in node.bottoms]
            made: list[_Storage] = []
            shared = self._shared(node, read)
            for number, blob in enumerate(node.tops):
                storage = shared if shared is not None and (number == 0 or layer.tops_share_bottoms) else None
                if storage is None:
                    # What data layers make lies in memory of theirs.
                    storage = _Storage(self._size(blob), index if node.bottoms else self._end)
                    made.append(storage)
                current[blob] = storage
            again = layer.bottoms_made_again if layer.keeps_bottoms else range(len(read))
            kept = [storage for number, storage in enumerate(read) if number not in again]
            kept += [current[blob] for blob in node.tops if layer.keeps_tops]
            if node.needs_backward:
                for storage in kept:
                    storage.until = max(storage.until, self._backward_time(index))
                if layer.keeps_others and (others := self._others(node)):
                    made.append(_Storage(others, self._backward_time(index)))
            for storage in (*read, *(current[blob] for blob in node.tops)):
                storage.until = max(storage.until, index)
            self._storages.append(made)
        dead = {blob for node in self._steps for blob in node.dead}
        for blob, storage in current.items():
            if blob not in dead:
                storage.until = self._end

    def _shared(self, node: Node, read: Sequence[_Storage]) -> _Storage | None:
        """Return the storage of a bottom in which the first top lies."""
        layer = node.layer
        if read and (layer.may_overwrite_bottom or layer.tops_share_bottoms):
            return read[0]
        return None if layer.spare_bottom is None else read[layer.spare_bottom]

    def _others(self, node: Node) -> int:
        """Return the bytes that a layer keeps besides its blobs."""
        said = node.layer.others_bytes([blob.shape for blob in node.tops])
        return self._size(node.tops[0]) if said is None and node.tops else said or 0

    def _alive_values(self) -> list[int]:
        """Return the bytes of the values that are there at each time."""
        changes = [0] * (self._end + 1)
        for index, made in enumerate(self._storages):
            start = index if self._steps[index].bottoms else 0
            for storage in made:
                changes[start] += storage.size
                changes[min(storage.until + 1, self._end)] -= storage.size
        alive, total = [], 0
        for change in changes[:-1]:
            total += change
            alive.append(total)
        return alive

    # -- gradients ---------------------------------------------------------------------------------------

    def _gradients(self) -> list[tuple[int, int]]:
        """Return for each step the bytes of gradients that it makes, and of all that are there when it runs."""
        found = [(0, 0)] * len(self._steps)
        readers: dict[int, int] = {}  # how many blobs' gradients lie in a storage, by its number
        sizes: list[int] = []
        where: dict[Blob, int] = {}
        for index, node in reversed([*enumerate(self._steps)]):
            if not node.needs_backward:
                continue
            taken = [where.pop(blob) for blob in node.tops if blob in where]
            made = 0
            for blob, storage in self._handed_on(node, taken):
                if storage is None:
                    storage = len(sizes)
                    sizes.append(self._size(blob))
                    made += sizes[-1]
                where[blob] = storage
                readers[storage] = readers.get(storage, 0) + 1
            found[index] = made, sum(sizes[storage] for storage, count in readers.items() if count)
            for storage in taken:
                readers[storage] -= 1
        return found

    def _handed_on(self, node: Node, taken: Sequence[int]) -> Iterator[tuple[Blob, int | None]]:
        """Yield the bottoms that get a gradient, with the storage of the top's gradient where it lies in that."""
        storage = taken[0] if taken and node.layer.diffs_share_tops else None
        for blob, wanted in zip(node.bottoms, node.wants, strict=True):
            if wanted:
                yield blob, storage
