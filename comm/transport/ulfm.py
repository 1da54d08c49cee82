"""What happens when MPI survives a rank's death (`mpirun --with-ft ulfm`, MPI's User-Level Failure Mitigation).

Plain MPI ends every rank as soon as one is gone. With ULFM a call that needs the dead rank fails instead, on the ranks
that notice; these revoke all communicators, so that the calls of the others fail too. Every survivor then raises
`PeerFailure`, with the ranks that it knows to be dead, and can end in good order.

Measured with Open MPI 5.0.11: the calls fail within 50 ms. A rank that exits with a code other than 0 does not count
as failed, and the others wait for ever; so `abort` kills itself with SIGKILL there.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any

from mgcaffe.errors import PeerFailure

if TYPE_CHECKING:
    from mpi4py import MPI

_VARIABLE = "OMPI_MCA_mpi_ft_enable"
_NAMES = ("ERR_PROC_FAILED", "ERR_PROC_FAILED_PENDING", "ERR_REVOKED")
_FAILURE_PROPAGATION_S = 1.0

_communicators: list[MPI.Intracomm] = []


def is_enabled() -> bool:
    """Return whether this rank was started by `mpirun --with-ft ulfm`."""
    return os.environ.get(_VARIABLE) == "1"


def remember(comm: MPI.Intracomm) -> None:
    """Have a communicator revoked when a rank dies."""
    if is_enabled():
        _communicators.append(comm)


def peer_failure(
    mpi: Any, error: Any, comm: MPI.Intracomm | None, tolerated: frozenset[int] = frozenset()
) -> PeerFailure | None:
    """Return the exception to raise for an MPI error that another rank's death caused, None for any other error.

    It revokes all communicators then, unless the dead ranks are among those whose death is tolerated.
    """
    classes = [getattr(mpi, name) for name in _NAMES if hasattr(mpi, name)]
    if not is_enabled() or error.Get_error_class() not in classes:
        return None
    if tolerated and comm is not None and error.Get_error_class() != mpi.ERR_REVOKED:
        failed = _failed_ranks(mpi, comm)
        if failed and failed <= tolerated:
            return PeerFailure("another rank is gone", failed=failed)
    for each in _communicators:
        with contextlib.suppress(mpi.Exception):
            each.Revoke()
    failed = _failed_ranks(mpi, comm) if comm is not None else frozenset()
    return PeerFailure("another rank is gone", failed=failed)


def acknowledge(mpi: Any, error: Any, comm: MPI.Intracomm, tolerated: frozenset[int]) -> frozenset[int]:
    """Return the dead ranks because of which a look for messages from any rank failed, if all are tolerated, else none.

    Later looks pass over them.
    """
    failure = peer_failure(mpi, error, comm, tolerated)
    if failure is None or error.Get_error_class() == mpi.ERR_REVOKED or not failure.failed <= tolerated:
        return frozenset()
    comm.Ack_failed()
    return failure.failed


def _failed_ranks(mpi: Any, comm: MPI.Intracomm) -> frozenset[int]:
    """Return the ranks known to be dead; a rank whose call was merely revoked waits a moment to learn of them."""
    deadline = time.monotonic() + _FAILURE_PROPAGATION_S
    while True:
        group = comm.Get_failed()
        if group.Get_size() or time.monotonic() > deadline:
            break
        time.sleep(0.01)
    ranks = group.Translate_ranks(list(range(group.Get_size())), comm.Get_group())
    return frozenset(int(rank) for rank in ranks if rank != mpi.UNDEFINED)
