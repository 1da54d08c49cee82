"""With which caffemodels a run begins: those of its snapshot, of `--weights`, or of the solver's field `weights`."""

from __future__ import annotations

from collections.abc import Sequence

from mgcaffe.comm.transport.communicator import Communicator
from mgcaffe.errors import UsageError
from mgcaffe.solvers.snapshots.named_weights import names_weights
from mgcaffe.tools.flags.parsing import Flags
from mgcaffe.tools.flags.snapshot_flags import is_auto


def first_weights(flags: Flags, snapshot: str | None, communicator: Communicator) -> Sequence[str] | None:
    """Return the caffemodels that the solver is to read, the same on every rank; collective.

    Args:
        flags: of `engine train`.
        snapshot: the solverstate to go on from; None: the run starts anew. Rank 0 alone looks into it.
        communicator: the ranks that train.

    Returns:
        None where the solver's field `weights` counts; nothing where the snapshot brings its weights. As in Caffe, a
        run that goes on from a state which names none begins with the weights that it would begin with without it.

    Raises:
        UsageError: on all ranks: `--weights` is given beside a snapshot, given by name, that brings weights of its own.
    """
    given: Sequence[str] | None = flags.weights
    if snapshot is None:
        return given
    found = communicator.broadcast_object(names_weights(snapshot) if communicator.rank == 0 else None)
    if found is False:
        return given
    if found and given and not is_auto(flags):
        raise UsageError(
            "--snapshot and --weights exclude each other",
            hint="--snapshot goes on where it stopped, --weights starts anew from given weights; they go together only"
            " where the solverstate names no weights",
        )
    return []
