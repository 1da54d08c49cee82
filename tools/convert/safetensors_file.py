"""Writes safetensors files, array by array, without a second copy of the weights in memory."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mgcaffe.engine.weights.safetensors import encode_head
from mgcaffe.errors import UsageError


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
    head, ordered = encode_head({name: (array.dtype, array.shape) for name, array in arrays.items()}, metadata)
    with path.open("wb") as file:
        file.write(head)
        for name in ordered:
            values = np.asarray(arrays[name].load(), arrays[name].dtype.newbyteorder("<"), order="C")
            file.write(values.reshape(-1).view(np.uint8).data)
        file.flush()
        os.fsync(file.fileno())
