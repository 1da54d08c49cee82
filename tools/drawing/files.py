"""Writes a net's picture, in the kind that the file's name says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from mgcaffe.tools.drawing.blocks import Block
from mgcaffe.tools.drawing.graph import NetGraph
from mgcaffe.tools.drawing.page import page_of
from mgcaffe.tools.drawing.picture import Picture, draw
from mgcaffe.tools.drawing.static import png_of, svg_of


@dataclass(frozen=True)
class About:
    """What a picture says of its net as a whole.

    Attributes:
        title: the net's name.
        facts: sums and the like.
        file: the prototxt, from where the picture lies; empty for no links.
        path: the same, absolute.
        link: what a layer links to instead, with {file}, {path} and {line}.
    """

    title: str
    facts: Sequence[str] = ()
    file: str = ""
    path: str = ""
    link: str | None = None

    def target(self, line: int) -> str:
        """Return what the layer that stands in a line links to; empty where nothing is known of it."""
        if not self.file or not line:
            return ""
        pattern = self.link or "{file}#L{line}"
        parts = {"file": quote(self.file), "path": quote(self.path), "line": str(line)}
        for name, value in parts.items():
            pattern = pattern.replace(f"{{{name}}}", value)
        return pattern


def encoded(
    kind: str, graph: NetGraph, blocks: Sequence[Block], about: About, *,
    direction: str = "TB", folded: bool = False, columns: int = 0,
) -> bytes:  # fmt: skip
    """Return a net's picture as the content of a file.

    Args:
        kind: html, svg or png.
        graph, blocks: the net.
        about: what is said of it as a whole.
        direction, folded, columns: as for `draw`; a page begins with its blocks folded in any case.

    Raises:
        UsageError: the picture is too large for a PNG.
    """

    def laid_out(closed: bool) -> Picture:
        return draw(graph, blocks, direction=direction, folded=closed, columns=columns)

    subtitle = ", ".join(about.facts)
    if kind == "html":
        return page_of(laid_out(True), laid_out(False), about.title, about.facts, about.target).encode()
    if kind == "svg":
        return svg_of(
            laid_out(folded), about.title, subtitle, lambda layer: about.target(graph.layers[layer].line)
        ).encode()
    return png_of(laid_out(folded), about.title, subtitle)
