"""Writes the schema as type stubs: what editors complete and mypy checks of the message classes.

The conventions are those of protoc's own stubs: an enum is an int with named values, a repeated field is one of
protobuf's containers, a message inside a message cannot be assigned. `HasField` takes only names of fields that it can
answer for; `mgcaffe.prototxt.has_field` takes a name that is worked out.
"""

from __future__ import annotations

import keyword
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from mgcaffe.prototxt.render_schema import Docs
from mgcaffe.prototxt.schema_tables import Field

_WIDTH = 120
_PYTHON_TYPES = {
    FieldDescriptorProto.TYPE_BOOL: "bool",
    FieldDescriptorProto.TYPE_BYTES: "bytes",
    FieldDescriptorProto.TYPE_DOUBLE: "float",
    FieldDescriptorProto.TYPE_FLOAT: "float",
    FieldDescriptorProto.TYPE_INT32: "int",
    FieldDescriptorProto.TYPE_INT64: "int",
    FieldDescriptorProto.TYPE_STRING: "str",
    FieldDescriptorProto.TYPE_UINT32: "int",
    FieldDescriptorProto.TYPE_UINT64: "int",
}
_ORIGINS = {
    "bvlc": "",
    "mgcaffe": "A field of mgcaffe.",
    "ssd": "A field of the SSD fork.",
    "nvidia": "A field of NVIDIA's fork.",
    "intel": "A field of Intel's fork.",
    "a fork": "A field of a smaller fork.",
}
_HEADER = '''\
"""Types of Caffe's messages. Written by build_schema.py from its tables."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

from google.protobuf.internal.containers import RepeatedCompositeFieldContainer, RepeatedScalarFieldContainer
from google.protobuf.message import Message
from typing_extensions import Never, Self

from mgcaffe.prototxt.descriptor_pool import has_field as has_field
from mgcaffe.prototxt.descriptor_pool import message_class as message_class
from mgcaffe.prototxt.descriptor_pool import message_facts as message_facts

class _Enum(int):
    """A value of an enum; the class is protobuf's EnumTypeWrapper, which makes no values."""

    def __new__(cls, _: Never, /) -> Self: ...
    @classmethod
    def Name(cls, number: int) -> str: ...
    @classmethod
    def Value(cls, name: str) -> Self: ...
    @classmethod
    def keys(cls) -> list[str]: ...
    @classmethod
    def values(cls) -> list[Self]: ...
    @classmethod
    def items(cls) -> list[tuple[str, Self]]: ...
'''


def render_stubs(file: FileDescriptorProto, fields: Iterable[Field], docs: Docs) -> str:
    """Write the stubs of a file's messages and enums, the text of messages.pyi.

    Args:
        file: the schema.
        fields: its resolved fields, which say whose each is.
        docs: what messages and fields mean.
    """
    return "\n".join(_Stubs({(field.message, field.name): _origin(field) for field in fields}, docs).lines(file)) + "\n"


