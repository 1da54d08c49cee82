"""Where a solver stands, and the message in which a solverstate holds it.

Caffe's own fields hold the iteration and the step of the learning rate; what else is needed to go on as if training had
never stopped is in `engine_state`, which Caffe skips.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from mgcaffe.comm.planning.plan import Plan
from mgcaffe.engine.kernels.precision import FLOAT32
from mgcaffe.errors import CommError, DataError
from mgcaffe.errors.checked_json import parse_json
from mgcaffe.prototxt import BlobProto, EngineState, blob_array, fill_blob
from mgcaffe.solvers import carried_state
from mgcaffe.solvers.carried_state import RankState
from mgcaffe.solvers.loss_scale import LossScaleState
from mgcaffe.solvers.rates.plateau import PlateauState
from mgcaffe.solvers.snapshots.best import BestScore

_SOLVER_TYPE = "solver_type"
_BEST_SCORE = "best_score"
_PLATEAU = "plateau"
_CORRELATIONS = "larc_turbo"
_TRAINERS = "trainers"
_SYNCHRONIZATION = "synchronization/"
_WORKERS = "hogwild_threads"
_PRECISION = "precision"
_LOSS_SCALE = "loss_scale"


@dataclass
class Progress:
    """Where a solver stands, apart from weights and histories.

    Attributes:
        iteration: updates done.
        current_step: steps that the learning rate of the last update had gone down.
        seed: the run's seed; None in a state that Caffe wrote, as are precision and the next three.
        world_size: ranks that trained in step.
        workers: Hogwild workers of each rank.
        records: global records consumed, by data layer (a test net's are named `<number>:<layer>`).
        smoothed_losses: the latest losses, as many as average_loss spans, oldest first.
        solver_type: the update rule.
        precision: in how many bits products were computed.
        loss_scale: the factor on the loss, in fp16; else None.
        plan: the gradients' merged groups, as text; empty if there are none.
        recurrent: the state that recurrent layers carry, by rank.
        best: the best test score so far, if `snapshot_best` asks for it.
        plateau: what lr_policy `plateau` has seen; None with another policy.
        correlations: what larc_turbo has seen of each parameter that trains; empty without it.
        trainers: the iterations of each trainer, where each has a replica of its own; else empty.
        synchronization: the state of the rule that keeps replicas together, flat arrays by name.
    """

    iteration: int
    current_step: int = 0
    seed: int | None = None
    world_size: int | None = None
    workers: int = 1
    records: dict[str, int] | None = None
    smoothed_losses: list[float] = field(default_factory=list)
    solver_type: str | None = None
    precision: str | None = None
    loss_scale: LossScaleState | None = None
    plan: str = ""
    recurrent: list[RankState] = field(default_factory=list)
    best: BestScore | None = None
    plateau: PlateauState | None = None
    correlations: list[float] = field(default_factory=list)
    trainers: list[int] = field(default_factory=list)
    synchronization: dict[str, NDArray[Any]] = field(default_factory=dict)


def engine_state(progress: Progress) -> EngineState:
    """Make the EngineState message of what Caffe's own fields do not hold."""
    message = EngineState(
        version=1,
        random_seed=progress.seed or 0,
        world_size=progress.world_size or 1,
        plan=progress.plan,
        smoothed_losses=progress.smoothed_losses,
    )
    for layer, records in (progress.records or {}).items():
        message.records.add(layer=layer, records=records)
    if progress.workers > 1:
        message.extra.add(key=_WORKERS, value=str(progress.workers).encode())
    message.extra.add(key=_SOLVER_TYPE, value=(progress.solver_type or "").encode())
    if progress.precision not in (None, FLOAT32.name):
        message.extra.add(key=_PRECISION, value=progress.precision.encode())
    if progress.loss_scale is not None:
        message.extra.add(key=_LOSS_SCALE, value=progress.loss_scale.encode())
    if progress.best is not None:
        message.extra.add(key=_BEST_SCORE, value=progress.best.encode())
    if progress.plateau is not None:
        message.extra.add(key=_PLATEAU, value=progress.plateau.encode())
    if progress.correlations:
        message.extra.add(key=_CORRELATIONS, value=json.dumps(progress.correlations).encode())
    if progress.trainers:
        message.extra.add(key=_TRAINERS, value=json.dumps(progress.trainers).encode())
    for name, values in progress.synchronization.items():
        blob = BlobProto()
        fill_blob(blob, values)
        message.extra.add(key=_SYNCHRONIZATION + name, value=blob.SerializeToString())
    for key, value in carried_state.to_entries(progress.recurrent):
        message.extra.add(key=key, value=value)
    return message


def add_engine_state(progress: Progress, message: EngineState) -> None:
    """Fill in what an EngineState message holds.

    Raises:
        ValueError, DecodeError, PrototxtError: it holds values that no run can have left.
    """
    entries = {entry.key: entry.value for entry in message.extra}
    progress.seed = message.random_seed
    progress.world_size = message.world_size
    progress.workers = int(entries.get(_WORKERS, b"1"))
    progress.records = {position.layer: position.records for position in message.records}
    progress.smoothed_losses = list(message.smoothed_losses)
    progress.solver_type = entries.get(_SOLVER_TYPE, b"").decode() or None
    progress.precision = entries.get(_PRECISION, FLOAT32.name.encode()).decode()
    progress.loss_scale = LossScaleState.decode(entries[_LOSS_SCALE]) if _LOSS_SCALE in entries else None
    progress.plan = message.plan
    progress.recurrent = carried_state.from_entries((entry.key, entry.value) for entry in message.extra)
    progress.best = BestScore.decode(entries[_BEST_SCORE]) if _BEST_SCORE in entries else None
    if _PLATEAU in entries:
        progress.plateau = PlateauState.decode(entries[_PLATEAU])
    if _CORRELATIONS in entries:
        progress.correlations = _correlations(entries[_CORRELATIONS])
    if _TRAINERS in entries:
        progress.trainers = _trainers(entries[_TRAINERS])
    progress.synchronization = {
        key.removeprefix(_SYNCHRONIZATION): blob_array(BlobProto.FromString(value))
        for key, value in entries.items()
        if key.startswith(_SYNCHRONIZATION)
    }
    if progress.world_size < 1 or progress.workers < 1 or any(records < 0 for records in progress.records.values()):
        raise ValueError("a number of ranks, workers or records is negative")
    if progress.plan:
        try:
            Plan.from_json(progress.plan)
        except (CommError, RecursionError) as error:
            raise ValueError(f"the plan of the gradients is damaged: {error}") from None


def _correlations(content: bytes) -> list[float]:
    try:
        document = parse_json(content, "solverstate", "what larc_turbo has seen is damaged")
        return [value.number(least=-1.001, most=1.001) for value in document.elements()]  # rounding goes beyond 1
    except DataError as error:
        raise ValueError(error.message) from None


def _trainers(content: bytes) -> list[int]:
    try:
        document = parse_json(content, "solverstate", "the iterations of the trainers are damaged")
        return [value.integer(least=0) for value in document.elements()]
    except DataError as error:
        raise ValueError(error.message) from None


def checked_progress(iteration: int, current_step: int) -> Progress:
    """Make the progress that Caffe's own fields hold.

    Raises:
        ValueError: a count is negative.
    """
    if iteration < 0 or current_step < 0:
        raise ValueError(f"iteration {iteration} or step {current_step} is negative")
    return Progress(iteration, current_step)
