"""Ways to damage the content of a file: messages of the schema, JSON, tables, bytes; each from a random stream."""

from __future__ import annotations

import json
import random
from typing import Any

from mgcaffe.prototxt import print_text

_MESSAGE = 11
_FLOATS = (float("inf"), float("-inf"), float("nan"), 0.0, -0.0, -1.0, 1e38, -1e38, 1e-45, 0.5, 3.0)
_STRINGS = (
    "",
    "a\0b",
    "\0",
    "x" * 300,
    "y/" * 3000,
    "no such",
    ".",
    "/",
    "/dev/null",
    "/dev/zero",
    "é\n'\"",
    "%s{0}",
    "data",
)
_COUNTS = (0, 1, 3, 65, 300)
# As `json.dumps` writes them; numbers of many digits only as text.
_JSON = (
    "null", "true", "-1", "0", "0.5", "7", "1e308", "-1e308", "5e-324", "1e999", "NaN", "-Infinity", "9" * 30,
    "9" * 5000,
    "[]", "{}", '""', '"x"', '"\\u0000"', '"\\ud800"', '"' + "z" * 5000 + '"', "[" * 3000 + "]" * 3000, "[[[1]]]",
    '{"a": 1}', "4294967296", "1e18", "[1, 2]",
)  # fmt: skip
_CELLS = (
    "",
    "nan",
    "inf",
    "-inf",
    "-1",
    "0",
    "1e308",
    "1e-320",
    "9" * 400,
    "x",
    "\0",
    '"',
    "é",
    "1,2,3",
    "4294967296",
    "0.5",
)


def mutate_message(message: Any, numbers: random.Random, changes: int = 1) -> str:
    """Set fields of a message, or of messages inside it, to extreme values; return it as text."""
    mutate_fields(message, numbers, changes)
    return print_text(message)


def mutate_fields(message: Any, numbers: random.Random, changes: int = 1) -> None:
    """Set fields of a message, or of messages inside it, to extreme values, in place; any protobuf message."""
    for _ in range(changes):
        target = _some_message(message, numbers)
        field = numbers.choice(target.DESCRIPTOR.fields)
        if field.type == _MESSAGE:
            inner = getattr(target, field.name)
            if _is_repeated(field):
                inner.add()
            else:
                inner.SetInParent()
        elif _is_repeated(field):
            values = getattr(target, field.name)
            if values and numbers.random() < 0.5:
                values[numbers.randrange(len(values))] = _scalar(field, numbers)
            else:
                values.extend(_scalar(field, numbers) for _ in range(numbers.choice(_COUNTS)))
        else:
            setattr(target, field.name, _scalar(field, numbers))


def swap_values(message: Any, numbers: random.Random) -> None:
    """Put one value of a repeated field, somewhere in a message, into the place of another."""
    for _ in range(20):
        target = _some_message(message, numbers)
        rows = [value for field, value in target.ListFields() if _is_repeated(field) and len(value) > 1]
        if not rows:
            continue
        row = numbers.choice(rows)
        one, other = numbers.sample(range(len(row)), 2)
        if hasattr(row[one], "CopyFrom"):
            kept = type(row[one])()
            kept.CopyFrom(row[one])
            row[one].CopyFrom(row[other])
            if numbers.random() < 0.5:
                row[other].CopyFrom(kept)
        else:
            row[one], row[other] = row[other], row[one] if numbers.random() < 0.5 else row[other]
        return


def _some_message(message: Any, numbers: random.Random) -> Any:
    """The message or one inside it; most often one that nothing lies in, where a layer's own fields are."""
    while numbers.random() < 0.85:
        inner = [
            each
            for field, value in message.ListFields()
            if field.type == _MESSAGE
            for each in (value if _is_repeated(field) else [value])
        ]
        if not inner:
            break
        message = numbers.choice(inner)
    return message


def _is_repeated(field: Any) -> bool:
    """Newer versions of protobuf have no `label`, older ones no `is_repeated`."""
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED)


def _scalar(field: Any, numbers: random.Random) -> Any:
    kind = field.cpp_type
    if kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return numbers.choice(_FLOATS)
    if kind == field.CPPTYPE_BOOL:
        return numbers.random() < 0.5
    if kind == field.CPPTYPE_ENUM:
        return numbers.choice(field.enum_type.values).number
    if kind == field.CPPTYPE_STRING:
        text = numbers.choice(_STRINGS)
        return text if field.type == field.TYPE_STRING else text.encode()
    bits = 31 if kind in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32) else 63
    if kind in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64):
        return numbers.choice((0, 1, 2, 7, 1000, 2**bits - 1, 2**bits, 2 ** (bits + 1) - 1))
    return numbers.choice((0, 1, 2, 7, -1, -2, 1000, 2**16, 2**bits - 1, -(2**bits)))


def mutate_json(text: str, numbers: random.Random) -> str:
    """Change a value of a document, leave it out, or repeat it."""
    document = json.loads(text)
    places = list(_places(document, ()))
    path = numbers.choice(places)
    parent = document
    for step in path[:-1]:
        parent = parent[step]
    what = numbers.random()
    if what < 0.15 and path:
        del parent[path[-1]]
        return json.dumps(document)
    if what < 0.25 and path and isinstance(parent, list):
        parent.extend([parent[path[-1]]] * numbers.choice(_COUNTS))
        return json.dumps(document)
    mark = "\u2603 here \u2603"
    if not path:
        return numbers.choice(_JSON)
    parent[path[-1]] = mark
    return json.dumps(document).replace(json.dumps(mark), numbers.choice(_JSON))


def _places(value: Any, path: tuple[Any, ...]) -> Any:
    yield path
    if isinstance(value, dict):
        for name in value:
            yield from _places(value[name], (*path, name))
    elif isinstance(value, list):
        for index in range(len(value)):
            yield from _places(value[index], (*path, index))


def mutate_json_lines(text: str, numbers: random.Random) -> str:
    """Change one or two lines of JSON."""
    lines = text.splitlines()
    for _ in range(numbers.choice((1, 1, 2))):
        index = numbers.randrange(len(lines))
        try:
            lines[index] = mutate_json(lines[index], numbers)
        except (ValueError, RecursionError):
            continue
    return "\n".join(lines) + "\n"


def mutate_table(text: str, numbers: random.Random) -> str:
    """Change cells of a table whose columns are divided by commas or blanks."""
    lines = text.splitlines()
    for _ in range(numbers.choice((1, 1, 3))):
        index = numbers.randrange(len(lines))
        separator = "," if "," in lines[index] else " "
        cells = lines[index].split(separator)
        cells[numbers.randrange(len(cells))] = numbers.choice(_CELLS)
        lines[index] = separator.join(cells)
    return "\n".join(lines) + "\n"


def mutate_bytes(content: bytes, numbers: random.Random) -> bytes:
    """Flip, cut, repeat and insert bytes."""
    damaged = bytearray(content)
    for _ in range(numbers.choice((1, 1, 2, 8))):
        start = numbers.randrange(len(damaged) + 1)
        end = min(len(damaged), start + numbers.choice((0, 1, 1, 4, 40)))
        damaged[start:end] = numbers.choice(
            (
                b"",
                b"\0",
                b"\xff\xff\xff\xff",
                bytes(damaged[start:end]) * 2,
                numbers.randbytes(end - start),
                b"\x80" * 8,
            )
        )
    if numbers.random() < 0.1:
        del damaged[numbers.randrange(len(damaged) + 1) :]
    return bytes(damaged)