class _Stubs:
    def __init__(self, origins: Mapping[tuple[str, str], str], docs: Docs) -> None:
        self._origins = origins
        self._docs = docs

    def lines(self, file: FileDescriptorProto) -> Iterator[str]:
        yield _HEADER
        for enum in file.enum_type:
            yield from _enum(enum, enum.name)
            yield ""
            yield from (f"{value.name}: {enum.name}" for value in enum.value)
            yield ""
        for message in file.message_type:
            yield from self._message(message, message.name)
            yield ""

    def _message(self, message: DescriptorProto, path: str) -> Iterator[str]:
        yield f"class {message.name}(Message):"
        yield from _indented(self._body(message, path))

    def _body(self, message: DescriptorProto, path: str) -> Iterator[str]:
        if (path, "") in self._docs:
            yield from _docstring(self._docs[path, ""])
            yield ""
        for enum in message.enum_type:
            inner = f"{path}.{enum.name}"
            yield from _enum(enum, inner)
            yield ""
            yield from (f"{value.name}: ClassVar[{inner}]" for value in enum.value)
            yield ""
        for nested in message.nested_type:
            yield from self._message(nested, f"{path}.{nested.name}")
            yield ""
        # A field whose name is a keyword can be reached by getattr alone.
        fields = [field for field in message.field if not keyword.iskeyword(field.name)]
        for field in fields:
            yield from self._field(field, path)
        yield from _constructor(fields)
        yield from _has_field([field.name for field in fields if field.label != FieldDescriptorProto.LABEL_REPEATED])

    def _field(self, field: FieldDescriptorProto, path: str) -> Iterator[str]:
        meaning = self._docs.get((path, field.name)) or self._docs.get(
            (field.type_name.removeprefix(".caffe."), ""), ""
        )
        said = [meaning, _default(field), _ORIGINS[self._origins[path, field.name]]]
        doc = list(_docstring(" ".join(part for part in said if part)))
        if field.label != FieldDescriptorProto.LABEL_REPEATED and field.type != FieldDescriptorProto.TYPE_MESSAGE:
            yield f"{field.name}: {_value_type(field)}"
            yield from doc
            return
        yield "@property"
        yield f"def {field.name}(self) -> {_container(field)}:{'' if doc else ' ...'}"
        yield from _indented(doc)


def _enum(enum: EnumDescriptorProto, path: str) -> Iterator[str]:
    yield f"class {enum.name}(_Enum):"
    yield from _indented(f"{value.name}: ClassVar[{path}]" for value in enum.value)


def _constructor(fields: Iterable[FieldDescriptorProto]) -> Iterator[str]:
    arguments = [f"{field.name}: {_argument(field)} | None = None," for field in fields]
    if not arguments:
        yield "def __init__(self) -> None: ..."
        return
    yield "def __init__("
    yield from _indented(["self,", "*,", *arguments])
    yield ") -> None: ..."


def _has_field(names: Sequence[str]) -> Iterator[str]:
    if not names:
        yield "def HasField(self, field_name: Never) -> bool: ..."
        return
    yield "def HasField("
    yield "    self,"
    yield "    field_name: Literal["
    literals = ", ".join(f'"{name}"' for name in names)
    yield from textwrap.wrap(literals, _WIDTH - 16, initial_indent=" " * 8, subsequent_indent=" " * 8)
    yield "    ],"
    yield ") -> bool: ..."


def _value_type(field: FieldDescriptorProto) -> str:
    return _PYTHON_TYPES.get(field.type) or field.type_name.removeprefix(".caffe.")


def _container(field: FieldDescriptorProto) -> str:
    if field.label != FieldDescriptorProto.LABEL_REPEATED:
        return _value_type(field)
    kind = "Composite" if field.type == FieldDescriptorProto.TYPE_MESSAGE else "Scalar"
    return f"Repeated{kind}FieldContainer[{_value_type(field)}]"


def _argument(field: FieldDescriptorProto) -> str:
    one = _value_type(field)
    if field.type == FieldDescriptorProto.TYPE_MESSAGE:
        one = f"{one} | Mapping[str, Any]"
    elif field.type == FieldDescriptorProto.TYPE_ENUM:
        one = f"{one} | str"
    return f"Iterable[{one}]" if field.label == FieldDescriptorProto.LABEL_REPEATED else one


def _default(field: FieldDescriptorProto) -> str:
    if field.label == FieldDescriptorProto.LABEL_REQUIRED:
        return "Required."
    if not field.HasField("default_value"):
        return ""
    quoted = field.type in (FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_BYTES)
    return f"Default: {repr(field.default_value) if quoted else field.default_value}."


def _docstring(text: str) -> Iterator[str]:
    if not text:
        return
    lines = textwrap.wrap(text, _WIDTH - 16)
    lines[0] = f'"""{lines[0]}'
    lines[-1] = f'{lines[-1]}"""'
    yield from lines


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"    {line}" if line else "" for line in lines)


def _origin(field: Field) -> str:
    return "a fork" if field.is_of_smaller_fork else field.origin
