"""Small drawings as text, for pages that must not need anything from elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape

# Ranges that are narrower, in parts of the numbers themselves or at all, have no tick marks that differ.
_NARROWEST = 1e-9
_MIN_RANGE = 1e-290
_FONTS = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"


class Drawing:
    """An SVG picture that grows by its methods. Coordinates are pixels from the upper left corner.

    Args:
        width, height: its size; it shrinks with the page.
        label: what it shows, for those who cannot see it.
    """

    def __init__(self, width: float, height: float, label: str) -> None:
        self.width, self.height = width, height
        self._label = label
        self._parts: list[str] = []

    def box(
        self, x: float, y: float, width: float, height: float, fill: str, *,
        tip: str = "", stroke: str = "", dashed: bool = False, opacity: float = 1.0, radius: float = 0.0,
    ) -> None:  # fmt: skip
        """Draw a rectangle; `tip` appears where the mouse rests on it."""
        more = f' stroke="{stroke}"' if stroke else ""
        more += ' stroke-dasharray="3 2"' if dashed else ""
        more += f' opacity="{opacity:g}"' if opacity != 1 else ""
        more += f' rx="{radius:g}"' if radius else ""
        title = f"<title>{escape(tip)}</title>" if tip else ""
        self._parts.append(
            f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(width, 0.4):.2f}" height="{height:.2f}" '
            f'fill="{fill}"{more}>{title}</rect>'
        )

    def line(
        self, x1: float, y1: float, x2: float, y2: float, colour: str, *, width: float = 1.0, dashed: bool = False
    ) -> None:
        """Draw a straight line."""
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self._parts.append(
            f'<line x1="{x1:.2f}" y1="{y1:.2f}" x2="{x2:.2f}" y2="{y2:.2f}" stroke="{colour}" '
            f'stroke-width="{width:g}"{dash}/>'
        )

    def curve(
        self, points: Sequence[tuple[float, float]], colour: str, *, width: float = 1.6, opacity: float = 1.0
    ) -> None:
        """Draw a line through points."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width:g}" opacity="{opacity:g}"/>'
        )

    def dot(self, x: float, y: float, colour: str, tip: str) -> None:
        """Draw a point with a tip."""
        self._parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"><title>{escape(tip)}</title></circle>'
        )

    def text(
        self, x: float, y: float, text: str, *,
        size: float = 12, colour: str = "#333", anchor: str = "start", bold: bool = False,
    ) -> None:  # fmt: skip
        """Write a line of text; y is its baseline."""
        weight = ' font-weight="600"' if bold else ""
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" fill="{colour}" text-anchor="{anchor}"{weight}>'
            f"{escape(text)}</text>"
        )

    def fitted_text(
        self, x: float, y: float, width: float, text: str, *, size: float = 11, colour: str = "#fff"
    ) -> None:
        """Write a text centred in `width` pixels, shortened to fit, or left out where nothing would be legible."""
        space = int((width - 6) / (0.58 * size))
        if space >= len(text):
            self.text(x + width / 2, y, text, size=size, colour=colour, anchor="middle")
        elif space >= 4:
            self.text(x + width / 2, y, text[: space - 1] + "…", size=size, colour=colour, anchor="middle")

    def triangle(self, points: Sequence[tuple[float, float]], colour: str) -> None:
        """Draw a filled triangle, as an arrow's head."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._parts.append(f'<polygon points="{path}" fill="{colour}"/>')

    @contextmanager
    def link(self, target: str) -> Iterator[None]:
        """Make what is drawn inside a link; an empty target makes none."""
        if target:
            self._parts.append(f'<a href="{escape(target)}">')
        yield
        if target:
            self._parts.append("</a>")

    def render(self, *, alone: bool = False) -> str:
        """Return the picture as an element of a page, or `alone` as a file of its own, in its own size."""
        own = f' xmlns="http://www.w3.org/2000/svg" width="{self.width:g}" height="{self.height:g}"' if alone else ""
        own += f' font-family="{_FONTS}"' if alone else ""
        return (
            f'<svg{own} viewBox="0 0 {self.width:g} {self.height:g}" role="img" aria-label="{escape(self._label)}">'
            f"{''.join(self._parts)}</svg>"
        )


class Scale:
    """Maps numbers from `low` to `high` to pixels from `start` to `end`; a range too small to divide is widened."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        narrowest = max(_NARROWEST * max(abs(low), abs(high)), _MIN_RANGE)
        self.low, self.high = low, high if high - low >= narrowest else low + max(1.0, narrowest)
        self.start, self.end = start, end

    def __call__(self, value: float) -> float:
        """Return the pixel of a number."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, count: int = 6) -> list[float]:
        """Round numbers, about `count` of them."""
        raw = (self.high - self.low) / max(1, count)
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


def number_text(value: float) -> str:
    """Return a number as short as it may be."""
    if abs(value) >= 1000:
        return f"{value:,.0f}" if abs(value) < 1e9 else f"{value:.3g}"
    if value and abs(value) < 1e-3:
        return f"{value:.2g}"
    return f"{value:.4g}"


def tick_texts(ticks: Sequence[float]) -> list[str]:
    """Return the numbers beside tick marks, with as many digits as tell them apart."""
    texts = [number_text(tick) for tick in ticks]
    digits = 5
    while len(set(texts)) < len(texts) and digits < 17:
        texts = [f"{tick:.{digits}g}" for tick in ticks]
        digits += 1
    return texts
