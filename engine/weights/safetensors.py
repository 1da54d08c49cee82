"""The layout of a safetensors file, without the package of that name.

A safetensors file is the length of its head (eight bytes, the lowest first), the head (JSON: types, shapes and places
by name), and the values one array after the other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

LONGEST_HEAD = 100 * 1000 * 1000
"""How many bytes of a head the package safetensors reads at most."""
TYPES: dict[str, np.dtype[Any]] = {"F64": np.dtype("<f8"), "F32": np.dtype("<f4"), "I64": np.dtype("<i8")}
"""The types that are written."""


def encode_head(
    arrays: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]], metadata: Mapping[str, str] | None = None
) -> tuple[bytes, list[str]]:
    """Return what stands before the values, and the names of the arrays in the order in which their values follow.

    Args:
        arrays: type (float64, float32 or int64) and shape of each by name.
        metadata: what the head's `__metadata__` holds.
    """
    # As safetensors' own writer does: larger types first, so that each value lies at a multiple of its size.
    ordered = sorted(arrays, key=lambda name: -arrays[name][0].itemsize)
    names = {dtype.newbyteorder("="): name for name, dtype in TYPES.items()}
    head: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    place = 0
    for name in ordered:
        dtype, shape = arrays[name]
        end = place + math.prod(shape) * dtype.itemsize
        head[name] = {"dtype": names[dtype], "shape": shape, "data_offsets": [place, end]}
        place = end
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, ordered
