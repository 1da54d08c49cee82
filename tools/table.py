"""Plain tables for terminals, pipes and files alike."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from itertools import zip_longest

_PIPE_WIDTH = 100
_MIN_WIDTH = 20


def output_width() -> int:
    """Return the columns that standard output has: $COLUMNS, else the terminal's, else 100 (a pipe, a file)."""
    return max(_MIN_WIDTH, shutil.get_terminal_size((_PIPE_WIDTH, 24)).columns)


def wrap_text(text: str, width: int, indent: str = "") -> list[str]:
    """Break a text into lines of at most `width` characters: at spaces, and within words only where one is longer.

    Args:
        text: the text.
        width: the greatest length of a line.
        indent: what the first line begins with; the others have four spaces more.
    """
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent + "    ", break_on_hyphens=False
    )  # fmt: skip


def format_table(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> str:
    """Return aligned columns under a rule.

    Args:
        headers: the columns' names.
        rows: one text for each column; columns named in `right` are aligned there (numbers).
        right: see rows.
    """
    return "\n".join("\n".join(lines) for lines in table_lines(headers, rows, right))


def table_lines(
    headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()
) -> list[list[str]]:  # fmt: skip
    """Return the lines of the head (names and rule), then those of each row; a text of several lines makes several."""
    cells = [[text.split("\n") for text in row] for row in (headers, *rows)]
    widths = [max(len(line) for cell in column for line in cell) for column in zip(*cells, strict=True)]

    def aligned(texts: Sequence[str]) -> str:
        columns = zip(headers, texts, widths, strict=True)
        return "  ".join(
            text.rjust(width) if header in right else text.ljust(width) for header, text, width in columns
        ).rstrip()

    blocks = [[aligned(texts) for texts in zip_longest(*row, fillvalue="")] for row in cells]
    return [[*blocks[0], aligned(["-" * width for width in widths])], *blocks[1:]]


def format_shape(shape: Sequence[int]) -> str:
    """`64x20x24x24`; a blob without axes is `scalar`."""
    return "x".join(map(str, shape)) or "scalar"


def format_bytes(count: float) -> str:
    """Return a size in the unit that leaves one to three digits before the point."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"
