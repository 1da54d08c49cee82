"""The table of layer types that can be written as a module of PyTorch."""

from __future__ import annotations

from collections.abc import Mapping

from mgcaffe.tools.convert.torch_out import (
    activations,
    arithmetic,
    filters,
    losses,
    normalization,
    pooling,
    recurrent,
    shapes,
)
from mgcaffe.tools.convert.torch_out.emitter import Operator

_FAMILIES = (activations, arithmetic, filters, losses, normalization, pooling, recurrent, shapes)

OPERATORS: Mapping[str, Operator] = {entry.layer_type: entry for family in _FAMILIES for entry in family.OPERATORS}
"""By layer type."""
