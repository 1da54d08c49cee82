"""The matrices of Winograd's convolutions.

They evaluate polynomials at n - 1 points and at infinity (Lavin and Gray, "Fast Algorithms for Convolutional Neural
Networks", section 4). The points are small fractions by which rounding grows little, found by trying all sets, and all
entries are computed as fractions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import torch

_POINTS = tuple(map(Fraction, ("0", "1", "-1", "1/2", "-2", "-1/2", "2")))
_EIGHT_POINTS = tuple(map(Fraction, ("0", "1", "-1", "2", "-3/4", "2/3", "-1/3", "-3")))
POINT_ONE = 1
"""The place of the point 1 among the points."""

Matrix = list[list[Fraction]]


class Size(NamedTuple):
    """F(m, r): `outputs` (m) rows are computed at a time, by filters of `rows` (r) rows."""

    outputs: int
    rows: int

    @property
    def points(self) -> int:
        """How many rows of input it takes (n), and how many products."""
        return self.outputs + self.rows - 1

    @property
    def name(self) -> str:
        """The candidates' name."""
        return f"winograd_f{self.outputs}{self.rows}"


@functools.cache
def matrices(size: Size, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return B^T (n, n), G (n, r) and A^T (m, n)."""
    finite = _POINTS[: size.points - 1] if size.points <= len(_POINTS) + 1 else _EIGHT_POINTS[: size.points - 1]
    inputs: Matrix = []
    filters: Matrix = []
    for one in finite:
        others = [other for other in finite if other != one]
        scale = math.prod((one - other for other in others), start=Fraction(1))
        inputs.append([*_coefficients(others), Fraction(0)])
        filters.append([one**power / scale for power in range(size.rows)])
    inputs.append(_coefficients(finite))
    filters.append([Fraction(power == size.rows - 1) for power in range(size.rows)])
    outputs = [[*(one**row for one in finite), Fraction(row == size.outputs - 1)] for row in range(size.outputs)]
    return _tensor(inputs, dtype), _tensor(filters, dtype), _tensor(outputs, dtype)


def _coefficients(roots: Sequence[Fraction]) -> list[Fraction]:
    """Return the coefficients of the polynomial that has these roots, the constant first."""
    polynomial = [Fraction(1)]
    for root in roots:
        raised, scaled = [Fraction(0), *polynomial], [*(-root * value for value in polynomial), Fraction(0)]
        polynomial = [one + other for one, other in zip(raised, scaled, strict=True)]
    return polynomial


def _tensor(matrix: Matrix, dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor([[float(value) for value in row] for row in matrix], dtype=dtype)
