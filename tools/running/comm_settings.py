"""Where the solver's fields that Caffe lacks come from: the solver, the file beside it, the flags; the later one wins.

Caffe's text parser refuses fields that it doesn't know. A solver that must stay readable by Caffe leaves
`comm_param` and the others to a file beside it: `lenet_solver.prototxt` to `lenet_solver.engine.prototxt`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mgcaffe.errors import PrototxtError
from mgcaffe.prototxt import CommParameter, SolverParameter, SolverSource, read_solver_source
from mgcaffe.tools.flags.parsing import Flags

_FIRST_OF_OURS = 1000
# Flags that are called as their fields.
_SAME_NAMES = (
    "bucket_mb",
    "calibration_iterations",
    "plan_file",
    "cost_file",
    "emulate_link",
    "overlap_forward",
    "exchange_products",
    "hierarchical",
    "sync_every",
    "alpha",
    "block_momentum",
    "block_lr",
    "block_nesterov",
    "sync_interval_ms",
    "embedding_loads",
    "snapshot_replicas",
    "embedding_servers",
    "lookahead",
    "sync_servers",
    "hogwild_threads",
    "hogwild_lock",
)
# Flags that are called as their fields and give the name of an enum's value.
_ENUMS: dict[str, Any] = {
    "schedule": CommParameter.Schedule,
    "allreduce_type": CommParameter.WireType,
    "sync": CommParameter.Sync,
    "merge": CommParameter.Merge,
    "sync_groups": CommParameter.Groups,
    "on_trainer_loss": CommParameter.TrainerLoss,
    "embeddings": CommParameter.Embeddings,
    "snapshot_tables": CommParameter.TableFiles,
}


def apply_file_beside(source: SolverSource, path: str | Path, *, strict: bool) -> None:
    """Complete the solver's own fields from the file beside it, if there is one.

    Args:
        source: the solver; its message is changed in place.
        path: the solver's file.
        strict: refuse unknown fields.

    Raises:
        PrototxtError: the file beside the solver does not parse, or holds other fields.
    """
    beside = sidecar(Path(path))
    if not beside.is_file():
        return
    added = read_solver_source(beside, strict=strict)
    for field, _ in added.param.ListFields():
        if field.number < _FIRST_OF_OURS:
            raise PrototxtError(
                f"'{field.name}' has no place here: this file holds fields that Caffe lacks, such as comm_param",
                location=added.field(field.name),
                hint=f"it belongs into {path}",
            )
    before = SolverParameter()
    before.CopyFrom(source.param)
    source.param.MergeFrom(added.param)
    source.note_changes(before, added.field)


def apply_comm_flags(solver: SolverParameter, flags: Flags) -> None:
    """Put the values of the flags of `add_comm_flags` into `comm_param` (the message is changed in place)."""
    for name, enum in _ENUMS.items():
        if getattr(flags, name):
            setattr(solver.comm_param, name, enum.Value(getattr(flags, name).upper()))
    if flags.transport == "auto":
        solver.comm_param.ClearField("transport")
    elif flags.transport:
        solver.comm_param.transport = CommParameter.Transport.Value(flags.transport.upper())
    if flags.deterministic:
        solver.comm_param.deterministic = True
    for name in _SAME_NAMES:
        if getattr(flags, name) is not None:
            setattr(solver.comm_param, name, getattr(flags, name))


def sidecar(solver: Path) -> Path:
    """Return the file beside a solver that holds the fields of ours."""
    return solver.with_name(solver.name.removesuffix(".prototxt") + ".engine.prototxt")
