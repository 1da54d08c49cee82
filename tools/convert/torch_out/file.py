"""Writes the files of a module: the text, and the arrays as safetensors, without a second copy in memory."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mgcaffe.errors import EXIT_CANNOT_WRITE, EngineError
from mgcaffe.tools.convert.safetensors_file import ArrayToWrite, write_safetensors
from mgcaffe.tools.convert.torch_out.module import Module

DOCUMENT = "mgcaffe"
"""The key of the head's `__metadata__`, or the extra file of a .pt2, that holds `Module.document`."""
_TYPES: Mapping[torch.dtype, np.dtype[Any]] = {torch.float32: np.dtype(np.float32), torch.int64: np.dtype(np.int64)}


def write_text(text: str, path: Path) -> None:
    """Write a text, and have it on the disk.

    Raises:
        EngineError: (exit code 73) it cannot be written.
    """
    try:
        with path.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise EngineError(f"cannot write {path}: {error.strerror}", exit_code=EXIT_CANNOT_WRITE) from None


def write_arrays(module: Module, path: Path) -> None:
    """Write the module's arrays with its document.

    Raises:
        EngineError: (exit code 73) the file cannot be written.
    """
    arrays = {
        name: ArrayToWrite(_TYPES[tensor.dtype], tuple(tensor.shape), tensor.numpy)
        for name, tensor in state_of(module).items()
    }
    metadata = {"format": "pt", DOCUMENT: json.dumps(module.document())}
    try:
        write_safetensors(arrays, path, metadata)
    except OSError as error:
        raise EngineError(f"cannot write {path}: {error.strerror}", exit_code=EXIT_CANNOT_WRITE) from None


def state_of(module: Module) -> Mapping[str, torch.Tensor]:
    """Return the arrays as a `state_dict`: float32 (whole numbers: int64), on the CPU; not copied where they are so."""
    return {
        name: array.tensor.detach().to("cpu", torch.float32 if array.tensor.is_floating_point() else torch.int64)
        for name, array in module.arrays.items()
    }
