"""Prints messages as prototxt, such that reading the text gives an equal message.

Fields come in the order of their numbers, defaults only where they were set, and numbers in the shortest form
that reads back to the same value.
"""

from __future__ import annotations

import math
import os
import struct
from typing import Any

from google.protobuf.message import Message

from mgcaffe.prototxt.binary import write_bytes
from mgcaffe.prototxt.messages import message_facts
from mgcaffe.prototxt.schema import FieldFacts

_ESCAPES = {
    **{code: f"\\{code:03o}" for code in (*range(32), 127)},
    9: "\\t",
    10: "\\n",
    13: "\\r",
    34: '\\"',
    92: "\\\\",
}


def print_text(message: Message) -> str:
    """Print a message as prototxt, one field a line, two spaces of indent a level.

    Args:
        message: any message of the schema. Fields that the schema does not know are left out.

    Returns:
        The text, ending with a newline; an empty message gives an empty text.
    """
    lines: list[str] = []
    _print_fields(message, "", lines)
    return "".join(f"{line}\n" for line in lines)


def write_text(message: Message, path: str | os.PathLike[str]) -> None:
    """Write a message as prototxt, so that the file is whole or not there.

    Raises:
        PrototxtError: (exit code 73) the file cannot be written.
    """
    write_bytes(print_text(message).encode(), path)


def _print_fields(message: Message, indent: str, lines: list[str]) -> None:
    facts = message_facts(message)
    for descriptor, value in message.ListFields():
        field = facts.fields[descriptor.name]
        for item in value if field.repeated else (value,):
            if field.kind == "message":
                lines.append(f"{indent}{field.name} {{")
                _print_fields(item, indent + "  ", lines)
                lines.append(f"{indent}}}")
            else:
                lines.append(f"{indent}{field.name}: {_print_scalar(item, field)}")


def _print_scalar(value: Any, field: FieldFacts) -> str:
    if field.kind == "string":
        text: str = value.translate(_ESCAPES)
        return f'"{text}"'
    if field.kind == "bytes":
        return '"' + "".join(_ESCAPES.get(b, chr(b) if b < 127 else f"\\{b:03o}") for b in value) + '"'
    if field.kind == "bool":
        return "true" if value else "false"
    if field.kind == "enum":
        assert field.enum is not None
        return field.enum.names[value]
    if field.kind == "integer":
        return str(value)
    return print_float(value) if field.kind == "float" else _print_double(value)


def _print_double(value: float) -> str:
    if math.isfinite(value):
        return repr(value).removesuffix(".0")
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def print_float(value: float) -> str:
    """Print a number in the fewest digits that give the same float32 (6 to 9)."""
    if not math.isfinite(value):
        return _print_double(value)
    packed = struct.pack("<f", value)
    for digits in range(6, 9):
        text = f"{value:.{digits}g}"
        try:
            if struct.pack("<f", float(text)) == packed:
                return text
        except OverflowError:
            continue
    return f"{value:.9g}"
