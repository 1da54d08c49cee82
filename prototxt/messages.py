"""Caffe's messages as protobuf classes, built at import from the descriptor set that the package ships.

`messages.NetParameter`, `messages.LayerParameter`, ... are ordinary protobuf message classes, and
`messages.TRAIN` and `messages.TEST` are the values of the enum Phase. Those of an enum inside a message are
attributes of its class (`PoolingParameter.MAX`). The classes live in a descriptor pool of their own, so a
Caffe schema that another library has loaded does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorSet

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
        for enum in loaded.enum_types_by_name.values():
            names.update((value.name, value.number) for value in enum.values)
    return names


_NAMES = _load()


def __getattr__(name: str) -> Any:
    """Gives a message class, or a value of a top-level enum, by its name in the schema."""
    try:
        return _NAMES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> Iterable[str]:
    """Lists every name of the schema."""
    return sorted(_NAMES)


def message_class(name: str) -> Any:
    """Gives the class of a message of the schema (`"NetParameter"`, or `"Outer.Inner"` for a nested one).

    Raises:
        KeyError: the schema has no message of that name.
    """
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"caffe.{name}"))


def message_facts(message: Any) -> MessageFacts:
    """Tells what the schema says about a message, or about a message class."""
    return _FACTS[message.DESCRIPTOR.full_name]
