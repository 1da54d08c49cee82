"""Nets and their data: blobs, layers, fillers, graph rules, the net and its data path.

Names are loaded on first use, so that importing this package loads neither torch nor MPI.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mgcaffe.engine.arena import ParameterArena as ParameterArena
    from mgcaffe.engine.blob import Blob as Blob
    from mgcaffe.engine.layer import Layer as Layer
    from mgcaffe.engine.layer_context import LayerContext as LayerContext
    from mgcaffe.engine.net import Net as Net
    from mgcaffe.engine.parameter import Parameter as Parameter
    from mgcaffe.engine.registry import register as register
    from mgcaffe.engine.shard import Shard as Shard
    from mgcaffe.engine.shard import TestShard as TestShard

_MODULE_OF = {
    "Blob": "blob",
    "Layer": "layer",
    "LayerContext": "layer_context",
    "Net": "net",
    "Parameter": "parameter",
    "ParameterArena": "arena",
    "Shard": "shard",
    "TestShard": "shard",
    "register": "registry",
}

__all__ = sorted(_MODULE_OF)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in _MODULE_OF:
            return getattr(importlib.import_module(f"mgcaffe.engine.{_MODULE_OF[name]}"), name)
        raise AttributeError(f"module 'mgcaffe.engine' has no attribute {name!r}")
