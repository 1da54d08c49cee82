"""What a rank does in `engine train`: it trains, or it serves those that do (docs/roles.md)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version

import torch

from mgcaffe.comm.replicas.centre_server import CentreServer
from mgcaffe.comm.replicas.control import Control, serve
from mgcaffe.comm.replicas.roles import Role, RoleGroups, Roles, assign_roles, make_groups
from mgcaffe.comm.transport.communicator import Communicator
from mgcaffe.comm.transport.handshake import handshake
from mgcaffe.errors import EXIT_OK, EXIT_STOPPED_BY_SIGNAL, EngineError, SolverError
from mgcaffe.prototxt import CommParameter, print_text
from mgcaffe.prototxt.source import SolverSource
from mgcaffe.solvers.replicas.sync_settings import check_servers, sync_settings
from mgcaffe.solvers.serving.embedding_server import EmbeddingServer
from mgcaffe.solvers.source import locate
from mgcaffe.tools.flags.parsing import Flags
from mgcaffe.tools.listeners.glog import log_line
from mgcaffe.tools.running.process import dtype_named, speed_up_memory
from mgcaffe.tools.running.rank_watch import RankWatch
from mgcaffe.tools.running.signals import MPIRUN_KILLS_AFTER_S

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
    )
    if role is Role.TRAINER:
        return _train_with_servers(control, watch, lambda: train(groups))
    requests.attach(_NoSolver())
    serve(_SERVERS[role](flags, source, groups), control)
    log_line(f"All trainers have left this {role.value}")
    return EXIT_STOPPED_BY_SIGNAL if control.stopped_early else EXIT_OK


def _agreed_roles(source: SolverSource, world: Communicator) -> Roles:
    """Return the roles that the solver asks for, once all ranks have been given the same solver."""
    if world.size > 1:
        handshake(world, {"solver": print_text(source.param), "mgcaffe version": version("mgcaffe")})
    comm = source.param.comm_param
    roles = assign_roles(world.size, comm.embedding_servers, comm.sync_servers)
    check_servers(source.param, source)
    if comm.on_trainer_loss == CommParameter.CONTINUE:
        raise SolverError(
            "on_trainer_loss CONTINUE is not supported: when a rank dies MPI ends the others, or makes calls fail that"
            " they are in",
            location=locate(source, "comm_param"),
            hint="leave it out; --max_restarts starts all ranks again from the newest snapshot",
        )
    return roles


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
    control.leave(stopped_early=code == EXIT_STOPPED_BY_SIGNAL)
    return code


def _sync_server(flags: Flags, source: SolverSource, groups: RoleGroups) -> Step:
    settings = sync_settings(source.param, source)
    assert settings is not None and groups.sync is not None
    trainers = groups.roles.trainers
    return CentreServer(groups.sync, trainers, settings.alpha(trainers)).step


def _embedding_server(flags: Flags, source: SolverSource, groups: RoleGroups) -> Step:
    assert groups.embedding is not None
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
