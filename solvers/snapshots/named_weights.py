"""Whether a solverstate names its weights, found without reading its histories."""

from __future__ import annotations

import os
from pathlib import Path

from mgcaffe.engine.weights.hdf5_image import is_hdf5, open_image, reading
from mgcaffe.prototxt.messages import SolverState, message_facts
from mgcaffe.prototxt.wire_format import NotWalkable, fields_of
from mgcaffe.solvers.snapshots.state_hdf5 import learned_net_of


def names_weights(path: str | os.PathLike[str]) -> bool | None:
    """Return whether a solverstate names weights (learned_net).

    Returns:
        None of a file that cannot be read, or is no solverstate: whoever reads it to go on from it says what is wrong.
    """
    try:
        if is_hdf5(path):
            with open_image(path, OSError) as file, reading(OSError):
                return bool(learned_net_of(file)) if "iter" in file else None
        return _is_named(Path(path))
    except (OSError, ValueError, NotWalkable):
        return None


def _is_named(path: Path) -> bool | None:
    """Walk over the fields of a binary state; the last value of a field counts."""
    numbers = {field.number: name for name, field in message_facts(SolverState()).fields.items()}
    found: dict[str, bool] = {}
    with path.open("rb") as file:

        def read(start: int, count: int) -> bytes:
            file.seek(start)
            return file.read(count)

        for field in fields_of(read, 0, path.stat().st_size):
            found[numbers.get(field.number, "")] = field.end > field.content
    return found.get("learned_net", False) if "iter" in found else None
