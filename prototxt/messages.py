"""Caffe's messages as protobuf classes, by their names in the schema.

`messages.NetParameter`, `messages.LayerParameter`, ... are ordinary protobuf message classes, `messages.Phase` is an
enum (`Phase.Name(0)`), and `messages.TRAIN` and `messages.TEST` are its values. Those of an enum inside a message are
attributes of its class (`PoolingParameter.MAX`).

Type checkers and editors read `messages.pyi` beside this file, which `build_schema` writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mgcaffe.prototxt.descriptor_pool import NAMES, has_field, message_class, message_facts

__all__ = ["has_field", "message_class", "message_facts"]


def __getattr__(name: str) -> Any:
    """Return a message class, an enum, or a value of a top-level enum, by its name in the schema."""
    try:
        return NAMES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> Iterable[str]:
    """List every name of the schema."""
    return sorted(NAMES)
