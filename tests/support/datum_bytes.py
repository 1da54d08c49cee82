"""Datum records put together byte by byte from the description of the format, without protobuf."""

from __future__ import annotations

import struct
from collections.abc import Sequence


def varint(number: int) -> bytes:
    """Return a number in protobuf's form; a negative one takes ten bytes."""
    number &= 2**64 - 1
    parts = []
    while number > 127:
        parts.append(number % 128 + 128)
        number //= 128
    return bytes([*parts, number])


def datum_bytes(
    *,
    shape: Sequence[int] = (),
    data: bytes | None = None,
    label: int | None = None,
    floats: Sequence[float] = (),
    encoded: bool | None = None,
) -> bytes:
    """Return a Datum: channels 1, height 2, width 3, data 4, label 5, float_data 6 (not packed), encoded 7."""
    parts = [bytes([field * 8]) + varint(size) for field, size in zip((1, 2, 3), shape, strict=False)]
    if data is not None:
        parts.append(bytes([4 * 8 + 2]) + varint(len(data)) + data)
    if label is not None:
        parts.append(bytes([5 * 8]) + varint(label))
    parts += [bytes([6 * 8 + 5]) + struct.pack("<f", value) for value in floats]
    if encoded is not None:
        parts.append(bytes([7 * 8, encoded]))
    return b"".join(parts)
