"""Where the boxes, blocks, labels and wires of a net lie, in pixels.

A block is laid out by itself and takes part in the whole as one box: folded, or as large as its inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mgcaffe.tools.drawing.blocks import Block
from mgcaffe.tools.drawing.graph import NetGraph
from mgcaffe.tools.drawing.layering.layout import lay_out
from mgcaffe.tools.drawing.layering.rows import Run
from mgcaffe.tools.drawing.plates import Label, Line, Node, Plate, Rect, mirrored, move, plate_of, turned
from mgcaffe.tools.drawing.texts import (
    DETAIL_SIZE,
    LABEL_HEIGHT,
    TITLE_HEIGHT,
    block_lines,
    box_lines,
    lines_size,
    shortened,
    text_width,
)
from mgcaffe.tools.drawing.wrapping import wrapped

DIRECTIONS = ("TB", "LR", "BT", "RL")
_LABEL_GAP, _LABEL_PAD = 6.0, 4.0
_FRAME_PAD = 12.0
_PAGE_ASPECT = 1.6


@dataclass(frozen=True)
class Picture:
    """A net laid out.

    Attributes:
        graph, blocks: what is drawn.
        direction: TB, LR, BT or RL.
        plate: the whole, its blocks folded or open.
        insides: each block's inside, with its frame's margins around it.
    """

    graph: NetGraph
    blocks: Sequence[Block]
    direction: str
    plate: Plate
    insides: list[Plate]


@dataclass
class _Unit:
    """What is laid out as one: its size, its body and labels within, and where its wires leave and enter.

    Attributes:
        leaves: by wire, pixels from the middle, across.
        enters: the same; a wire that is missing enters where there is space.
    """

    node: Node
    leaves: dict[int, float]
    enters: dict[int, float] = field(default_factory=dict)


def draw(
    graph: NetGraph, blocks: Sequence[Block], *, direction: str = "TB", folded: bool = False, columns: int = 0
) -> Picture:
    """Lay a net out.

    Args:
        graph: its boxes and wires.
        blocks: those that are folded, or get a frame.
        direction: where wires lead: TB, LR, BT or RL.
        folded: whether blocks are closed.
        columns: into how many columns (rows, for LR and RL) it is broken; 0 chooses.
    """
    sideways = direction in ("LR", "RL")
    inner = [_inside(graph, block, sideways) for block in blocks]
    within = {box: number for number, block in enumerate(blocks) for box in block.boxes}
    units: list[_Unit] = []
    unit_of: dict[int, int] = {}
    for box in range(len(graph.boxes)):
        number = within.get(box)
        if number is None:
            unit_of[box] = len(units)
            units.append(_box_unit(graph, box, sideways))
        elif box == blocks[number].boxes[0]:
            unit_of |= dict.fromkeys(blocks[number].boxes, len(units))
            units.append(_folded_unit(graph, blocks, number, sideways) if folded else _open_unit(number, inner[number]))
            units[-1].node.ports = inner[number][1]
    runs, wires = _runs(graph, units, unit_of)
    sizes = [turned(unit.node.rect.width, unit.node.rect.height, sideways) for unit in units]
    aspect = 1 / _PAGE_ASPECT if sideways else _PAGE_ASPECT
    layout = wrapped(lay_out(sizes, runs), sizes, columns, aspect)
    plate = plate_of(layout, [unit.node for unit in units], wires, sideways)
    insides = [plate for plate, _ in inner]
    if direction in ("BT", "RL"):
        plate, insides = mirrored(plate, sideways), [mirrored(each, sideways) for each in insides]
    return Picture(graph, blocks, direction, plate, insides)


def _runs(graph: NetGraph, units: Sequence[_Unit], unit_of: dict[int, int]) -> tuple[list[Run], list[int]]:
    """Return the wires between units, and the number that each has in the net."""
    runs, wires = [], []
    for number, wire in enumerate(graph.wires):
        tail = unit_of[wire.tail]
        heads = dict.fromkeys(unit_of[head] for head in wire.heads if unit_of[head] != tail)
        if heads:
            entries = [(head, units[head].enters.get(number)) for head in heads]
            runs.append(Run(tail, units[tail].leaves[number], entries))
            wires.append(number)
    return runs, wires


def _box_unit(graph: NetGraph, box: int, sideways: bool) -> _Unit:
    size = lines_size(box_lines(graph, box))
    return _labelled(graph, Node(box, -1, Rect(0, 0, 0, 0), Rect(0, 0, *size)), graph.boxes[box].outputs, sideways)


def _folded_unit(graph: NetGraph, blocks: Sequence[Block], number: int, sideways: bool) -> _Unit:
    block = blocks[number]
    leaving = [
        wire
        for box in block.boxes
        for wire in graph.boxes[box].outputs
        if not graph.wires[wire].heads or not set(graph.wires[wire].heads) <= set(block.boxes)
    ]
    size = lines_size(block_lines(graph, block))
    return _labelled(graph, Node(-1, number, Rect(0, 0, 0, 0), Rect(0, 0, *size)), leaving, sideways)


def _open_unit(number: int, inner: tuple[Plate, dict[int, float]]) -> _Unit:
    plate, ports = inner
    rect = Rect(0, 0, plate.width, plate.height)
    return _Unit(Node(-1, number, rect, rect), ports, ports)


def _labelled(graph: NetGraph, node: Node, wires: Sequence[int], sideways: bool) -> _Unit:
    """Put the labels of a node's blobs where its wires leave it: below, or to the right."""
    body = node.body
    texts = {wire: shortened(graph.label(wire)) for wire in wires}
    widths = {w: text_width(text, DETAIL_SIZE) + 2 * _LABEL_PAD if text else 2.0 for w, text in texts.items()}
    leaves = {}
    if sideways:
        strip = max(widths.values(), default=0.0) + (_LABEL_GAP + 6 if wires else 0.0)
        height = max(body.height, LABEL_HEIGHT * len(wires))
        node.rect = Rect(0, 0, body.width + strip, height)
        node.body = Rect(0, 0, body.width, height)
        at = (height - LABEL_HEIGHT * len(wires)) / 2
        for wire in wires:
            rect = Rect(body.width + _LABEL_GAP, at, widths[wire], LABEL_HEIGHT)
            leaves[wire] = at + LABEL_HEIGHT / 2 - height / 2
            node.labels.append(Label(wire, texts[wire], rect))
            at += LABEL_HEIGHT
        return _Unit(node, leaves)
    labels = sum(widths.values()) + _LABEL_GAP * max(0, len(wires) - 1)
    width = max(body.width, labels)
    node.rect = Rect(0, 0, width, body.height + (LABEL_HEIGHT + 4 if wires else 0.0))
    node.body = Rect(0, 0, width, body.height)
    at = (width - labels) / 2
    for wire in wires:
        node.labels.append(Label(wire, texts[wire], Rect(at, body.height + 4, widths[wire], LABEL_HEIGHT)))
        leaves[wire] = at + widths[wire] / 2 - width / 2
        at += widths[wire] + _LABEL_GAP
    return _Unit(node, leaves)


