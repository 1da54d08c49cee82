"""Caffe's messages under the name by which scripts import them; `google.protobuf.text_format` works on them.

from caffe.proto import caffe_pb2
net = caffe_pb2.NetParameter()
text_format.Merge(open("net.prototxt").read(), net)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mgcaffe.prototxt import NetState, messages

DESCRIPTOR = NetState.DESCRIPTOR.file
__all__ = dir(messages)


def __getattr__(name: str) -> Any:
    """Return a message class, a top-level enum, or a value of one, by its name in the schema."""
    return getattr(messages, name)


def __dir__() -> Iterable[str]:
    """List every name of the schema."""
    return dir(messages)
