"""Writes the files of a module: the text, and the arrays as safetensors, without a second copy in memory.

A safetensors file is the length of its head (eight bytes, the lowest first), the head (JSON: types, shapes and places
by name), and the values one array after the other.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from mgcaffe.errors import EXIT_CANNOT_WRITE, EngineError
from mgcaffe.tools.convert.torch_out.module import Module

DOCUMENT = "mgcaffe"
"""The key of the head's `__metadata__`, or the extra file of a .pt2, that holds `Module.document`."""
_TYPES = {torch.float32: "F32", torch.int64: "I64"}


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
    tensors = state_of(module)
    # As safetensors' own writer does: larger types first, so that each value lies at a multiple of its size.
    ordered = sorted(tensors, key=lambda name: -tensors[name].element_size())
    head: dict[str, Any] = {"__metadata__": {"format": "pt", DOCUMENT: json.dumps(module.document())}}
    place = 0
    for name in ordered:
        end = place + tensors[name].numel() * tensors[name].element_size()
        head[name] = {
            "dtype": _TYPES[tensors[name].dtype],
            "shape": list(tensors[name].shape),
            "data_offsets": [place, end],
        }
        place = end
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    try:
        with path.open("wb") as file:
            file.write(len(text).to_bytes(8, "little"))
            file.write(text)
            for name in ordered:
                file.write(tensors[name].contiguous().reshape(-1).view(torch.uint8).numpy().data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise EngineError(f"cannot write {path}: {error.strerror}", exit_code=EXIT_CANNOT_WRITE) from None


def state_of(module: Module) -> Mapping[str, torch.Tensor]:
    """Return the arrays as a `state_dict`: float32 (whole numbers: int64), on the CPU; not copied where they are so."""
    return {
        name: array.tensor.detach().to("cpu", torch.float32 if array.tensor.is_floating_point() else torch.int64)
        for name, array in module.arrays.items()
    }
