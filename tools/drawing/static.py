"""Draws a picture with all blocks open or folded, as SVG or PNG."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from mgcaffe.errors import UsageError
from mgcaffe.tools.drawing.graph import NetGraph
from mgcaffe.tools.drawing.kinds import KINDS, kind_of
from mgcaffe.tools.drawing.picture import Picture
from mgcaffe.tools.drawing.plates import Label, Line, Node, Plate
from mgcaffe.tools.drawing.texts import DETAIL_SIZE, LINE, NAME_SIZE, PAD, block_lines, box_lines, shortened, text_width
from mgcaffe.tools.report.svg import Drawing

_INK, _SOFT, _WIRE, _FRAME, _FRAME_FILL, _PAPER = "#1F1F1F", "#5A5A5A", "#8794A0", "#AEB9C2", "#F5F7F9", "#FFFFFF"
_MARGIN, _HEAD = 16.0, 46.0
_CURVE_POINTS = 10
_PNG_SCALE = 2
_MOST_PIXELS = 100_000_000

Link = Callable[[int], str]
Point = tuple[float, float]


class _Canvas(Protocol):
    """What pictures are drawn on: an SVG Drawing, or an image."""

    def box(
        self, x: float, y: float, width: float, height: float, fill: str, *,
        tip: str = "", stroke: str = "", radius: float = 0.0,
    ) -> None: ...  # fmt: skip

    def curve(self, points: Sequence[Point], colour: str, *, width: float = 1.6) -> None: ...

    def triangle(self, points: Sequence[Point], colour: str) -> None: ...

    def text(
        self, x: float, y: float, text: str, *, size: float, colour: str, anchor: str = "start", bold: bool = False
    ) -> None: ...

    def link(self, target: str) -> AbstractContextManager[None]: ...


def svg_of(picture: Picture, title: str, subtitle: str, link: Link) -> str:
    """Return the picture as an SVG file.

    Args:
        picture: what is drawn.
        title, subtitle: the lines above it.
        link: gives the target for a layer's number; empty for none.
    """
    drawing = Drawing(*_size(picture, title, subtitle), f"the net {title}")
    _draw(drawing, picture, title, subtitle, link)
    return drawing.render(alone=True) + "\n"


def png_of(picture: Picture, title: str, subtitle: str) -> bytes:
    """Return the picture as a PNG file, two pixels to one of the layout; one to one where that would be very large.

    Raises:
        UsageError: it is too large for an image, or Pillow is too old to draw text of any size.
    """
    width, height = _size(picture, title, subtitle)
    scale = _PNG_SCALE if width * height * _PNG_SCALE**2 <= _MOST_PIXELS else 1
    if width * height * scale**2 > _MOST_PIXELS:
        raise UsageError(
            f"the picture would have {width:.0f} x {height:.0f} pixels", hint="draw it as .svg or .html, or with --fold"
        )
    image = _Image(width, height, scale)
    _draw(image, picture, title, subtitle, lambda layer: "")
    return image.encoded()


def _size(picture: Picture, title: str, subtitle: str) -> Point:
    head = max(text_width(shortened(title), 18, bold=True), text_width(subtitle, DETAIL_SIZE), _legend_width(picture))
    return max(picture.plate.width, head) + 2 * _MARGIN, picture.plate.height + 2 * _MARGIN + _HEAD + 18


def _draw(canvas: _Canvas, picture: Picture, title: str, subtitle: str, link: Link) -> None:
    width, height = _size(picture, title, subtitle)
    canvas.box(0, 0, width, height, _PAPER)
    canvas.text(_MARGIN, 30, shortened(title), size=18, colour=_INK, bold=True)
    canvas.text(_MARGIN, 47, subtitle, size=DETAIL_SIZE, colour=_SOFT)
    _draw_legend(canvas, picture, 55)
    _draw_plate(canvas, picture, picture.plate, _MARGIN, _MARGIN + _HEAD + 18, link)


def _kinds(picture: Picture) -> list[str]:
    graph = picture.graph
    present = {kind_of(layer.type).name for layer in graph.layers}
    return [kind.name for kind in KINDS if kind.name in present]


def _legend_width(picture: Picture) -> float:
    return sum(text_width(name, DETAIL_SIZE) + 28 for name in _kinds(picture))


def _draw_legend(canvas: _Canvas, picture: Picture, y: float) -> None:
    x = _MARGIN
    for kind in KINDS:
        if kind.name in _kinds(picture):
            canvas.box(x, y, 11, 11, kind.light, stroke=kind.strong, radius=2)
            canvas.text(x + 16, y + 9.5, kind.name, size=DETAIL_SIZE, colour=_SOFT)
            x += text_width(kind.name, DETAIL_SIZE) + 28


def _draw_plate(canvas: _Canvas, picture: Picture, plate: Plate, x: float, y: float, link: Link) -> None:
    """Draw frames, then wires, then boxes, and what lies in open blocks over their frames."""
    opened = [node for node in plate.nodes if node.block >= 0 and not node.labels and _is_open(picture, node)]
    for node in opened:
        body = node.body.moved(x, y)
        canvas.box(body.x, body.y, body.width, body.height, _FRAME_FILL, stroke=_FRAME, radius=8)
    for line in plate.lines:
        _draw_wire(canvas, plate, line, x, y, opened)
    for node in plate.nodes:
        if node in opened:
            body = node.body.moved(x, y)
            _draw_plate(canvas, picture, picture.insides[node.block], body.x, body.y, link)
            title = shortened(picture.blocks[node.block].title)
            at = body.y + (body.height - 8 if picture.direction == "BT" else 16)
            canvas.text(body.x + 10, at, title, size=DETAIL_SIZE, colour=_SOFT, bold=True)
        else:
            _draw_node(canvas, picture, node, x, y, link)


def _is_open(picture: Picture, node: Node) -> bool:
    inside = picture.insides[node.block]
    return (node.body.width, node.body.height) == (inside.width, inside.height)


def _draw_wire(canvas: _Canvas, plate: Plate, line: Line, x: float, y: float, opened: Sequence[Node]) -> None:
    begin, end = (line.x + x, line.y + y), (line.to_x + x, line.to_y + y)
    sideways = plate.sideways if line.bend else begin[1] == end[1]
    canvas.curve(_curve(begin, end, sideways) if line.bend else [begin, end], _WIRE, width=1.4)
    if line.head >= 0 and plate.nodes[line.head] not in opened and _reaches(plate, line):
        canvas.triangle(_arrow(begin, end, sideways), _WIRE)


def _reaches(plate: Plate, line: Line) -> bool:
    rect = plate.nodes[line.head].rect
    inside_x = rect.x - 0.1 <= line.to_x <= rect.x + rect.width + 0.1
    return inside_x and rect.y - 0.1 <= line.to_y <= rect.y + rect.height + 0.1


def _curve(begin: Point, end: Point, sideways: bool) -> list[Point]:
    """Return points of a cubic curve that leaves and arrives in the direction of the wires."""
    if (begin[1] == end[1]) if sideways else (begin[0] == end[0]):
        return [begin, end]
    points = []
    for number in range(_CURVE_POINTS + 1):
        t = number / _CURVE_POINTS
        even, eased = 1.5 * t * (1 - t) ** 2 + 1.5 * t**2 * (1 - t) + t**3, t * t * (3 - 2 * t)
        across, along = (eased, even)
        dx, dy = end[0] - begin[0], end[1] - begin[1]
        points.append(
            (begin[0] + dx * (along if sideways else across), begin[1] + dy * (across if sideways else along))
        )
    return points


def _arrow(begin: Point, end: Point, sideways: bool) -> list[Point]:
    x, y = end
    if sideways:
        back = x - 6 if x > begin[0] else x + 6
        return [(x, y), (back, y - 3), (back, y + 3)]
    back = y - 6 if y > begin[1] else y + 6
    return [(x, y), (x - 3, back), (x + 3, back)]


def _draw_node(canvas: _Canvas, picture: Picture, node: Node, x: float, y: float, link: Link) -> None:
    graph = picture.graph
    body = node.body.moved(x, y)
    for label in node.labels:
        _draw_stub(canvas, picture, node, label, x, y)
    first = graph.boxes[node.box].layers[0] if node.box >= 0 else -1
    kind = kind_of(graph.layers[first].type) if first >= 0 else None
    lines = box_lines(graph, node.box) if first >= 0 else block_lines(graph, picture.blocks[node.block])
    with canvas.link(link(first) if first >= 0 else ""):
        canvas.box(
            body.x, body.y, body.width, body.height, kind.light if kind else "#EEF1F4",
            stroke=kind.strong if kind else _WIRE, radius=4, tip=_tip(graph, node.box) if first >= 0 else "",
        )  # fmt: skip
        if not kind:
            canvas.box(body.x + 3, body.y + 3, body.width - 6, body.height - 6, "none", stroke=_FRAME, radius=3)
    at = body.y + NAME_SIZE + 2.5
    for line in lines:
        with canvas.link(link(line.layer) if line.layer >= 0 else ""):
            left = body.x + PAD
            if line.mark:
                canvas.box(left, at - 8, 7, 7, line.mark.strong, radius=1.5)
                left += 10
            colour = _INK if line.size > DETAIL_SIZE or line.mark else _SOFT
            canvas.text(left, at, line.text, size=line.size, colour=colour, bold=line.bold)
        at += LINE


def _draw_stub(canvas: _Canvas, picture: Picture, node: Node, label: Label, x: float, y: float) -> None:
    """Draw a wire's beginning and the label that lies on it."""
    body, rect, whole = node.body.moved(x, y), label.rect.moved(x, y), node.rect.moved(x, y)
    if picture.graph.wires[label.wire].heads:
        middle = rect.y + rect.height / 2 if picture.direction in ("LR", "RL") else rect.x + rect.width / 2
        begin, end = {
            "TB": ((middle, body.y + body.height), (middle, whole.y + whole.height)),
            "BT": ((middle, body.y), (middle, whole.y)),
            "LR": ((body.x + body.width, middle), (whole.x + whole.width, middle)),
            "RL": ((body.x, middle), (whole.x, middle)),
        }[picture.direction]
        canvas.curve([begin, end], _WIRE, width=1.4)
    if label.text:
        canvas.box(rect.x, rect.y + 1, rect.width, rect.height - 2, _PAPER, radius=3)
        middle = rect.x + rect.width / 2
        canvas.text(middle, rect.y + 11, label.text, size=DETAIL_SIZE, colour=_INK, anchor="middle")


