"""Writes the schema as text: as a .proto file, and as the page of the docs about its numbers."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Mapping

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from mgcaffe.prototxt.schema_tables import ORIGINS, RELOCATED, EnumValue, Field

Docs = Mapping[tuple[str, str], str]
"""What a field means by message and field; what a message is for, under an empty field."""

_WIDTH = 120
SCALARS = {
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "double": FieldDescriptorProto.TYPE_DOUBLE,
    "float": FieldDescriptorProto.TYPE_FLOAT,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "string": FieldDescriptorProto.TYPE_STRING,
    "uint32": FieldDescriptorProto.TYPE_UINT32,
    "uint64": FieldDescriptorProto.TYPE_UINT64,
}
LABELS = {
    "optional": FieldDescriptorProto.LABEL_OPTIONAL,
    "required": FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": FieldDescriptorProto.LABEL_REPEATED,
}


def render_proto(file: FileDescriptorProto, docs: Docs) -> str:
    """Write the descriptor as a .proto file, with what messages and fields mean as comments."""
    lines = [
        "// The messages of Caffe and its forks, and our own. Written by build_schema.py from its tables.",
        f'syntax = "{file.syntax}";',
        f"package {file.package};",
    ]
    for enum in file.enum_type:
        lines += ["", *_render_enum(enum, "")]
    for message in file.message_type:
        lines += ["", *_render_message(message, message.name, "", docs)]
    return "\n".join(lines) + "\n"


def _render_enum(enum: EnumDescriptorProto, indent: str) -> list[str]:
    values = [f"{indent}  {value.name} = {value.number};" for value in enum.value]
    return [f"{indent}enum {enum.name} {{", *values, f"{indent}}}"]


def _render_message(message: DescriptorProto, path: str, indent: str, docs: Docs) -> list[str]:
    inside = indent + "  "
    lines = [*_comment(docs.get((path, ""), ""), indent), f"{indent}message {message.name} {{"]
    for enum in message.enum_type:
        lines += _render_enum(enum, inside)
    for nested in message.nested_type:
        lines += _render_message(nested, f"{path}.{nested.name}", inside, docs)
    for field in message.field:
        lines += [*_comment(docs.get((path, field.name), ""), inside), f"{inside}{_render_field(field)}"]
    return [*lines, indent + "}"]


def _comment(text: str, indent: str) -> list[str]:
    return [f"{indent}// {line}" for line in textwrap.wrap(text, _WIDTH - len(indent) - 3)]


def _render_field(field: FieldDescriptorProto) -> str:
    label = next(name for name, number in LABELS.items() if number == field.label)
    scalar = next((name for name, number in SCALARS.items() if number == field.type), None)
    options = []
    if field.HasField("default_value"):
        quoted = scalar in ("string", "bytes")
        options.append(f'default = "{field.default_value}"' if quoted else f"default = {field.default_value}")
    if field.options.packed:
        options.append("packed = true")
    brackets = f" [{', '.join(options)}]" if options else ""
    type_name = scalar or field.type_name.removeprefix(".caffe.")
    return f"{label} {type_name} {field.name} = {field.number}{brackets};"


_INTRODUCTION = """\
# Field numbers

Written by `python -m mgcaffe.prototxt.build_schema` from `prototxt/caffe_fields.csv` and
`prototxt/caffe_enums.csv`; the whole schema, with what its fields mean, is `prototxt/caffe.proto`.

## Our own fields

Never reused. Caffe skips them in binary files; its text parser refuses them, so each of a solver or a data layer is
also a flag. Those of other layers (from 1101 on, and the messages that they hold) are what forks call so in text,
without a number that they agree on.

| message | field | number | type | default |
|---|---|---|---|---|
"""
_MOVED = """
## Fork fields that moved

Where names or numbers clash, BVLC's meaning wins, then SSD's, NVIDIA's, Intel's. The fields below lost
their number. In text they are read by name. In a binary file their own number means the winner's field, so
a binary file of the fork that uses one of them is read as the winner's field, or warned about where the
types differ: there is no flag yet that says which fork wrote a file. Give such a file as text.

| message | field | origin | its number there | number here | who has its number |
|---|---|---|---|---|---|
"""
_FURTHER = """
## Further numbers of one field

The same field, under different numbers in different origins. Text is read by name as ever. In binary only
the number here is read; another one is reported as unknown, or belongs to the field that the table above
names.

| message | field | number here | other numbers |
|---|---|---|---|
"""


def render_docs(fields: list[Field], values: list[EnumValue], all_fields: list[Field]) -> str:
    """Write docs/fields.md: our numbers, the fork fields that moved, the fork numbers that are not read.

    Args:
        fields: the resolved fields.
        values: the resolved enum values.
        all_fields: every row of the table, with those that lost to another origin's row.
    """
    own = [
        f"| {field.message} | {field.name} | {field.number} | {field.label} {field.type} | {field.default} |"
        for field in fields
        if field.origin == "mgcaffe"
    ]
    return "".join(
        f"{introduction}{''.join(row + chr(10) for row in rows)}"
        for introduction, rows in (
            (_INTRODUCTION, own),
            (_MOVED, _moved_rows(fields, values, all_fields)),
            (_FURTHER, _further_rows(fields, all_fields)),
        )
    )


def _moved_rows(fields: list[Field], values: list[EnumValue], all_fields: list[Field]) -> list[str]:
    owner: dict[tuple[str, int], Field] = {}
    for field in sorted(all_fields, key=lambda field: ORIGINS.index(field.origin)):
        owner.setdefault((field.message, field.own_number), field)
    rows = []
    for field in fields:
        if field.number >= min(RELOCATED.values()):
            winner = owner[field.message, field.own_number]
            rows.append(
                f"| {field.message} | {field.name} | {field.origin} | {field.own_number} | {field.number} "
                f"| {winner.name} ({winner.origin}) |"
            )
    for value in values:
        if value.number >= min(RELOCATED.values()):
            winners = [other.name for other in values if (other.enum, other.number) == (value.enum, value.own_number)]
            rows.append(
                f"| {value.enum} | {value.name} (a value) | {value.origin} | {value.own_number} "
                f"| {value.number} | {', '.join(winners)} |"
            )
    return rows


def _further_rows(fields: list[Field], all_fields: list[Field]) -> list[str]:
    resolved = {(field.message, field.name): field for field in fields}
    others = defaultdict(list)
    for field in all_fields:
        here = resolved[field.message, field.name]
        is_listed_as_moved = here.number >= min(RELOCATED.values()) and field.origin == here.origin
        if field.own_number != here.number and not is_listed_as_moved:
            others[field.message, field.name].append(f"{field.own_number} ({field.origin})")
    return [
        f"| {message} | {name} | {resolved[message, name].number} | {', '.join(numbers)} |"
        for (message, name), numbers in others.items()
    ]
