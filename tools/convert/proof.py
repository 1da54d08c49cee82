"""The proof of a conversion: both sides run on the same seeded inputs and are compared, blob by blob."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mgcaffe.errors import DataError
from mgcaffe.errors.whole_files import write_output
from mgcaffe.tools.table import format_table

TOLERANCE = 1e-4
"""The largest relative difference that a proof accepts unless it is given another."""
_SHOWN = 10
"""How many blobs the table of a proof shows at most."""
_CHUNK = 1 << 18


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
        found.append(difference(name, mine, its))
    if not found:
        raise DataError("the two sides have no blob in common that could be compared")
    return sorted(found, key=lambda each: -each.largest_relative)


def not_finite(values: Mapping[str, np.ndarray], names: Iterable[str]) -> list[str]:
    """Return which of these values are not finite throughout; that two sides have the same proves little."""
    return [name for name in names if name in values and not np.isfinite(values[name]).all()]


@dataclass
class Measure:
    """How far apart two arrays are that come a part at a time.

    Attributes:
        apart: the largest difference of two values so far.
        largest: the largest finite value of either.
    """

    apart: float = 0.0
    largest: float = 0.0

    def add(self, mine: np.ndarray, its: np.ndarray) -> None:
        """Add parts of one size; they are looked at a few megabytes at a time."""
        one, two = mine.reshape(-1), its.reshape(-1)
        for start in range(0, one.size, _CHUNK):
            self._add(*(values[start : start + _CHUNK].astype(np.float64) for values in (one, two)))

    def _add(self, mine: np.ndarray, its: np.ndarray) -> None:
        same = (mine == its) | (np.isnan(mine) & np.isnan(its))
        apart = float(
            np.where(same, 0.0, np.abs(np.where(same, 0.0, mine) - np.where(same, 0.0, its))).max(initial=0.0)
        )
        self.apart = max(self.apart, math.inf if math.isnan(apart) else apart)
        for values in (mine, its):
            self.largest = max(self.largest, float(np.abs(values[np.isfinite(values)]).max(initial=0.0)))

    def difference(self, name: str, scale: float | None = None) -> Difference:
        """Return it under a name, relative to the largest value or to another scale; absolute where that is 0."""
        scale = self.largest if scale is None else scale
        return Difference(name, self.apart, self.apart / scale if scale else self.apart)


def difference(name: str, mine: np.ndarray, its: np.ndarray) -> Difference:
    """Return how far apart two arrays of one size are."""
    measure = Measure()
    measure.add(mine, its)
    return measure.difference(name)


def unproven(path: Path) -> Path:
    """Return what a file is called whose proof has failed, or is still to come: `net.unproven.caffemodel.h5`."""
    stem, dot, endings = path.name.partition(".")
    return path.with_name(f"{stem}.unproven{dot}{endings}")


def table(differences: Sequence[Difference], what: str = "blob", most: int = _SHOWN) -> str:
    """Return the worst ones as a table.

    Args:
        differences: the worst first.
        what: they are differences of.
        most: how many lines it has.
    """
    rows = [(each.name, f"{each.largest_absolute:.2e}", f"{each.largest_relative:.2e}") for each in differences[:most]]
    text = format_table((what, "absolute", "relative"), rows, right=("absolute", "relative"))
    left = len(differences) - len(rows)
    return f"{text}\n({left} more are closer)" if left else text


def rows_of(differences: Sequence[Difference]) -> list[dict[str, Any]]:
    """Return differences as JSON has them; null stands for one that is infinite."""
    return [{key: None if value == math.inf else value for key, value in asdict(each).items()} for each in differences]


def document(differences: Sequence[Difference]) -> dict[str, Any]:
    """Return what was compared as JSON has it."""
    blobs = rows_of(differences)
    return {"largest_relative": blobs[0]["largest_relative"], "blobs": blobs}


def write_json(found: Mapping[str, Any], path: Path) -> None:
    """Write what was compared, as `document` gives it.

    Raises:
        EngineError: (exit code 73) the file cannot be written.
    """
    write_output(path, json.dumps(found, indent=1, allow_nan=False) + "\n")
