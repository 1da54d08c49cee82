"""The types that many modules of the engine name."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

Shape = tuple[int, ...]
"""The size of a blob along each of its axes."""

Array = NDArray[Any]
"""A numpy array of any number type."""
