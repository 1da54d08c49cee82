"""The table of layer types that can be written as a module of PyTorch, and the reasons why others cannot."""

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

_READS_RECORDS = "it reads records, where a converted model is fed: convert the deploy net"

WITHOUT: Mapping[str, str] = {
    **dict.fromkeys(("Data", "ImageData", "HDF5Data", "MemoryData", "WindowData", "DummyData"), _READS_RECORDS),
    "CriteoData": _READS_RECORDS,
    **dict.fromkeys(("AUC", "NormalizedEntropy"), "it judges a whole test, where a model computes a batch"),
    "HDF5Output": "it writes a file",
    "Python": "what it computes is a program",
}
"""The types that have no equivalent, and why."""

INPUT = "Input"
"""The type whose tops are the inputs of the module."""
