"""What stands in boxes and at wires, and how much space it takes."""

from __future__ import annotations

from dataclasses import dataclass

from mgcaffe.tools.drawing.blocks import Block
from mgcaffe.tools.drawing.graph import DrawnLayer, NetGraph, short_count
from mgcaffe.tools.drawing.kinds import Kind, kind_of

NAME_SIZE, DETAIL_SIZE, SMALL_SIZE = 12.0, 11.0, 10.5
LINE, PAD = 14.0, 9.0
LABEL_HEIGHT, TITLE_HEIGHT = 15.0, 24.0
_MOST_SHOWN = 44

# Widths of characters in parts of the font's size, those of DejaVu Sans: of the usual fonts the widest.
_WIDTHS = {
    0.30: "ijlI .,:;'|!",
    0.40: 'frtJ-/()[]"',
    0.56: "cksvxyzaeoLTF_?*",
    0.64: "bdghnpqu0123456789ABCEKPRSVXYZ$#+=<>~^&",
    0.78: "DGHNOQU",
    0.98: "mwMW%@",
}
_WIDTH_OF = {char: width for width, chars in _WIDTHS.items() for char in chars}


def text_width(text: str, size: float, bold: bool = False) -> float:
    """Return the most pixels that a line takes in the usual fonts."""
    return size * sum(_WIDTH_OF.get(char, 0.7 if char.isascii() else 1.0) for char in text) * (1.08 if bold else 1.0)


def shortened(text: str) -> str:
    """Return a name for a box: on one line, and with its middle left out where it is long."""
    text = "".join(char if char.isprintable() else "?" for char in text)
    half = _MOST_SHOWN // 2 - 1
    return text if len(text) <= _MOST_SHOWN else f"{text[:half]}..{text[-half:]}"


@dataclass(frozen=True)
class Line:
    """A line of a box: what it says, its font, and for an in-place layer its kind, which gives the mark before it."""

    text: str
    size: float
    bold: bool = False
    mark: Kind | None = None
    layer: int = -1

    @property
    def width(self) -> float:
        """The pixels that it takes with its mark."""
        return text_width(self.text, self.size, self.bold) + (10 if self.mark else 0)


def box_lines(graph: NetGraph, box: int) -> list[Line]:
    """Return what stands in a box: name, type and costs of its first layer, then a line for each one in place."""
    first, *others = graph.boxes[box].layers
    layer = graph.layers[first]
    lines = [
        Line(shortened(layer.name), NAME_SIZE, bold=True, layer=first),
        Line(shortened(f"{layer.type} {layer.detail}".strip()), DETAIL_SIZE, layer=first),
    ]
    lines += [Line(layer.costs, SMALL_SIZE, layer=first)] if layer.costs else []
    return [*lines, *(_row(graph.layers[other], other) for other in others)]


def _row(layer: DrawnLayer, number: int) -> Line:
    costs = f", {layer.costs}" if layer.costs else ""
    text = f"{f'{layer.type} {layer.detail}'.strip()}: {shortened(layer.name)}{costs}"
    return Line(text, SMALL_SIZE, mark=kind_of(layer.type), layer=number)


def block_lines(graph: NetGraph, block: Block) -> list[Line]:
    """Return what stands in a folded block: its title, how many layers it holds, and what they cost together."""
    layers = [graph.layers[layer] for box in block.boxes for layer in graph.boxes[box].layers]
    parameters, macs = sum(layer.parameters for layer in layers), sum(layer.macs for layer in layers)
    costs = [f"{short_count(parameters)} params"] if parameters else []
    costs += [f"{short_count(macs)} MACs"] if macs else []
    lines = [Line(shortened(block.title), NAME_SIZE, bold=True), Line(f"{len(layers)} layers", DETAIL_SIZE)]
    return [*lines, Line(", ".join(costs), SMALL_SIZE)] if costs else lines


def lines_size(lines: list[Line]) -> tuple[float, float]:
    """Return width and height of a box with these lines."""
    return max(line.width for line in lines) + 2 * PAD, LINE * len(lines) + 9
