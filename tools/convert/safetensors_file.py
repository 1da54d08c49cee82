"""Writes safetensors files, array by array, without a second copy of the weights in memory.

A safetensors file is the length of its head (eight bytes, the lowest first), the head (JSON: types, shapes and places
by name), and the values one array after the other.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mgcaffe.errors import UsageError

LONGEST_HEAD = 100 * 1000 * 1000
"""How many bytes of a head the package safetensors reads at most."""
_TYPES = {np.dtype(np.float64): "F64", np.dtype(np.float32): "F32", np.dtype(np.int64): "I64"}


@dataclass(frozen=True)
class ArrayToWrite:
    """An array of a file.

    Attributes:
        dtype: how its values are stored: float64, float32 or int64.
        shape: its shape.
        load: gives its values, in any type.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    load: Callable[[], NDArray[Any]]


def need_safetensors() -> None:
    """Make sure that the package is installed.

    Raises:
        UsageError: it is not; names the command that installs it.
    """
    if importlib.util.find_spec("safetensors") is None:
        raise UsageError("safetensors is not installed", hint="pip install 'mgcaffe[safetensors]'")


def write_safetensors(
    arrays: Mapping[str, ArrayToWrite], path: Path, metadata: Mapping[str, str] | None = None
) -> None:
    """Write arrays by their names, and have the file on the disk.

    Args:
        arrays: by name; each is loaded when it is written.
        path: the file; what is there is overwritten.
        metadata: what the head's `__metadata__` holds.

    Raises:
        OSError: the file cannot be written.
    """
    # As safetensors' own writer does: larger types first, so that each value lies at a multiple of its size.
    ordered = sorted(arrays, key=lambda name: -arrays[name].dtype.itemsize)
    head: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    place = 0
    for name in ordered:
        array = arrays[name]
        end = place + math.prod(array.shape) * array.dtype.itemsize
        head[name] = {"dtype": _TYPES[array.dtype], "shape": array.shape, "data_offsets": [place, end]}
        place = end
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in ordered:
            values = np.asarray(arrays[name].load(), arrays[name].dtype.newbyteorder("<"), order="C")
            file.write(values.reshape(-1).view(np.uint8).data)
        file.flush()
        os.fsync(file.fileno())
