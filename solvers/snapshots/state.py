"""What a solverstate holds (Caffe: SolverState in caffe.proto, sgd_solver.cpp).

Beside Caffe's own fields (iter, learned_net, history, current_step) the message carries ours in `engine_state`
(`progress.py`). `state_file.py` has the binary form, `state_hdf5.py` the HDF5 form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mgcaffe.engine.row_parameter import WholeRows
from mgcaffe.engine.types import Shape
from mgcaffe.engine.weights.shards import StoredRows
from mgcaffe.errors import EXIT_BAD_INPUT, SnapshotError
from mgcaffe.solvers.snapshots.progress import Progress


@dataclass
class SavedState:
    """A solverstate that was read.

    Attributes:
        path: the file.
        progress: where the solver stood.
        learned_net: the caffemodel's path as the file gives it, empty if it gives none.
        history: the arrays, all parameters' first ones, then all second ones; of tables in shards, where they are.
    """

    path: Path
    progress: Progress
    learned_net: str
    history: Sequence[NDArray[Any] | StoredRows]

    def find_weights(self, *, beside_first: bool = False) -> Path | None:
        """Find the caffemodel: where the state says, or else beside the state; None: the state names none.

        Args:
            beside_first: looks beside the state first, where the files that a manifest describes lie.

        Raises:
            SnapshotError: it lies in neither place.
        """
        if not self.learned_net:
            return None
        named = Path(self.learned_net)
        beside = self.path.parent / named.name
        for candidate in (beside, named) if beside_first else (named, beside):
            if _is_file(candidate):
                return candidate
        places = " and ".join(dict.fromkeys((str(named), str(beside))))
        raise unreadable(
            f"the weights '{self.learned_net}' that {self.path} names are missing",
            f"looked for {places}; put the caffemodel beside the solverstate",
        )

    def check_solver_type(self, name: str) -> None:
        """Refuse a state of another solver type (Caffe's states do not hold theirs).

        Raises:
            SnapshotError: it was written by another one than `name`.
        """
        written_by = self.progress.solver_type
        if written_by is not None and written_by != name:
            raise unreadable(
                f"{self.path} holds the state of solver type {written_by}, and this solver has type {name}",
                "resume with the snapshot's type, or start from its weights with --weights",
            )

    def check_history(self, blobs: Sequence[torch.Tensor | WholeRows]) -> None:
        """Make sure that `copy_history` will succeed.

        Args:
            blobs: the solver's histories, as `Updater.history_blobs` returns them.

        Raises:
            SnapshotError: the number of history blobs, or the shape of one, does not fit.
        """
        if len(self.history) != len(blobs):
            raise unreadable(
                f"{self.path} holds {len(self.history)} history blob(s); net and solver type have {len(blobs)}",
                "resume with the net and the solver type that the snapshot was taken with",
            )
        for index, (values, blob) in enumerate(zip(self.history, blobs, strict=True)):
            shape = tuple(blob.shape)
            if _without_leading_ones(values.shape) != _without_leading_ones(shape):
                hint = "resume with the net that the snapshot was taken with"
                if tuple(values.shape)[:1] == shape[:1] and 1 in (len(values.shape), len(shape)):
                    hint = "resume with row_wise_adagrad as it was in the run that took the snapshot"
                raise unreadable(
                    f"history blob {index} in {self.path} has shape {values.shape}; the net's has {shape}", hint
                )

    def copy_history(self, blobs: Sequence[torch.Tensor | WholeRows], *, tables_too: bool = True) -> None:
        """Fill a solver's histories; none of them, if one does not fit.

        Args:
            blobs: as for `check_history`, as are errors.
            tables_too: whether to fill those of tables whose rows lie in several processes.
        """
        self.check_history(blobs)
        for values, blob in zip(self.history, blobs, strict=True):
            if not (tables_too or isinstance(blob, torch.Tensor)):
                continue
            if isinstance(values, StoredRows):
                if isinstance(blob, torch.Tensor):
                    values.fill(blob, 0)
                else:
                    blob.load(values)
            elif isinstance(blob, torch.Tensor):
                blob.copy_(torch.tensor(values).reshape(blob.shape))
            else:
                blob.store(0, values.reshape(-1))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a damaged name
        return False


def only_weights(path: Path) -> SnapshotError:
    """Make the error for weights that were given instead of a state."""
    return unreadable(
        f"{path} is a caffemodel (weights alone), not a solverstate",
        "resume with the .solverstate beside it, or start from these weights with --weights",
    )


def unreadable(message: str, hint: str | None) -> SnapshotError:
    """Make the error for a snapshot that cannot be used."""
    return SnapshotError(message, hint=hint, exit_code=EXIT_BAD_INPUT)


def _without_leading_ones(shape: Shape) -> Shape:
    """Strip the ones in front with which old blobs are padded to four axes."""
    sizes = np.array(shape)
    return tuple(sizes[int(np.argmax(sizes != 1)) :].tolist()) if (sizes != 1).any() else ()
