"""What `comm_param` says of replicas: the rule, the pace and the topology by which they are kept together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mgcaffe.comm import Communicator
from mgcaffe.comm.exchange.emulation import parse_link
from mgcaffe.comm.replicas.rules import (
    BlockMomentum,
    ElasticAveraging,
    ModelAveraging,
    Rule,
    SequentialElasticAveraging,
)
from mgcaffe.comm.replicas.servers import Servers
from mgcaffe.comm.replicas.synchronizer import ParameterSynchronizer
from mgcaffe.comm.replicas.topology import AllTrainers, Groups, Topology
from mgcaffe.errors import CommError, Location, SolverError
from mgcaffe.prototxt import CommParameter, NanEffect, SolverParameter, Source
from mgcaffe.solvers.source import locate

_EVERY = 5
_EVERY_BY_GROUPS = 1
_ELASTIC_RATE = 0.2
# An increment that comes late by a round overshoots at 1: what separates replicas changes its sign with each round and
# does not fade where training keeps little of it (benchmarks/sync_quality.py).
_BACKGROUND_RATE = 0.5

_MA, _BMUF, _EASGD = ({kind, f"SHADOW_{kind}"} for kind in ("MA", "BMUF", "EASGD"))
_FOREGROUND = {"MA", "BMUF", "EASGD", "DS_SYNC"}
_BACKGROUND = {"SHADOW_MA", "SHADOW_BMUF", "SHADOW_EASGD"}
_REPLICAS = _FOREGROUND | _BACKGROUND | {"NONE"}

# Which kinds of `sync` read a field.
_READ_BY: dict[str, set[str]] = {
    "sync_every": _FOREGROUND,
    "sync_interval_ms": _BACKGROUND,
    "alpha": _MA | _BMUF | _EASGD,
    "merge": _MA | _BMUF,
    "block_momentum": _BMUF,
    "block_lr": _BMUF,
    "block_nesterov": _BMUF,
    "sync_groups": {"DS_SYNC"},
    "snapshot_replicas": _REPLICAS,
    "emulate_link": _REPLICAS - {"NONE"} | {"GRADIENTS"},
    "schedule": {"GRADIENTS"},
    "bucket_mb": {"GRADIENTS"},
    "calibration_iterations": {"GRADIENTS"},
    "plan_file": {"GRADIENTS"},
    "cost_file": {"GRADIENTS"},
    "deterministic": {"GRADIENTS"},
    "overlap_forward": {"GRADIENTS"},
    "exchange_products": {"GRADIENTS"},
    "allreduce_type": {"GRADIENTS"},
    "hierarchical": {"GRADIENTS"},
    "transport": {"GRADIENTS"},
}


@dataclass(frozen=True)
class SyncSettings:
    """How replicas are kept together, as a solver says it.

    Attributes:
        kind: the name of `comm_param.sync`; not GRADIENTS.
        comm: the CommParameter.
        location: of `comm_param` in the user's file, for errors.
    """

    kind: str
    comm: CommParameter
    location: Location | None

    @property
    def is_background(self) -> bool:
        """Whether rounds run beside training."""
        return self.kind in _BACKGROUND

    @property
    def every(self) -> int:
        """Iterations from one round to the next in the foreground."""
        if self.comm.HasField("sync_every"):
            return int(self.comm.sync_every)
        return _EVERY_BY_GROUPS if self.kind == "DS_SYNC" else _EVERY

    @property
    def interpolates(self) -> bool:
        """Whether replicas are interpolated with the mean.

        Also where both ways do the same, since only interpolation makes replicas equal to the bit.
        """
        return bool(self.comm.merge == CommParameter.INTERPOLATE or self._merges_alike)

    @property
    def _merges_alike(self) -> bool:
        """Whether increment and interpolation do the same.

        They do where nothing is learned during a round, which other workers of a trainer do also in the foreground; but
        only increments keep BMUF's momentum out of what alpha damps.
        """
        pauses_training = not self.is_background and self.comm.hogwild_threads == 1
        damps_momentum = self.kind in _BMUF and self.comm.HasField("alpha") and self.comm.alpha != 1
        return bool(pauses_training and not damps_momentum)

    def alpha(self, trainers: int) -> float:
        """Return the rate at which replicas move."""
        if self.comm.HasField("alpha"):
            return float(self.comm.alpha)
        if self.kind in _EASGD:
            return min(_ELASTIC_RATE, 1 / trainers)
        return _BACKGROUND_RATE if self.is_background else 1.0

    def block_momentum(self, trainers: int) -> float:
        """Return the momentum of BMUF's global model."""
        return float(self.comm.block_momentum) if self.comm.HasField("block_momentum") else 1 - 1 / trainers

    def synchronizer(
        self, communicator: Communicator, trained: int | None = None, servers: Communicator | None = None
    ) -> ParameterSynchronizer:
        """Make the trainer's part; collective.

        Args:
            communicator: the trainers.
            trained: how many of a replica's elements are trained, the others being statistics; None: all.
            servers: the trainers and, behind them, the synchronization servers; None: there are none.

        Raises:
            SolverError: a value out of its range, or a number of trainers that the groups are not for.
        """
        try:
            rule, topology = self._rule(communicator.size, trained), self._topology(communicator, servers)
            return ParameterSynchronizer(
                rule,
                topology,
                every=self.every if self.kind in _FOREGROUND else None,
                interval_s=self.comm.sync_interval_ms / 1e3,
                link=parse_link(self.comm.emulate_link) if self.comm.emulate_link else None,
            )
        except CommError as error:
            raise SolverError(f"sync {self.kind}: {error.message}", location=self.location, hint=error.hint) from None

    def describe(self, trainers: int) -> str:
        """Return a line for the log."""
        if self.kind == "NONE":
            return f"{trainers} trainers, whose replicas are never brought together (sync NONE)"
        pace = "in the background" if self.is_background else f"every {_count(self.every, 'iteration')}"
        if self.is_background and self.comm.sync_interval_ms:
            pace += f", at most once in {self.comm.sync_interval_ms:g} ms"
        details = []
        if self.kind != "DS_SYNC":
            details.append(f"alpha {self.alpha(trainers):g}")
        if self.kind in _BMUF:
            form = "Nesterov block momentum" if self.comm.block_nesterov else "block momentum"
            details.append(f"{form} {self.block_momentum(trainers):g}")
        if self.comm.sync_servers:
            details.append(f"the centre on {_several(self.comm.sync_servers, 'synchronization server')}")
        if self.kind in _MA | _BMUF and not self._merges_alike:
            details.append("by interpolation" if self.interpolates else "by increment")
        more = f" ({', '.join(details)})" if details else ""
        return f"{trainers} trainers, whose replicas are synchronized by {self.kind} {pace}{more}"

    def _rule(self, trainers: int, trained: int | None) -> Rule | None:
        elastic = SequentialElasticAveraging if self.comm.sync_servers else ElasticAveraging
        rules: dict[str, Callable[[], Rule]] = {
            "MA": lambda: ModelAveraging(self.alpha(trainers), interpolates=self.interpolates),
            "EASGD": lambda: elastic(self.alpha(trainers)),
            "BMUF": lambda: BlockMomentum(
                self.alpha(trainers),
                interpolates=self.interpolates,
                momentum=self.block_momentum(trainers),
                learning_rate=self.comm.block_lr,
                nesterov=self.comm.block_nesterov,
                trained=trained,
            ),
            "DS_SYNC": lambda: ModelAveraging(interpolates=self.interpolates),
        }
        return None if self.kind == "NONE" else rules[self.kind.removeprefix("SHADOW_")]()

    def _topology(self, communicator: Communicator, servers: Communicator | None) -> Topology:
        if servers is not None:
            return Servers(servers, communicator.size)
        if self.kind == "DS_SYNC":
            return Groups(communicator, CommParameter.Groups.Name(self.comm.sync_groups).lower())
        return AllTrainers(communicator)


