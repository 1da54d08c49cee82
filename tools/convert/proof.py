"""The proof of a conversion: both sides run on the same seeded inputs and are compared, blob by blob."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mgcaffe.errors import EXIT_CANNOT_WRITE, DataError, EngineError
from mgcaffe.tools.table import format_table

TOLERANCE = 1e-4
"""The largest relative difference that a proof accepts unless it is given another."""
_SHOWN = 10
"""How many blobs the table of a proof shows at most."""


class Side(Protocol):
    """A model that can be run.

    Attributes:
        inputs: the shapes of its inputs, by name.
        outputs: the names of its outputs, in its own order.
    """

    @property
    def inputs(self) -> Mapping[str, tuple[int, ...]]:
        """See the attributes."""

    @property
    def outputs(self) -> Sequence[str]:
        """See the attributes."""

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return every value that has a name, inputs aside, after one pass in evaluation mode."""


@dataclass(frozen=True)
class Difference:
    """How far apart the two sides are in one blob.

    Attributes:
        name: the blob.
        largest_absolute: the largest difference of two values.
        largest_relative: the same over the blob's largest value, of either side; where both are 0, it is 0.
    """

    name: str
    largest_absolute: float
    largest_relative: float


def seeded_inputs(shapes: Mapping[str, tuple[int, ...]], seed: int = 0) -> dict[str, np.ndarray]:
    """Return normally distributed float32 inputs, the same for the same shapes and seed."""
    generator = np.random.default_rng(seed)
    return {name: generator.standard_normal(shape, dtype=np.float32) for name, shape in sorted(shapes.items())}


def compare(
    ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray], names: Mapping[str, str]
) -> list[Difference]:
    """Compare values, the blob with the largest relative difference first.

    Args:
        ours: the values of one side.
        theirs: those of the other.
        names: for each blob of one side the name that it has on the other.

    Raises:
        DataError: two shapes differ, or nothing can be compared.
    """
    found = []
    for name, other in names.items():
        if name not in ours or other not in theirs:
            continue
        mine, its = ours[name], theirs[other]
        if mine.shape != its.shape:
            raise DataError(f"blob '{name}' has shape {mine.shape}, and '{other}' on the other side {its.shape}")
        found.append(_difference(name, mine, its))
    if not found:
        raise DataError("the two sides have no blob in common that could be compared")
    return sorted(found, key=lambda each: -each.largest_relative)


def _difference(name: str, mine: np.ndarray, its: np.ndarray) -> Difference:
    if np.array_equal(mine, its):  # without the copies that follow
        return Difference(name, 0.0, 0.0)
    mine, its = mine.astype(np.float64), its.astype(np.float64)
    same = (mine == its) | (np.isnan(mine) & np.isnan(its))
    apart = np.where(same, 0.0, np.abs(np.where(same, 0.0, mine) - np.where(same, 0.0, its)))
    absolute = float(apart.max(initial=0.0))
    if np.isnan(absolute):
        absolute = float("inf")
    scale = max(float(np.abs(values[np.isfinite(values)]).max(initial=0.0)) for values in (mine, its))
    relative = absolute / scale if scale else absolute
    return Difference(name, absolute, relative if absolute else 0.0)


def table(differences: Sequence[Difference]) -> str:
    """Return the worst blobs as a table."""
    rows = [
        (each.name, f"{each.largest_absolute:.2e}", f"{each.largest_relative:.2e}") for each in differences[:_SHOWN]
    ]
    text = format_table(("blob", "absolute", "relative"), rows, right=("absolute", "relative"))
    left = len(differences) - len(rows)
    return f"{text}\n({left} more are closer)" if left else text


def document(differences: Sequence[Difference]) -> dict[str, Any]:
    """Return what was compared as JSON has it; null stands for a difference that is infinite."""
    blobs = [{key: None if value == math.inf else value for key, value in asdict(each).items()} for each in differences]
    return {"largest_relative": blobs[0]["largest_relative"], "blobs": blobs}


def write_json(differences: Sequence[Difference], path: Path) -> None:
    """Write what was compared.

    Raises:
        EngineError: (exit code 73) the file cannot be written.
    """
    try:
        path.write_text(json.dumps(document(differences), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise EngineError(f"cannot write {path}: {error.strerror}", exit_code=EXIT_CANNOT_WRITE) from None
