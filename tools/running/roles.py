"""What a rank does in `engine train`: it trains, or it serves those that do (docs/roles.md)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.metadata import version

import torch

from mgcaffe.comm.replicas.centre_server import CentreServer
from mgcaffe.comm.replicas.control import Control, serve
from mgcaffe.comm.replicas.roles import Role, RoleGroups, Roles, assign_roles, make_groups
from mgcaffe.comm.supervision import status as statuses
from mgcaffe.comm.transport import ulfm
from mgcaffe.comm.transport.communicator import Communicator
from mgcaffe.comm.transport.handshake import handshake
from mgcaffe.errors import EXIT_OK, EXIT_STOPPED_BY_SIGNAL, EngineError, UsageError
from mgcaffe.prototxt import CommParameter, SolverParameter
from mgcaffe.prototxt.source import SolverSource
from mgcaffe.solvers.events import Event, SolverListener, Started
from mgcaffe.solvers.replicas.sync_settings import check_servers, sync_settings
from mgcaffe.solvers.serving.embedding_server import EmbeddingServer
from mgcaffe.solvers.setup.nets import solver_text
from mgcaffe.tools.flags.parsing import Flags
from mgcaffe.tools.listeners.glog import log_line
from mgcaffe.tools.running.process import dtype_named, speed_up_memory
from mgcaffe.tools.running.rank_watch import RankWatch
from mgcaffe.tools.running.signals import MPIRUN_KILLS_AFTER_S

_log = logging.getLogger(__name__)

Step = Callable[[float], bool]
"""Waits for a request for so many seconds and serves it; returns whether there was one."""


def run_in_role(
    flags: Flags,
    source: SolverSource,
    world: Communicator,
    watch: RankWatch,
    train: Callable[[RoleGroups], int],
) -> int:
    """Do what this rank's role is; every rank calls it.

    Args:
        flags: of `engine train`.
        source: the solver, with what the flags change in it.
        world: all ranks.
        watch: what keeps an eye on this one.
        train: what a trainer does; returns its exit code.

    Returns:
        The exit code: a trainer's own, or 75 on a server whose trainers were stopped.

    Raises:
        UsageError: roles that do not fit the number of ranks.
        SolverError: servers that the solver has no use for.
        RankDisagreement: the ranks were given different solvers.
        PeerFailure: on a server: the trainers have failed.
    """
    roles = _agreed_roles(source, world)
    groups = make_groups(world, roles)
    if groups.control is None:
        return train(groups)
    role = roles.of(world.rank)
    watch.status.role(role.value)
    log_line(f"Roles: {roles.describe()}")
    requests = watch.requests
    control = Control(
        groups.control,
        roles,
        wanted=lambda: requests.cause,
        on_stop=lambda cause: None if requests.cause else requests.stop(cause, MPIRUN_KILLS_AFTER_S),
        on_loss=partial(_report_loss, trainers=roles.trainers),
    )
    if role is Role.TRAINER:
        code = _train_with_servers(control, watch, lambda: train(groups))
    else:
        code = _serve(flags, source, groups, role, control, watch)
    if source.param.comm_param.on_trainer_loss == CommParameter.CONTINUE:
        world.shrink()
    return code


def _agreed_roles(source: SolverSource, world: Communicator) -> Roles:
    """Return the roles that the solver asks for, once all ranks have been given the same ones.

    What else a solver and its nets say the trainers compare among themselves, with the nets' layers.
    """
    comm = source.param.comm_param
    if world.size > 1:
        servers = f"embedding_servers: {comm.embedding_servers}, sync_servers: {comm.sync_servers}"
        handshake(world, {"roles": servers, "mgcaffe version": version("mgcaffe")})
        if comm.embedding_servers or comm.sync_servers:
            handshake(world, {"solver": solver_text(source.param)})
    roles = assign_roles(world.size, comm.embedding_servers, comm.sync_servers)
    check_servers(source.param, source)
    if comm.on_trainer_loss == CommParameter.CONTINUE:
        _check_that_trainers_may_be_lost(world.transport)
    return roles


def _check_that_trainers_may_be_lost(transport: str) -> None:
    if transport == "gloo":
        raise UsageError(
            "on_trainer_loss CONTINUE is not possible under torchrun, which ends all ranks as soon as one has died",
            hint="start the job by `engine train -np N --on_trainer_loss=continue`, or leave on_trainer_loss out",
        )
    if not ulfm.is_enabled():
        raise UsageError(
            "on_trainer_loss CONTINUE needs an mpirun that leaves the other ranks alone when one has died",
            hint="give the launcher --on_trainer_loss=continue, or mpirun --with-ft ulfm",
        )


class _TrainersMayBeLost:
    """Lets this rank go on when another trainer than rank 0 dies, from the moment at which training begins."""

    def __init__(self, groups: RoleGroups) -> None:
        self._groups = groups

    def on_event(self, event: Event) -> None:
        """Take an event of the solver."""
        if isinstance(event, Started):
            self.begin()

    def begin(self) -> None:
        """Begin with it."""
        ranks = frozenset(self._groups.roles.ranks(Role.TRAINER)) - {0}
        for group in (self._groups.control, self._groups.embedding, self._groups.sync):
            if group is not None:
                group.tolerate(ranks)
        statuses.current().tolerated = ranks


def loss_listeners(param: SolverParameter, groups: RoleGroups) -> list[SolverListener]:
    """Return what makes this trainer go on when another one dies, if the solver asks for that."""
    return [_TrainersMayBeLost(groups)] if param.comm_param.on_trainer_loss == CommParameter.CONTINUE else []


def _report_loss(rank: int, trainers: int) -> None:
    _log.warning(
        "rank %d (trainer) is gone: training goes on without it, and its share of the data (1 record of %d) is not seen"
        " any more",
        rank,
        trainers,
    )


def _serve(
    flags: Flags, source: SolverSource, groups: RoleGroups, role: Role, control: Control, watch: RankWatch
) -> int:
    """Serve until all trainers have left; return the exit code."""
    watch.requests.attach(_NoSolver())
    step = _SERVERS[role](flags, source, groups)
    if source.param.comm_param.on_trainer_loss == CommParameter.CONTINUE:
        _TrainersMayBeLost(groups).begin()
    serve(step, control)
    log_line(f"All trainers have left this {role.value}")
    return EXIT_STOPPED_BY_SIGNAL if control.stopped_early else EXIT_OK


def _train_with_servers(control: Control, watch: RankWatch, train: Callable[[], int]) -> int:
    """Train, and let the servers know of the end, whatever it is."""

    def look() -> None:
        # The training thread meets the same error.
        with suppress(EngineError):
            control.look()

    watch.add_task(look)
    try:
        code = train()
    except BaseException:
        with suppress(EngineError):
            control.leave(failed=True)
        raise
    # The trainers may have agreed on a stop before the server's message, which says why, was looked at; and one of them
    # may have died since the last look.
    look()
    control.leave(stopped_early=code == EXIT_STOPPED_BY_SIGNAL)
    return code


def _sync_server(flags: Flags, source: SolverSource, groups: RoleGroups) -> Step:
    settings = sync_settings(source.param, source)
    assert settings is not None and groups.sync is not None
    trainers = groups.roles.trainers
    return CentreServer(groups.sync, trainers, settings.alpha(trainers)).step


def _embedding_server(flags: Flags, source: SolverSource, groups: RoleGroups) -> Step:
    assert groups.embedding is not None
    if flags.dry_run:
        source.param.ParseFromString(groups.embedding.broadcast_object(b""))  # as the trainers have changed it
    speed_up_memory()
    torch.set_num_threads(1)
    server = EmbeddingServer(
        source.param,
        groups.embedding,
        groups.roles.trainers,
        source=source,
        dtype=dtype_named(flags.dtype),
        strict=flags.strict,
    )
    return server.step


_SERVERS: dict[Role, Callable[[Flags, SolverSource, RoleGroups], Step]] = {
    Role.EMBEDDING_SERVER: _embedding_server,
    Role.SYNC_SERVER: _sync_server,
}


class _NoSolver:
    """Takes the requests of signals on a server: `Control` passes a stop on; a snapshot is the trainers' alone."""

    def request_stop(self) -> None:
        """Do nothing."""

    def request_snapshot(self) -> None:
        """Do nothing."""
