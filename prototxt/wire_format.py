"""Walks through messages in protobuf's wire format without reading what is large in them.

A message is a row of fields, each a number and a kind (its tag) and then, for what has a length (kind 2: strings,
bytes, messages, packed numbers), that length and so many bytes. Nothing here knows a schema.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

Read = Callable[[int, int], bytes]
"""Gives at most so many bytes (the second number) from a place on (the first one)."""
Tree: TypeAlias = "Mapping[int, Tree | str]"
"""By field number, either that of the messages in the field, or what its values are called."""

_HEAD = 20  # a tag and a length, ten bytes each at most
_SIZES = {1: 8, 5: 4}
_MOST_FIELDS = 1 << 20
_SMALL = 4096


class NotWalkable(Exception):
    """These bytes are damaged, or no message, or in a form that is unusual; whoever reads all of them can say what."""


@dataclass(frozen=True)
class Field:
    """One field of a message: its number and kind, where its tag and its content begin, and where it ends."""

    number: int
    kind: int
    start: int
    content: int
    end: int


@dataclass(frozen=True)
class Payload:
    """Bytes that were left where they are: the number of their field, where they begin, and how many there are."""

    number: int
    offset: int
    length: int


def varint(value: int) -> bytes:
    """Return a number as protobuf writes it: seven bits a byte, the lowest first."""
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def field_head(number: int, length: int) -> bytes:
    """Return what stands in front of a field of so many bytes: its number, its kind and its length."""
    return varint(number << 3 | 2) + varint(length)


def reader_of(data: bytes | memoryview) -> Read:
    """Return what gives parts of bytes in memory."""
    return lambda start, count: bytes(data[start : start + count])


def fields_of(read: Read, start: int, end: int) -> Iterator[Field]:
    """Give the fields of a message that lies between two places.

    Raises:
        NotWalkable: there are no fields there, or the last one is cut short.
    """
    position = start
    while position < end:
        head = read(position, _HEAD)
        tag, used = _varint_in(head, 0)
        kind, content, size = tag & 7, position + used, _SIZES.get(tag & 7, -1)
        if kind == 0:
            size = _varint_in(head, used)[1] - used
        elif kind == 2:
            size, used = _varint_in(head, used)
            content = position + used
        if size < 0 or content + size > end or not tag >> 3:
            raise NotWalkable
        yield Field(tag >> 3, kind, position, content, content + size)
        position = content + size


def without_payloads(read: Read, size: int, tree: Tree) -> tuple[bytes, list[dict[str, Payload]]]:
    """Return a message without the large values in it, and where these are.

    Args:
        read: gives parts of the message.
        size: how many bytes it has.
        tree: where the values are.

    Returns:
        The message, and for each innermost message of the tree, in order, its large values by what they are called.

    Raises:
        NotWalkable: it is no message, or one field's values come in several parts.
    """
    found: list[dict[str, Payload]] = []
    return _without(read, 0, size, tree, found, [0]), found


def _without(read: Read, start: int, end: int, tree: Tree, found: list[dict[str, Payload]], walked: list[int]) -> bytes:
    kept = bytearray()
    mine: dict[str, Payload] = {}
    parts: Counter[str] = Counter()
    innermost = all(isinstance(inner, str) for inner in tree.values())
    if innermost:
        found.append(mine)
    for field in fields_of(read, start, end):
        walked[0] += 1
        if walked[0] > _MOST_FIELDS:
            raise NotWalkable
        inner = tree.get(field.number)
        if isinstance(inner, str):
            parts[inner] += 1
        if inner is None or field.kind != 2 or (isinstance(inner, str) and field.end - field.content < _SMALL):
            kept += _all_of(read, field.start, field.end)
        elif isinstance(inner, str):
            mine[inner] = Payload(field.number, field.content, field.end - field.content)
        else:
            body = _without(read, field.content, field.end, inner, found, walked)
            kept += field_head(field.number, len(body)) + body
    if any(parts[name] > 1 for name in mine):
        raise NotWalkable
    return bytes(kept)


def _all_of(read: Read, start: int, end: int) -> bytes:
    data = read(start, end - start)
    if len(data) != end - start:
        raise NotWalkable
    return data


def _varint_in(data: bytes, position: int) -> tuple[int, int]:
    """Return the number at a place, and the place behind it."""
    value = shift = 0
    for place in range(position, min(position + 10, len(data))):
        value |= (data[place] & 127) << shift
        if data[place] < 128:
            return value, place + 1
        shift += 7
    raise NotWalkable
