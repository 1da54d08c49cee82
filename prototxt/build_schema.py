"""Builds the schema that the package ships from the three tables that describe it (see `schema_tables`).

Four files are written from `caffe_fields.csv`, `caffe_enums.csv` and `caffe_docs.csv`:

    caffe.binpb      a FileDescriptorSet, from which `messages` builds the message classes at import
    caffe.proto      the same as text, to be read by people and by any protobuf compiler
    messages.pyi     the same as type stubs, for editors and mypy
    docs/fields.md   our own numbers, and the fork fields that moved

Run `python -m mgcaffe.prototxt.build_schema` after editing a table; a test fails until it has been run.
"""

from __future__ import annotations

from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from google.protobuf.descriptor_pool import DescriptorPool

from mgcaffe.prototxt.render_schema import LABELS, SCALARS, render_docs, render_proto
from mgcaffe.prototxt.render_stubs import render_stubs
from mgcaffe.prototxt.schema_tables import (
    EnumValue,
    Field,
    merge_enums,
    merge_fields,
    read_docs,
    read_enums,
    read_fields,
)

HERE = Path(__file__).resolve().parent


def build_file(fields: list[Field], values: list[EnumValue]) -> FileDescriptorProto:
    """Build the descriptor of package `caffe` from merged fields and enum values."""
    file = FileDescriptorProto(name="caffe.proto", package="caffe", syntax="proto2")
    messages: dict[str, DescriptorProto] = {}

    def message(name: str) -> DescriptorProto:
        if name not in messages:
            outer, _, inner = name.rpartition(".")
            messages[name] = message(outer).nested_type.add() if outer else file.message_type.add()
            messages[name].name = inner
        return messages[name]

    enums: dict[str, EnumDescriptorProto] = {}
    for field in fields:
        message(field.message)
    for value in values:
        if value.enum not in enums:
            outer, _, inner = value.enum.rpartition(".")
            enums[value.enum] = message(outer).enum_type.add() if outer else file.enum_type.add()
            enums[value.enum].name = inner
        enums[value.enum].value.add(name=value.name, number=value.number)
    for field in fields:
        _add_field(message(field.message), field, is_enum=field.type in enums)
    return file


def _add_field(message: DescriptorProto, field: Field, *, is_enum: bool) -> None:
    described = message.field.add(name=field.name, number=field.number, label=LABELS[field.label])
    if field.type in SCALARS:
        described.type = SCALARS[field.type]
    else:
        described.type = FieldDescriptorProto.TYPE_ENUM if is_enum else FieldDescriptorProto.TYPE_MESSAGE
        described.type_name = f".caffe.{field.type}"
    if field.default:
        described.default_value = field.default
    if field.packed:
        described.options.packed = True


def build(folder: Path = HERE) -> dict[str, bytes]:
    """Build the four files from the tables in `folder`. Returns their contents by name.

    Raises:
        TypeError: protobuf refuses the schema.
        ValueError: a text belongs to a message or field that the schema does not have.
    """
    all_fields = read_fields(folder / "caffe_fields.csv")
    fields = merge_fields(all_fields)
    values = merge_enums(read_enums(folder / "caffe_enums.csv"))
    docs = read_docs(folder / "caffe_docs.csv")
    unknown = docs.keys() - {(field.message, name) for field in fields for name in ("", field.name)}
    if unknown:
        raise ValueError(f"caffe_docs.csv is about what the schema does not have: {sorted(unknown)}")
    file = build_file(fields, values)
    DescriptorPool().AddSerializedFile(file.SerializeToString())
    return {
        "caffe.binpb": FileDescriptorSet(file=[file]).SerializeToString(deterministic=True),
        "caffe.proto": render_proto(file, docs).encode(),
        "messages.pyi": render_stubs(file, fields, docs).encode(),
        "fields.md": render_docs(fields, values, all_fields).encode(),
    }


def main() -> None:
    """Write the files to where they belong in the repository."""
    files = build()
    for name in ("caffe.binpb", "caffe.proto", "messages.pyi"):
        (HERE / name).write_bytes(files[name])
    (HERE.parent / "docs" / "fields.md").write_bytes(files["fields.md"])


if __name__ == "__main__":
    main()
