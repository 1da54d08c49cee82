"""The names of a snapshot's files: the weights and the solver's state, which names them.

`<prefix>_iter_<N>.caffemodel` is a NetParameter with every layer and its blobs,
`<prefix>_iter_<N>.solverstate` a SolverState that names it. With `snapshot_format: HDF5` both are HDF5, and their
names end in `.h5`, by which Caffe recognizes them. Where tables lie in several processes, their rows are in shards
beside the weights, `<weights>.shard_<k>_of_<count>.safetensors` (`engine/weights/shards.py`). A snapshot counts
once its solverstate is there; a manifest beside it (`manifest.py`) says what the files held.
"""

from __future__ import annotations

import re
from pathlib import Path

from mgcaffe.errors import SolverError
from mgcaffe.prototxt import SolverParameter, SolverSource

SHARD = r"\.shard_\d+_of_\d+\.safetensors"
"""What a shard's name has behind that of the weights, as a regular expression."""


def snapshot_prefix(param: SolverParameter, source: SolverSource | None = None) -> Path:
    """Return what the names of a solver's snapshots begin with.

    A missing or empty snapshot_prefix means the solver's own path without its suffix (Caffe begins the names with
    `_iter_` where it is empty); a folder means the solver's name in that folder.

    Raises:
        SolverError: there is no prefix, and the solver was read from no file.
    """
    solver = Path(source.path) if source is not None else None
    given = param.snapshot_prefix
    if not given:
        if solver is None:
            raise SolverError(
                "the solver takes snapshots and gives no snapshot_prefix",
                hint="set snapshot_prefix, or snapshot_after_train: false",
            )
        return solver.with_suffix("")
    if Path(given).is_dir() or given.endswith("/"):
        return Path(given) / (solver.stem if solver is not None else "snapshot")
    return Path(given)


def weights_path(prefix: Path, iteration: int, *, hdf5: bool = False) -> Path:
    """Return the path of an iteration's caffemodel."""
    return prefix.with_name(f"{prefix.name}_iter_{iteration}.caffemodel{'.h5' if hdf5 else ''}")


def state_path(prefix: Path, iteration: int, *, hdf5: bool = False) -> Path:
    """Return the path of an iteration's solverstate."""
    return prefix.with_name(f"{prefix.name}_iter_{iteration}.solverstate{'.h5' if hdf5 else ''}")


def stored_shards(weights: Path) -> list[Path]:
    """List the shards that lie beside weights, of whatever snapshot."""
    pattern = re.compile(re.escape(weights.name) + SHARD)
    try:
        return [path for path in weights.parent.iterdir() if pattern.fullmatch(path.name)]
    except OSError:
        return []


def is_hdf5(param: SolverParameter) -> bool:
    """Return whether a solver's snapshots are HDF5."""
    return bool(param.snapshot_format == type(param).HDF5)
