"""Errors that scripts catch by the Python class that pycaffe raised, and that belong to our own tree too."""

from __future__ import annotations

from mgcaffe.errors import NetError, UsageError


class ArgumentError(UsageError, ValueError):
    """An argument that does not fit."""


class ArgumentTypeError(UsageError, TypeError):
    """An argument of a kind that does not fit."""


class AxisMismatchError(NetError):
    """Two coordinate maps that belong to different axes (coord_map)."""


class UndefinedMapError(NetError):
    """A layer whose coordinates map to nothing (coord_map)."""


class UnconnectedTopsError(NetError, RuntimeError):
    """Two tops between which no coordinate map leads (coord_map)."""


class CropError(NetError, AssertionError):
    """A crop that would need scaling, padding, or a fraction of a pixel (coord_map)."""
