"""The machine: blobs, layers, fillers, graph rules, the net and its data path.

Names are loaded on first use, so that importing this package costs neither torch nor a second.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "Blob": "blob",
    "Layer": "layer",
    "LayerContext": "layer",
    "Net": "net",
    "Parameter": "parameter",
    "ParameterArena": "arena",
    "Shard": "shard",
    "TestShard": "shard",
    "register": "registry",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"mgcaffe.engine.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'mgcaffe.engine' has no attribute {name!r}")
