"""What is drawn of a net: boxes of layers, and wires, which are the blobs between them.

A layer that works in place is a further row of the box that made its blob, as long as nothing has read the blob
before; so a convolution, its BatchNorm, Scale and ReLU are one box.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class DrawnLayer:
    """A layer and what is said of it.

    Attributes:
        name, type: of the layer.
        detail: the fields that shape its output, as in `3x3 pad 1`.
        bottoms, tops: names of its blobs.
        bottom_shapes, top_shapes: their shapes as texts; empty texts where they are not known.
        parameters: values that it owns, BatchNorm's statistics included.
        shared: values that it uses and another layer owns.
        macs: multiply-accumulates of one forward pass of the whole batch.
        location: file, line and column of where it was written, or an empty text.
        line: the line alone, 0 if it is not known.
        source: its message as prototxt.
    """

    name: str
    type: str
    detail: str
    bottoms: Sequence[str]
    tops: Sequence[str]
    bottom_shapes: Sequence[str]
    top_shapes: Sequence[str]
    parameters: int = 0
    shared: int = 0
    macs: int = 0
    location: str = ""
    line: int = 0
    source: str = ""

    @property
    def costs(self) -> str:
        """Parameters and multiply-accumulates in a few words; empty where there are none."""
        parts = [f"{short_count(self.parameters)} params"] if self.parameters else []
        parts += [f"{short_count(self.shared)} shared params"] if self.shared else []
        return ", ".join([*parts, f"{short_count(self.macs)} MACs"] if self.macs else parts)


@dataclass
class Box:
    """Layers that are drawn as one: the first, and those that work in place on what it makes.

    Attributes:
        layers: their numbers in the net that is drawn.
        inputs: the wires that it reads.
        outputs: the wires that it makes.
    """

    layers: list[int]
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)


@dataclass
class Wire:
    """A blob: the box that makes it, its name and shape, and the boxes that read it, each once."""

    tail: int
    name: str
    shape: str
    heads: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class NetGraph:
    """The boxes of a net, each after those that it reads, and the wires between them."""

    layers: Sequence[DrawnLayer]
    boxes: list[Box]
    wires: list[Wire]

    def name(self, box: int) -> str:
        """Return the name of a box's first layer."""
        return self.layers[self.boxes[box].layers[0]].name

    def label(self, wire: int) -> str:
        """Return what stands at a wire: the shape, and before it the name where that is not the layer's own."""
        made = self.wires[wire]
        names = [self.layers[layer].name for layer in self.boxes[made.tail].layers]
        return " ".join(part for part in (made.name if made.name not in names else "", made.shape) if part)

    def before(self, box: int) -> list[int]:
        """Return the boxes that a box reads, each once."""
        return list(dict.fromkeys(self.wires[wire].tail for wire in self.boxes[box].inputs))

    def after(self, box: int) -> list[int]:
        """Return the boxes that read a box, each once."""
        return list(dict.fromkeys(head for wire in self.boxes[box].outputs for head in self.wires[wire].heads))


def build_graph(layers: Sequence[DrawnLayer]) -> NetGraph:
    """Return the boxes and wires of layers in the order in which they run.

    Where two layers make a blob of one name before anything reads it (the data layers of two phases, drawn
    together), its readers read both. A bottom that nothing has made is left out.
    """
    graph = NetGraph(layers, [], [])
    current: dict[str, list[int]] = {}
    for number, layer in enumerate(layers):
        wires = [current.get(name, []) for name in layer.bottoms]
        if _works_in_place(layer) and (target := _stack(graph, wires[0])) is not None:
            graph.boxes[target].layers.append(number)
            continue
        box = Box([number])
        graph.boxes.append(box)
        index = len(graph.boxes) - 1
        for wire in dict.fromkeys(wire for found in wires for wire in found):
            box.inputs.append(wire)
            graph.wires[wire].heads.append(index)
        for name, shape in zip(layer.tops, layer.top_shapes, strict=True):
            box.outputs.append(len(graph.wires))
            alternatives = [wire for wire in current.get(name, []) if not graph.wires[wire].heads]
            current[name] = [*alternatives, len(graph.wires)]
            graph.wires.append(Wire(index, name, shape))
    return graph


def _works_in_place(layer: DrawnLayer) -> bool:
    return len(layer.bottoms) == 1 and list(layer.bottoms) == list(layer.tops)


def _stack(graph: NetGraph, wires: list[int]) -> int | None:
    """Return the box that an in-place layer becomes a row of, if it can."""
    if len(wires) != 1 or graph.wires[wires[0]].heads:
        return None
    box = graph.wires[wires[0]].tail
    return box if len(graph.boxes[box].outputs) == 1 else None


def short_count(number: int) -> str:
    """Return a count with three digits: `9.41 k`, `61.0 M`."""
    if number < 1000:
        return str(number)
    value = float(number)
    for unit in ("k", "M", "G", "T"):
        value /= 1000
        if value < 999.5 or unit == "T":
            return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}"
    raise AssertionError