def _tip(graph: NetGraph, box: int) -> str:
    lines = []
    for number in graph.boxes[box].layers:
        layer = graph.layers[number]
        blobs = (
            ", ".join(f"{name} {shape}".strip() for name, shape in zip(names, shapes, strict=True))
            for names, shapes in ((layer.bottoms, layer.bottom_shapes), (layer.tops, layer.top_shapes))
        )
        head = f"{layer.name} ({f'{layer.type} {layer.detail}'.strip()})"
        lines += [part for part in (head, " -> ".join(blobs), layer.costs, layer.location) if part]
    return "\n".join(lines)


class _Image:
    """A canvas of pixels."""

    def __init__(self, width: float, height: float, scale: int) -> None:
        from PIL import Image, ImageDraw

        self._scale = scale
        self._image = Image.new("RGB", (round(width * scale), round(height * scale)), _PAPER)
        self._draw = ImageDraw.Draw(self._image)
        self._fonts: dict[float, object] = {}

    def _font(self, size: float) -> object:
        from PIL import ImageFont

        if size not in self._fonts:
            try:
                self._fonts[size] = ImageFont.load_default(size * self._scale)
            except ImportError:
                raise UsageError(
                    "drawing a PNG needs a Pillow with FreeType",
                    hint="pip install -U Pillow, or draw it as .svg",
                ) from None
        return self._fonts[size]

    def _scaled(self, points: Sequence[Point]) -> list[Point]:
        return [(x * self._scale, y * self._scale) for x, y in points]

    def box(
        self, x: float, y: float, width: float, height: float, fill: str, *,
        tip: str = "", stroke: str = "", radius: float = 0.0,
    ) -> None:  # fmt: skip
        """Draw a rectangle; there are no tips."""
        begin, end = self._scaled([(x, y), (x + width, y + height)])
        self._draw.rounded_rectangle(
            (*begin, *end), radius * self._scale, None if fill == "none" else fill, stroke or None, self._scale
        )

    def curve(self, points: Sequence[Point], colour: str, *, width: float = 1.6) -> None:
        """Draw a line through points."""
        self._draw.line(self._scaled(points), colour, max(1, round(width * self._scale)), joint="curve")

    def triangle(self, points: Sequence[Point], colour: str) -> None:
        """Draw an arrow's head."""
        self._draw.polygon(self._scaled(points), colour)

    def text(
        self, x: float, y: float, text: str, *, size: float, colour: str, anchor: str = "start", bold: bool = False
    ) -> None:
        """Draw a line of text; y is its baseline, x its beginning or, with another anchor, its middle."""
        [at] = self._scaled([(x, y)])
        font = self._font(size)
        weight = {"stroke_width": 0.3 * self._scale, "stroke_fill": colour} if bold else {}
        self._draw.text(at, text, colour, font, "ls" if anchor == "start" else "ms", **weight)  # type: ignore[arg-type]

    @contextmanager
    def link(self, target: str) -> Iterator[None]:
        """Do nothing: an image has no links."""
        yield

    def encoded(self) -> bytes:
        """Return the image as a PNG file."""
        file = io.BytesIO()
        self._image.save(file, "PNG", optimize=True)
        return file.getvalue()
