"""Rows in Criteo's format, for tests."""

from __future__ import annotations

import random
from pathlib import Path


def row(number: int, **changes: str) -> bytes:
    """A row whose first integer is its number; some fields are missing. `changes`: by name, label, i1 to c26."""
    draw = random.Random(number)
    fields = {"label": str(draw.randrange(2)), "i1": str(number)}
    for index in range(2, 14):
        fields[f"i{index}"] = "" if draw.random() < 0.2 else str(draw.randrange(-3, 10 ** draw.randrange(1, 8)))
    for index in range(1, 27):
        fields[f"c{index}"] = "" if draw.random() < 0.1 else f"{draw.randrange(1 << 32):08x}"
    fields.update(changes)
    return "\t".join(fields.values()).encode()


def rows(first: int, last: int) -> list[bytes]:
    """Rows `first` to `last`, exclusive."""
    return [row(number) for number in range(first, last)]


def write(file: Path, lines: list[bytes]) -> Path:
    """A file of rows, the last one without a line break behind it."""
    file.write_bytes(b"\n".join(lines))
    return file
