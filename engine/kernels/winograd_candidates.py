"""Winograd's convolutions as candidates of a convolution's three directions, which round more than the others.

| candidate | what it does |
|---|---|
| winograd_f43, _f53, _f73, _f45 | filters of 3 or 5 rows with fewer multiplications (`winograd.py`) |
| winograd_tiles_f23, _f43, _f45 | square filters of 3 or 5 rows with still fewer (`winograd_tiles.py`) |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch

from mgcaffe.engine.kernels import winograd, winograd_tiles
from mgcaffe.engine.kernels.choice.operation import Candidate
from mgcaffe.engine.kernels.geometry import Geometry
from mgcaffe.engine.kernels.winograd_matrices import Size

Seen = tuple[torch.Tensor, Sequence[int], Sequence[int], Geometry]
"""What is convolved, the shape of the filters and the spatial size of the result, and the geometry."""


def candidates(seen: Callable[[Any], Seen], run: Callable[[Any, ModuleType, Size], Any]) -> list[Candidate]:
    """Return the candidates of one direction.

    Args:
        seen: what `serves` of the modules asks about a call, but for the size.
        run: computes a call by one of the two modules, whose functions have the same names and arguments.
    """
    ways = [(winograd, size, size.name) for size in winograd.SIZES]
    ways += [(winograd_tiles, size, winograd_tiles.name(size)) for size in winograd_tiles.SIZES]
    return [_candidate(name, module, size, seen, run) for module, size, name in ways]


def _candidate(
    name: str,
    module: ModuleType,
    size: Size,
    seen: Callable[[Any], Seen],
    run: Callable[[Any, ModuleType, Size], Any],
) -> Candidate:
    return Candidate(
        name, lambda call: module.serves(*seen(call), size), lambda call: run(call, module, size), rounds_more=True
    )
