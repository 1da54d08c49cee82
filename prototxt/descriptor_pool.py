"""The message classes of the schema, built at import from the descriptor set that the package ships.

The classes live in a descriptor pool of their own, so a Caffe schema that another library has loaded does no
harm. `messages` gives them by their names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message import Message

from mgcaffe.prototxt.schema import MessageFacts, collect

_POOL = descriptor_pool.DescriptorPool()
_DESCRIBED = FileDescriptorSet.FromString(Path(__file__).with_name("caffe.binpb").read_bytes())
_FACTS = collect(_DESCRIBED)


def _load() -> dict[str, Any]:
    names: dict[str, Any] = {}
    for file in _DESCRIBED.file:
        _POOL.AddSerializedFile(file.SerializeToString())
        loaded = _POOL.FindFileByName(file.name)
        for name, message in loaded.message_types_by_name.items():
            names[name] = message_factory.GetMessageClass(message)
        for name, enum in loaded.enum_types_by_name.items():
            names[name] = EnumTypeWrapper(enum)
            names.update((value.name, value.number) for value in enum.values)
    return names


NAMES = _load()
"""Every message class, enum, and value of a top-level enum, by its name in the schema."""


def message_class(name: str) -> type[Message]:
    """Return the class of a message of the schema (`"NetParameter"`, or `"Outer.Inner"` for a nested one).

    Raises:
        KeyError: the schema has no message of that name.
    """
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"caffe.{name}"))


def message_facts(message: Message | type[Message]) -> MessageFacts:
    """Return what the schema says about a message, or about a message class."""
    return _FACTS[message.DESCRIPTOR.full_name]


def has_field(message: Message, name: str) -> bool:
    """Return whether an optional field is set, by a name that is not a literal.

    Where the name is a literal, `message.HasField("name")` lets mypy check it against the schema.
    """
    return message.HasField(name)