def sync_settings(param: SolverParameter, source: Source | None = None) -> SyncSettings | None:
    """Return what a solver says of replicas; None where the ranks average gradients in step."""
    kind = CommParameter.Sync.Name(param.comm_param.sync)
    return None if kind == "GRADIENTS" else SyncSettings(kind, param.comm_param, locate(source, "comm_param"))


def check_servers(param: SolverParameter, source: Source | None = None, has_servers: bool = True) -> None:
    """Make sure that synchronization servers have something to do, and that those are there that a field needs.

    Args:
        param: the SolverParameter message.
        source: where the fields stand, for errors.
        has_servers: whether the solver was given the servers that it asks for.

    Raises:
        SolverError: the rule needs none, there are none, or trainers may be lost without them.
    """
    comm = param.comm_param
    kind = CommParameter.Sync.Name(comm.sync)
    if comm.sync_servers and kind not in _EASGD:
        raise SolverError(
            f"sync_servers is {comm.sync_servers}, and sync {kind} has no centre that servers could hold",
            location=locate(source, "comm_param"),
            hint="choose sync EASGD or SHADOW_EASGD, or leave sync_servers out",
        )
    if comm.sync_servers and not has_servers:
        raise SolverError(
            f"sync_servers is {comm.sync_servers}, and this solver was given none",
            location=locate(source, "comm_param"),
            hint="start it by engine train under mpirun, or leave sync_servers out",
        )
    if comm.on_trainer_loss == CommParameter.CONTINUE and not comm.sync_servers:
        raise SolverError(
            "on_trainer_loss CONTINUE needs synchronization servers: without them trainers wait for each other",
            location=locate(source, "comm_param"),
            hint="choose sync EASGD or SHADOW_EASGD with sync_servers, or leave on_trainer_loss out",
        )


