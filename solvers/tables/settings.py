"""Which ways of exchanging the rows of tables fit which ways of training together."""

from __future__ import annotations

from mgcaffe.errors import SolverError
from mgcaffe.prototxt import CommParameter, SolverParameter, Source
from mgcaffe.solvers.source import locate


def check_embeddings(param: SolverParameter, source: Source | None = None) -> None:
    """Refuse `comm_param.embeddings` where it doesn't fit `comm_param.sync`.

    Raises:
        SolverError: ranks in step are to answer each other whenever they are asked, or others in step.
    """
    comm = param.comm_param
    if not comm.HasField("embeddings"):
        return
    sync = CommParameter.Sync.Name(comm.sync)
    location = locate(source, "comm_param.embeddings")
    if comm.embeddings == CommParameter.ASYNC and sync == "GRADIENTS":
        raise SolverError(
            "embeddings ASYNC answers look-ups of trainers that go at their own pace, and with sync GRADIENTS all ranks"
            " train in step",
            location=location,
            hint="leave embeddings out: the tables are then divided among the ranks, and looked up by all-to-all",
        )
    if comm.embeddings == CommParameter.ALLTOALL and sync != "GRADIENTS":
        raise SolverError(
            f"embeddings ALLTOALL exchanges rows in step, and with sync {sync} each trainer goes at its own pace",
            location=location,
            hint="remove sync (gradients are then averaged in step), or embeddings",
        )
