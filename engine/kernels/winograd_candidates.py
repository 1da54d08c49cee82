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
"""What is convolved, the shape of the filters, the spatial size of the result (by tiles: of y), and the geometry."""


def candidates(
    seen: Callable[[Any], Seen],
    run: Callable[[Any, ModuleType, Size], Any],
    seen_by_tiles: Callable[[Any], Seen] | None = None,
) -> list[Candidate]:
    """Return the candidates of one direction.

    Args:
        seen: what `serves` of the modules asks about a call, but for the size.
        run: computes a call by one of the two modules, whose functions have the same names and arguments.
        seen_by_tiles: what `winograd_tiles.serves` asks, if that is something else.
    """
    by_tiles = seen if seen_by_tiles is None else seen_by_tiles
    ways = [_candidate(size.name, winograd, size, seen, run) for size in winograd.SIZES]
    return ways + [
        _candidate(winograd_tiles.name(size), winograd_tiles, size, by_tiles, run) for size in winograd_tiles.SIZES
    ]


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