def sync_warnings(param: SolverParameter, trainers: int, source: Source | None = None) -> list[str]:
    """Return what the user should know: fields without effect, and what interpolation costs."""
    comm = param.comm_param
    kind = CommParameter.Sync.Name(comm.sync)

    def place(field: str) -> Location | str:
        return locate(source, field) or "solver"

    warnings = [
        f"{place(f'comm_param.{field.name}')}: comm_param.{field.name} has no effect with sync {kind}"
        for field, value in comm.ListFields()
        if field.name in _READ_BY and kind not in _READ_BY[field.name] and value != field.default_value
    ]
    settings = sync_settings(param, source)
    if settings is None:
        return warnings
    chosen = place("comm_param.sync")
    if settings.kind in _FOREGROUND and trainers > 1 and settings.every > param.max_iter > 0:
        where = place("comm_param.sync_every") if comm.HasField("sync_every") else chosen
        warnings.append(f"{where}: sync_every is {settings.every}, above max_iter: replicas are never synchronized")
    if trainers > 1 and param.nan_effect == NanEffect.SNAPSHOT and not comm.snapshot_replicas:
        where = place("nan_effect")
        warnings.append(f"{where}: nan_effect SNAPSHOT writes trainer 0's replica alone; snapshot_replicas writes all")
    if trainers == 1:
        warnings.append(f"{chosen}: sync {kind} has no effect: there is one trainer")
    elif settings.interpolates and kind in (_MA | _BMUF) & _BACKGROUND:
        alpha = settings.alpha(trainers)
        warnings.append(
            f"merge INTERPOLATE multiplies what a replica learns during a synchronization by {1 - alpha:g}, as a"
            " smaller learning rate would; merge INCREMENT keeps it"
        )
    return warnings


def _count(number: int, noun: str) -> str:
    return noun if number == 1 else f"{number} {noun}s"


def _several(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
