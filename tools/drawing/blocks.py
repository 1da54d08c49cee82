"""Finds the blocks that a net repeats, so that a picture can fold them: inception modules, residual blocks.

A block is what lies between a fork and the box that joins its branches again, where the net has a second one of the
same make; boxes beside it that bear its name (`fire2/squeeze1x1`) belong to it. What is left is grouped by the part
of names before a slash (`conv4_1/dw`, `loss1/fc`), again where there are two of a make.
"""

from __future__ import annotations

import graphlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mgcaffe.tools.drawing.graph import NetGraph

_SEPARATORS = "/._-"
# Larger regions are stages or halves of a net; to fold them would hide it.
_MOST_BOXES = 40

Signature = tuple[object, ...]


@dataclass(frozen=True)
class Block:
    """Boxes that can be folded into one; no path leaves a block and comes back into it."""

    title: str
    boxes: tuple[int, ...]


def find_blocks(graph: NetGraph) -> list[Block]:
    """Return the blocks of a net, in its order; no box is in two."""
    taken: set[int] = set()
    found = _repeated(graph, _regions(graph), taken)
    for region in found:
        _extend(graph, region, taken)
    found += _repeated(graph, _named_groups(graph, taken), taken)
    found = _foldable_together(graph, sorted(found, key=min))
    stems = [_stem(graph, region) for region in found]
    return [
        Block(stem if stem and stems.count(stem) == 1 else graph.name(max(region)), tuple(sorted(region)))
        for stem, region in zip(stems, found, strict=True)
    ]


def _repeated(graph: NetGraph, regions: Iterable[set[int]], taken: set[int]) -> list[set[int]]:
    """Return the regions of which there are two of a make, the largest first where they overlap."""
    known = [(region, _signature(graph, region)) for region in regions]
    counts = Counter(signature for _, signature in known)
    chosen = []
    for region, signature in sorted(known, key=lambda each: -len(each[0])):
        if counts[signature] > 1 and taken.isdisjoint(region):
            taken |= region
            chosen.append(region)
    return chosen


def _signature(graph: NetGraph, region: set[int]) -> Signature:
    """Return what blocks of one make have in common: types, and which box of the block each one reads."""
    place = {box: number for number, box in enumerate(sorted(region))}
    return tuple(
        (
            tuple(graph.layers[layer].type for layer in graph.boxes[box].layers),
            tuple(place.get(before, -1) for before in graph.before(box)),
        )
        for box in place
    )


def _regions(graph: NetGraph) -> list[set[int]]:
    """Return what lies between each join and the nearest box through which all paths to it lead.

    Data layers are no such box: otherwise a loss, which reads scores and labels, would join the whole net.
    """
    preds = [[box for box in graph.before(index) if graph.boxes[box].inputs] for index in range(len(graph.boxes))]
    dominator = _dominators(preds)
    regions = []
    for join, before in enumerate(preds):
        fork = dominator[join]
        if len(before) < 2 or fork < 0:
            continue
        region: set[int] = set()
        waiting = [join]
        while waiting and len(region) <= _MOST_BOXES:
            box = waiting.pop()
            if box not in region:
                region.add(box)
                waiting += [each for each in preds[box] if each != fork]
        if 2 <= len(region) <= _MOST_BOXES:
            regions.append(region)
    return regions


def _dominators(preds: Sequence[Sequence[int]]) -> list[int]:
    """Return for each box the last one that every path to it passes (-1: none); boxes come after those they read."""
    dominator: list[int] = []
    for before in preds:
        common = before[0] if before else -1
        for other in before[1:]:
            while common != other:
                if common > other:
                    common = dominator[common]
                else:
                    other = dominator[other]
        dominator.append(common)
    return dominator


def _extend(graph: NetGraph, region: set[int], taken: set[int]) -> None:
    """Take neighbours that bear the region's name into it."""
    stem = _stem(graph, region)
    if not stem:
        return
    grown = True
    while grown and len(region) < _MOST_BOXES:
        near = {box for each in region for box in (*graph.before(each), *graph.after(each))} - taken
        fitting = [
            box
            for box in sorted(near)
            if _bears(graph.name(box), stem) and graph.boxes[box].inputs and _is_convex(graph, region | {box})
        ]
        grown = bool(fitting)
        if fitting:
            region.add(fitting[0])
            taken.add(fitting[0])


def _named_groups(graph: NetGraph, taken: set[int]) -> list[set[int]]:
    """Return the boxes that share what stands before the slash in their names, where these can be folded."""
    groups: dict[str, set[int]] = {}
    for box in range(len(graph.boxes)):
        stem, slash, _ = graph.name(box).rpartition("/")
        if slash and box not in taken and graph.boxes[box].inputs:
            groups.setdefault(stem, set()).add(box)
    return [
        group
        for group in groups.values()
        if 2 <= len(group) <= _MOST_BOXES and _is_connected(graph, group) and _is_convex(graph, group)
    ]


def _is_convex(graph: NetGraph, region: set[int]) -> bool:
    """Return whether no path leaves a set of boxes and comes back."""
    last = max(region)
    waiting = [box for each in region for box in graph.after(each) if box not in region]
    seen = set(waiting)
    while waiting:
        for box in graph.after(waiting.pop()):
            if box in region:
                return False
            if box < last and box not in seen:
                seen.add(box)
                waiting.append(box)
    return True


def _foldable_together(graph: NetGraph, regions: Sequence[set[int]]) -> list[set[int]]:
    """Leave out regions that would make a circle of the folded ones before them."""
    kept: list[set[int]] = []
    for region in regions:
        part = {box: -1 - number for number, each in enumerate([*kept, region]) for box in each}
        folded: dict[int, set[int]] = {}
        for box in range(len(graph.boxes)):
            own = part.get(box, box)
            folded.setdefault(own, set()).update({part.get(each, each) for each in graph.before(box)} - {own})
        try:
            graphlib.TopologicalSorter(folded).prepare()
        except graphlib.CycleError:
            continue
        kept.append(region)
    return kept


def _is_connected(graph: NetGraph, region: set[int]) -> bool:
    waiting = [min(region)]
    seen = set(waiting)
    while waiting:
        box = waiting.pop()
        near = {*graph.before(box), *graph.after(box)} & region - seen
        seen |= near
        waiting += near
    return seen == region


def _stem(graph: NetGraph, region: set[int]) -> str:
    """Return the longest beginning that all names of a region have, up to a separator; empty if there is none."""
    names = [graph.name(box) for box in sorted(region)]
    shortest = min(names, key=len)
    ends = [len(shortest), *(match.start() for match in re.finditer(f"[{re.escape(_SEPARATORS)}]", shortest))]
    for end in sorted(ends, reverse=True):
        if end and all(_bears(name, shortest[:end]) for name in names):
            return shortest[:end]
    return ""


def _bears(name: str, stem: str) -> bool:
    return name == stem or (name.startswith(stem) and name[len(stem)] in _SEPARATORS)
