"""Plain tables for terminals, pipes and files alike."""

from __future__ import annotations

from collections.abc import Sequence


def format_table(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> str:
    """Aligned columns under a rule.

    Args:
        headers: the columns' names.
        rows: one text for each column; columns named in `right` are aligned there (numbers).
        right: see rows.
    """
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    lines = [[*headers], ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(
            text.rjust(width) if header in right else text.ljust(width)
            for header, text, width in zip(headers, line, widths, strict=True)
        ).rstrip()
        for line in lines
    )


def format_shape(shape: Sequence[int]) -> str:
    """`64x20x24x24`; a blob without axes is `scalar`."""
    return "x".join(map(str, shape)) or "scalar"


def format_bytes(count: float) -> str:
    """A size in the unit that leaves one to three digits before the point."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"
