"""What `comm_param` says of tables: who holds their rows, and which ways of training together fit that."""

from __future__ import annotations

from typing import NoReturn

from mgcaffe.errors import SolverError
from mgcaffe.prototxt import CommParameter, SolverParameter, Source
from mgcaffe.solvers.source import locate

_MOST_AHEAD = 1000
_ASKS_FOR_STEPS = ("snapshot_diff", "debug_info")


def check_embeddings(
    param: SolverParameter, trainers: int = 1, has_servers: bool = False, source: Source | None = None
) -> list[str]:
    """Check the fields that say where the rows of tables lie.

    Args:
        param: the SolverParameter message.
        trainers: how many there are.
        has_servers: whether the solver was given embedding servers.
        source: where the fields stand, for errors.

    Returns:
        Warnings: fields without effect.

    Raises:
        SolverError: fields that exclude each other.
    """
    _check_exchange(param, source)
    _check_snapshots(param, source)
    comm = param.comm_param

    def refuse(problem: str, hint: str, field: str = "comm_param") -> NoReturn:
        raise SolverError(problem, location=locate(source, field), hint=hint)

    if comm.lookahead < 0:
        refuse(f"lookahead is {comm.lookahead} and must be at least 0", "0 looks up when rows are needed")
    if comm.lookahead > _MOST_AHEAD:
        refuse(
            f"lookahead is {comm.lookahead}; at most {_MOST_AHEAD} batches, which are held in memory, are looked up"
            " ahead",
            "choose as many as are trained in the time of a look-up: 1 or 2",
        )
    if not has_servers:
        if comm.embedding_servers:
            refuse(
                f"embedding_servers is {comm.embedding_servers}, and this solver was given none",
                "start it by engine train under mpirun, or leave embedding_servers out",
            )
        looks_ahead = trainers > 1 and comm.sync != CommParameter.GRADIENTS
        if comm.HasField("lookahead") and not looks_ahead:
            return ["lookahead has no effect: no trainer at its own pace looks up rows of other processes"]
        return []
    if comm.HasField("embeddings"):
        refuse(
            f"embeddings {CommParameter.Embeddings.Name(comm.embeddings)} divides tables among trainers, and"
            " embedding_servers has servers hold them",
            "leave one of the two out",
        )
    if comm.sync == CommParameter.GRADIENTS and trainers > 1:
        refuse(
            f"embedding_servers are for trainers with replicas of their own, and sync GRADIENTS lets {trainers}"
            " trainers train in step",
            "choose another sync (--sync=shadow_ma), or leave embedding_servers out: tables are then divided among"
            " the trainers",
        )
    for field in _ASKS_FOR_STEPS:
        if getattr(param, field):
            refuse(
                f"{field} asks for what embedding servers do not give: each row's last step", f"remove {field}", field
            )
    return []


def check_async(param: SolverParameter, source: Source | None = None) -> None:
    """Refuse what trainers that hold the tables for each other cannot do, once it is known that there are tables.

    Raises:
        SolverError: a field asks for it.
    """
    comm = param.comm_param
    if comm.on_trainer_loss == CommParameter.CONTINUE:
        raise SolverError(
            "on_trainer_loss CONTINUE would go on without the rows that lie with a trainer that dies: without embedding"
            " servers trainers hold the tables",
            location=locate(source, "comm_param"),
            hint="hold the tables on embedding servers (--embedding_servers=1), or leave it out; --max_restarts starts"
            " all ranks again from the newest snapshot",
        )
    for field in _ASKS_FOR_STEPS:
        if getattr(param, field):
            raise SolverError(
                f"{field} asks for each row's last step, which trainers that look up each other's rows do not know",
                location=locate(source, field),
                hint=f"remove {field}",
            )


def refuse_no_tables(count: int, param: SolverParameter, source: Source | None = None) -> None:
    """Make sure that embedding servers have something to hold.

    Raises:
        SolverError: the training net has no table.
    """
    if not count:
        raise SolverError(
            f"embedding_servers is {param.comm_param.embedding_servers or 1}, and the training net has no layer of type"
            " EmbeddingBag",
            location=locate(source, "comm_param"),
            hint="leave embedding_servers out",
        )


def _check_snapshots(param: SolverParameter, source: Source | None) -> None:
    """Refuse shards where the steps of all rows are wanted too."""
    comm = param.comm_param
    if param.snapshot_diff and comm.HasField("snapshot_tables") and comm.snapshot_tables == CommParameter.SHARDED:
        raise SolverError(
            "snapshot_diff writes what the last update took off each weight, which shards do not hold",
            location=locate(source, "comm_param.snapshot_tables"),
            hint="remove snapshot_diff, or set snapshot_tables: WHOLE",
        )


def _check_exchange(param: SolverParameter, source: Source | None = None) -> None:
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
