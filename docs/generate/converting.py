"""Writes docs/converting.md out of the tables of formats, layer types and fields that converting goes by.

`python -m docs.generate.converting` prints it, with `--write` it goes to docs/converting.md. A test fails until that
has been done after a change.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from docs.generate import catalogue, catalogue_text
from docs.generate import converting_text as text
from mgcaffe.tools.convert.allowances import ALLOWANCES
from mgcaffe.tools.convert.format_tables import READERS, WRITERS
from mgcaffe.tools.convert.layer_writer import WITHOUT
from mgcaffe.tools.convert.onnx_out.emitter import Operator
from mgcaffe.tools.convert.onnx_out.graph import OPSET
from mgcaffe.tools.convert.onnx_out.operators import OPERATORS
from mgcaffe.tools.convert.torch_out import operators as torch_out
from mgcaffe.tools.convert.torch_out.emitter import Operator as TorchOperator

PAGE = Path(__file__).resolve().parents[1] / "converting.md"
_FILLER = "FillerParameter"
_Table = Mapping[str, Operator] | Mapping[str, TorchOperator]


def expressed_and_idle(table: _Table = OPERATORS) -> dict[str, tuple[list[str], list[str]]]:
    """Return, by layer type, the fields that a model expresses, and those that leave nothing behind.

    Args:
        table: of a format.
    """
    everything, schema = catalogue.entries(), catalogue.Schema()
    found = {}
    for entry in everything:
        fields = [field for part in catalogue.named_fields(entry, everything, schema).values() for field in part]
        for name in entry.doc.names:
            if name not in table:
                continue
            without = table[name].without_effect
            idle = [field.name for field in fields if field.type == _FILLER or field.name in without]
            gone = {*idle, *table[name].refuses}
            found[name] = ([field.name for field in fields if field.name not in gone], idle)
    return found


def render() -> str:
    """Return the whole page."""
    lines = [text.INTRODUCTION.strip(), "", *_formats(), "", text.FORMATS.strip(), ""]
    lines += [text.WEIGHTS.strip(), "", text.PROOF.strip(), ""]
    lines += ["| `--allow` | what is then written otherwise |", "|---|---|"]
    lines += [f"| `{name}` | {said} |" for name, said in ALLOWANCES.items()]
    lines += ["", text.TO_ONNX.strip().format(opset=OPSET), ""]
    lines += [*_families(OPERATORS), text.WITHOUT.strip(), "", *_reasons(WITHOUT), ""]
    lines += [text.FROM_ONNX.strip(), ""]
    lines += [text.TO_PYTORCH.strip(), "", *_families(torch_out.OPERATORS, "to PyTorch")]
    lines += [text.WITHOUT_PYTORCH.strip(), "", *_reasons(WITHOUT)]
    return "\n".join(lines) + "\n"


def _families(table: _Table, where: str = "") -> Iterator[str]:
    """Give a table for each family of layer types.

    Args:
        table: of a format.
        where: what the headings say besides, so that each is there once.
    """
    fates = expressed_and_idle(table)
    for family, types in catalogue_text.FAMILIES.items():
        known = [table[name] for name in types if name in table]
        if known:
            yield from (f"### {family}{', ' if where else ''}{where}", "", *_table(known, fates), "")


def _reasons(without: Mapping[str, str]) -> Iterator[str]:
    yield from ("| type | why |", "|---|---|", *(f"| {name} | {why} |" for name, why in without.items()))


def _formats() -> Iterator[str]:
    yield "| format | read as | written as |"
    yield "|---|---|---|"
    readers = {reader.name: reader for reader in READERS}
    writers = {writer.name: writer for writer in WRITERS}
    for name in dict.fromkeys([*readers, *writers]):
        read = f"`{readers[name].written}`{readers[name].remark}" if name in readers else ""
        written = ", ".join(f"`{ending}`" for ending in writers[name].endings) if name in writers else ""
        yield f"| {name} | {read} | {written} |"


def _table(
    operators: Sequence[Operator | TorchOperator], fates: dict[str, tuple[list[str], list[str]]]
) -> Iterator[str]:
    yield "| type | what is written | fields expressed | fields without effect | refused |"
    yield "|---|---|---|---|---|"
    for entry in operators:
        expressed, idle = fates[entry.layer_type]
        refused = "; ".join(f"`{field}` {why}" for field, why in entry.refuses.items())
        cells = (entry.layer_type, _how(entry), _code(expressed), _code(idle), refused)
        yield f"| {' | '.join(cells)} |"


def _how(entry: Operator | TorchOperator) -> str:
    """Return what an entry's function says that it does."""
    said = " ".join((inspect.getdoc(entry.write) or "").split("\n\n")[0].split())
    return said or f"{entry.becomes}."


def _code(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def main(arguments: Sequence[str]) -> None:
    """Print the page, or write it."""
    catalogue.print_or_write(render(), PAGE, "converting", arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
