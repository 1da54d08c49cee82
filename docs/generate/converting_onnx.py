"""Writes the table of operators in docs/converting_onnx.md out of the tables that ONNX in goes by.

`python -m docs.generate.converting_onnx` prints the page, with `--write` it goes to docs/converting_onnx.md. A test
fails until that has been done after a change. The rest of the page is written by hand.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from docs.generate import catalogue
from mgcaffe.tools.convert.onnx_in.operators import TABLES

PAGE = Path(__file__).resolve().parents[1] / "converting_onnx.md"
_BEGIN, _END = "<!-- operators -->\n", "<!-- end of operators -->\n"


def render() -> str:
    """Return the whole page, with the table as it is now."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    table = "\n".join(_table())
    return f"{before}{_BEGIN}{table}\n{_END}{rest.partition(_END)[2]}"


def _table() -> Iterator[str]:
    for family, table in TABLES.items():
        yield f"| {family} | layers |"
        yield "|---|---|"
        for name, convert in sorted(table.items()):
            said = " ".join((inspect.getdoc(convert) or "").split("\n\n")[0].split())
            yield f"| `{name}` | {said} |"
        yield ""


def main(arguments: Sequence[str]) -> None:
    """Print the page, or write it."""
    catalogue.print_or_write(render(), PAGE, "converting_onnx", arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
