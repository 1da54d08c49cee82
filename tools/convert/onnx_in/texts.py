"""Checks the texts of an ONNX file: protobuf gives those that are damaged as bytes, which nothing expects."""

from __future__ import annotations

from pathlib import Path

from google.protobuf.message import Message

from mgcaffe.errors import DataError

_NAMES = {"name", "op_type", "domain", "input", "output", "ref_attr_name", "dim_param", "overload"}
_LONGEST = 1000
"""As for names in a prototxt, which they become."""
_SHOWN = 40


def check_texts(message: Message, path: Path) -> None:
    """Refuse texts that are no UTF-8, and names without end, in a message and those inside it.

    Raises:
        DataError: says which text.
    """
    for field, value in message.ListFields():
        if field.type not in (field.TYPE_STRING, field.TYPE_MESSAGE):
            continue
        for each in [value] if isinstance(value, str | bytes | Message) else value:
            if isinstance(each, Message):
                check_texts(each, path)
            elif isinstance(each, bytes):
                raise DataError(f"{path} is damaged: {field.full_name} is not UTF-8 ({each[:_SHOWN]!r})")
            elif field.name in _NAMES and len(each) > _LONGEST:
                raise DataError(
                    f"{path}: {field.full_name} '{each[:_SHOWN]}...' has {len(each)} characters, and a name has at most"
                    f" {_LONGEST}"
                )
