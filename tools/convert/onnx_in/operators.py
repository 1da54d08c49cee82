"""The table of all operators: by name the function that makes layers of one."""

from __future__ import annotations

from mgcaffe.tools.convert.onnx_in import (
    activations,
    arithmetic,
    normalization,
    parts,
    pooling,
    products,
    recurrent,
    resizing,
    shapes,
    weighted,
)
from mgcaffe.tools.convert.onnx_in.operation import Table

TABLES: dict[str, Table] = {
    "Weights": weighted.OPERATORS,
    "Products of values": products.OPERATORS,
    "Time steps": recurrent.OPERATORS,
    "Normalization": normalization.OPERATORS,
    "Activations": activations.OPERATORS,
    "Arithmetic and reductions": arithmetic.OPERATORS,
    "Pooling": pooling.OPERATORS,
    "Shapes": {**shapes.OPERATORS, **parts.OPERATORS},
    "Resizing": resizing.OPERATORS,
}
"""By family, for the documentation."""
OPERATORS: Table = {name: convert for table in TABLES.values() for name, convert in table.items()}
"""By the operator's name in ONNX."""
MOVING = {*shapes.OPERATORS, *parts.OPERATORS, "Identity"}
"""Operators that move values, whole numbers too."""
