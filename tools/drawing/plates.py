"""A picture or a part of one as a plate: nodes with their labels, and the pieces of wires, in pixels.

Positions are from the upper left corner of the plate that something lies on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mgcaffe.tools.drawing.layering.layout import Layout


@dataclass
class Rect:
    """A rectangle by its upper left corner and its size."""

    x: float
    y: float
    width: float
    height: float

    def moved(self, x: float, y: float) -> Rect:
        """Return the same rectangle elsewhere."""
        return Rect(self.x + x, self.y + y, self.width, self.height)

    def turned(self, across: bool, size: float) -> Rect:
        """Return it mirrored in a plate of this size: from left to right if `across`, else from top to bottom."""
        if across:
            return Rect(size - self.x - self.width, self.y, self.width, self.height)
        return Rect(self.x, size - self.y - self.height, self.width, self.height)


@dataclass
class Label:
    """A blob's shape beside the box that makes it."""

    wire: int
    text: str
    rect: Rect


@dataclass
class Node:
    """A box or a block on a plate.

    Attributes:
        box: the number of the box, or -1.
        block: the number of the block, or -1.
        rect: everything that belongs to it, its labels included.
        body: the box itself.
        labels: those of its blobs.
        ports: by wire, where it enters or leaves an open block: pixels from the middle, across the wires.
    """

    box: int
    block: int
    rect: Rect
    body: Rect
    labels: list[Label] = field(default_factory=list)
    ports: dict[int, float] = field(default_factory=dict)


@dataclass
class Line:
    """A piece of a wire, straight or a curve; `tail` and `head` are nodes of the plate, or -1."""

    wire: int
    x: float
    y: float
    to_x: float
    to_y: float
    bend: bool
    tail: int
    head: int


@dataclass
class Plate:
    """A picture or a part of one; `sideways` says whether its wires lead to the left or right."""

    width: float
    height: float
    nodes: list[Node]
    lines: list[Line]
    sideways: bool


def turned(first: float, second: float, sideways: bool) -> tuple[float, float]:
    """Return a pair of across and along as x and y, or the other way round."""
    return (second, first) if sideways else (first, second)


def plate_of(layout: Layout, nodes: Sequence[Node], wires: Sequence[int], sideways: bool) -> Plate:
    """Return a plate of nodes placed as a layout says; the layout's further boxes are only points."""
    for node, middle, start in zip(nodes, layout.middle, layout.start, strict=False):
        size = turned(node.rect.width, node.rect.height, sideways)
        _move_node(node, *turned(middle - size[0] / 2, start, sideways))
    width, height = turned(layout.across, layout.along, sideways)
    lines = []
    for piece in layout.pieces:
        begin = turned(piece.across, piece.along, sideways)
        end = turned(piece.to_across, piece.to_along, sideways)
        tail, head = (each if each < len(nodes) else -1 for each in (piece.tail, piece.head))
        lines.append(Line(wires[piece.run], *begin, *end, piece.bend, tail, head))
    return Plate(width, height, list(nodes), lines, sideways)


def _move_node(node: Node, x: float, y: float) -> None:
    node.rect, node.body = node.rect.moved(x, y), node.body.moved(x, y)
    for label in node.labels:
        label.rect = label.rect.moved(x, y)


def move(plate: Plate, x: float, y: float) -> None:
    """Move all that lies on a plate."""
    for node in plate.nodes:
        _move_node(node, x, y)
    for line in plate.lines:
        line.x, line.y, line.to_x, line.to_y = line.x + x, line.y + y, line.to_x + x, line.to_y + y


def mirrored(plate: Plate, across: bool) -> Plate:
    """Return a plate turned round, so that its wires lead the other way."""
    size = plate.width if across else plate.height
    for node in plate.nodes:
        node.rect, node.body = node.rect.turned(across, size), node.body.turned(across, size)
        for label in node.labels:
            label.rect = label.rect.turned(across, size)
    for line in plate.lines:
        if across:
            line.x, line.to_x = size - line.x, size - line.to_x
        else:
            line.y, line.to_y = size - line.y, size - line.to_y
    return plate