def _inside(graph: NetGraph, block: Block, sideways: bool) -> tuple[Plate, dict[int, float]]:
    """Lay a block's inside out; gives its ports too: by wire, pixels from the frame's middle, across."""
    inside = set(block.boxes)
    entering = list(
        dict.fromkeys(w for box in block.boxes for w in graph.boxes[box].inputs if graph.wires[w].tail not in inside)
    )
    leaving = [
        wire for box in block.boxes for wire in graph.boxes[box].outputs if not set(graph.wires[wire].heads) <= inside
    ]
    units = [_box_unit(graph, box, sideways) for box in block.boxes]
    place = {box: number for number, box in enumerate(block.boxes)}
    first = {wire: len(units) + number for number, wire in enumerate(entering)}
    last = {wire: len(units) + len(entering) + number for number, wire in enumerate(leaving)}
    runs, wires = [], []
    for wire in [*entering, *(wire for box in block.boxes for wire in graph.boxes[box].outputs)]:
        heads = [place[head] for head in graph.wires[wire].heads if head in inside]
        heads += [last[wire]] if wire in last else []
        tail, offset = (first[wire], 0.0) if wire in first else _leaving(units, place[graph.wires[wire].tail], wire)
        if heads:
            runs.append(Run(tail, offset, [(head, None) for head in heads]))
            wires.append(wire)
    sizes = [turned(unit.node.rect.width, unit.node.rect.height, sideways) for unit in units]
    sizes += [(2.0, 0.0)] * (len(first) + len(last))
    layout = lay_out(sizes, runs, list(first.values()), list(last.values()))
    title = text_width(shortened(block.title), DETAIL_SIZE, bold=True) + 2 * _FRAME_PAD
    plate = plate_of(layout, [unit.node for unit in units], wires, sideways)
    shift = max(0.0, title - plate.width) / 2 if not sideways else 0.0
    move(plate, _FRAME_PAD + shift, TITLE_HEIGHT)
    plate.width = max(plate.width, title) + 2 * _FRAME_PAD
    plate.height += TITLE_HEIGHT + _FRAME_PAD
    middle = (plate.height if sideways else plate.width) / 2
    ports = {}
    for wire, port in [*first.items(), *last.items()]:
        at = layout.middle[port] + (TITLE_HEIGHT if sideways else _FRAME_PAD + shift)
        ports[wire] = at - middle
        plate.lines.append(_to_the_edge(plate, layout.start[port], at, wire, port in first.values(), sideways))
    return plate, ports


def _leaving(units: Sequence[_Unit], unit: int, wire: int) -> tuple[int, float]:
    return unit, units[unit].leaves[wire]


def _to_the_edge(plate: Plate, along: float, across: float, wire: int, enters: bool, sideways: bool) -> Line:
    """Return the line between a block's frame and a port of its inside."""
    before = _FRAME_PAD if sideways else TITLE_HEIGHT
    begin, end = (0.0, before) if enters else (along + before, plate.width if sideways else plate.height)
    if sideways:
        return Line(wire, begin, across, end, across, False, -1, -1)
    return Line(wire, across, begin, across, end, False, -1, -1)
