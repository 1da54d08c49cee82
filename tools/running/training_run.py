"""The work of `engine train`: puts solver, listeners and signals together.

It loads torch, so that `engine train --help` need not.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, closing
from pathlib import Path

from mgcaffe.comm.replicas.roles import RoleGroups
from mgcaffe.comm.supervision import status as statuses
from mgcaffe.comm.transport.communicator import Communicator
from mgcaffe.comm.transport.environment import detect
from mgcaffe.errors import EXIT_OK, EXIT_STOPPED_BY_SIGNAL, Location
from mgcaffe.prototxt import CommParameter, NanEffect, SolverParameter, read_solver_source
from mgcaffe.prototxt.source import SolverSource
from mgcaffe.solvers.events import Event, Finished, SolverListener
from mgcaffe.solvers.setup.nets import solver_text
from mgcaffe.solvers.snapshots.names import snapshot_prefix
from mgcaffe.solvers.solver import Solver
from mgcaffe.tools.flags.data_flags import apply_data_flags
from mgcaffe.tools.flags.parsing import Flags
from mgcaffe.tools.flags.snapshot_flags import apply_snapshot_flags
from mgcaffe.tools.listeners.caffe_log import CaffeLogListener
from mgcaffe.tools.listeners.glog import close_log_file, log_line, start_logging
from mgcaffe.tools.listeners.json_log import JsonLog
from mgcaffe.tools.listeners.progress import ProgressListener
from mgcaffe.tools.listeners.tensorboard import TensorBoardListener
from mgcaffe.tools.listeners.trainer_warnings import TrainerWarnings
from mgcaffe.tools.running.comm_settings import apply_comm_flags, apply_file_beside
from mgcaffe.tools.running.first_weights import first_weights
from mgcaffe.tools.running.process import dtype_named, pick_device, set_threads
from mgcaffe.tools.running.rank_watch import RankWatch
from mgcaffe.tools.running.requeueing import requeue
from mgcaffe.tools.running.rescuing import rescued
from mgcaffe.tools.running.restarting import snapshot_after_restart
from mgcaffe.tools.running.roles import loss_listeners, run_in_role
from mgcaffe.tools.running.status_writer import DoingListener, follow
from mgcaffe.tools.running.steady_memory import lay_out, speed_up_training
from mgcaffe.tools.timeline.file import check_writable
from mgcaffe.tools.timeline.recorder import Timeline


def train(flags: Flags, path: str, communicator: Communicator, watch: RankWatch) -> int:
    """Train, or serve, as a solver's file and the flags say; every rank calls it.

    Args:
        flags, path: of `engine train`, and the solver's file.
        communicator: all ranks.
        watch: what keeps an eye on this one.

    Returns:
        The exit code: 0, or 75 where a signal stopped the run after its snapshot.
    """
    start_logging(speaks=communicator.rank == 0, rank=communicator.rank, log_dir=flags.log_dir)
    statuses.doing("setting up: reading the solver and building its nets")
    with ExitStack() as stack:
        stack.callback(close_log_file)
        source = read_solver(flags, path)
        return run_in_role(flags, source, communicator, watch, lambda groups: _train(flags, source, groups, watch))


def _train(flags: Flags, source: SolverSource, groups: RoleGroups, watch: RankWatch) -> int:
    """Train, on every trainer; return the exit code."""
    communicator = groups.trainers
    assert communicator is not None
    shows_progress = _shows_progress(flags, source.param)
    speed_up_training()
    set_threads(flags.threads, communicator.local_size)
    local = (communicator.local_rank, communicator.local_size)
    device = pick_device(flags.gpu, *local) if flags.gpu else None
    with ExitStack() as stack:
        ending = _Ending()
        listeners: list[SolverListener] = [
            ending,
            DoingListener(watch.status),
            *loss_listeners(source.param, groups),
            *_listeners(flags, source.param, communicator, shows_progress, stack),
        ]
        if communicator.rank == 0:
            watch.look_for(stop_file(flags, source))
        if not shows_progress:
            log_line(f"Initializing solver from parameters: \n{solver_text(source.param)}", "solver.cpp:44")
        snapshot = snapshot_after_restart(flags, source, communicator, listeners)
        solver = stack.enter_context(
            Solver(
                source.param,
                source=source,
                communicator=communicator,
                listeners=listeners,
                weights=first_weights(flags, snapshot, communicator),
                dtype=dtype_named(flags.dtype),
                device=device,
                strict=flags.strict,
                sync_servers=groups.sync,
                embedding_servers=groups.embedding,
                stop_is_requested=lambda: bool(watch.requests.cause),
            )
        )
        lay_out(solver.net)
        log_line(
            "Use CPU." if solver.net.device.type == "cpu" else f"Using GPUs {solver.net.device.index}", "caffe.cpp:211"
        )
        follow(solver, watch.status)
        watch.requests.attach(solver)
        if snapshot:
            solver.restore(snapshot)
        if flags.timeline:
            if communicator.rank == 0:
                check_writable(flags.timeline)
            Timeline(solver, communicator, flags.timeline, flags.timeline_iterations)
        with rescued(solver, communicator, groups.roles.size):
            solver.solve()
    if flags.requeue and ending.stopped_early and communicator.rank == 0:
        requeue(watch.requests.cause)
    return EXIT_STOPPED_BY_SIGNAL if ending.stopped_early else EXIT_OK


def stop_file(flags: Flags, source: SolverSource) -> Path:
    """Return the file whose appearance stops the run."""
    if flags.stop_file:
        return Path(flags.stop_file)
    prefix = snapshot_prefix(source.param, source)
    return prefix.with_name(f"{prefix.name}.stop")


class _Ending:
    """Remembers how the run ended, on every rank."""

    stopped_early = False

    def on_event(self, event: Event) -> None:
        if isinstance(event, Finished):
            self.stopped_early = event.stopped_early


def read_solver(flags: Flags, path: str) -> SolverSource:
    """Return the solver's file with what the flags change in it."""
    source = read_solver_source(path, strict=flags.strict)
    apply_file_beside(source, path, strict=flags.strict)
    solver, without_flags = source.param, SolverParameter()
    without_flags.CopyFrom(solver)
    apply_comm_flags(solver, flags)
    apply_snapshot_flags(solver, flags)
    if flags.nan_effect:
        solver.nan_effect = NanEffect.Value(flags.nan_effect.upper())
    if flags.decoupled_weight_decay:
        solver.decoupled_weight_decay = True
    if flags.row_wise_adagrad:
        solver.row_wise_adagrad = True
    if flags.autotune:
        solver.autotune = flags.autotune
    if flags.precision:
        solver.precision = flags.precision
    if flags.winograd:
        solver.winograd = SolverParameter.Winograd.Value(flags.winograd.upper())
    if flags.recompute:
        solver.recompute = flags.recompute
    if flags.max_iter is not None:
        solver.max_iter = flags.max_iter
    if flags.level is not None:
        solver.train_state.level = flags.level
    if flags.stage:
        solver.train_state.stage.extend(flags.stage)
    apply_data_flags(solver, flags)
    source.note_changes(without_flags, lambda path: Location(_flag_of(path.rpartition(".")[2], flags)))
    return source


def _flag_of(field: str, flags: Flags) -> str:
    """Return the flag that set a field of the solver; most are called as their fields."""
    return str(flags.given.get(field, f"--{field}"))


def _shows_progress(flags: Flags, solver: SolverParameter) -> bool:
    if flags.progress is not None:
        return bool(flags.progress)
    # Launchers give their ranks pseudo-terminals whose output ends up in files. A progress line has no room for the
    # statistics of debug_info.
    return not solver.debug_info and sys.stderr.isatty() and detect().launcher == "none"


def _listeners(
    flags: Flags, solver: SolverParameter, communicator: Communicator, shows_progress: bool, stack: ExitStack
) -> list[SolverListener]:
    """Those that tell the user what happens; rank 0 speaks, the others only in log files. The stack closes them."""
    # Trainers with replicas of their own exchange no gradients.
    in_step = communicator.size if solver.comm_param.sync == CommParameter.GRADIENTS else 1
    if communicator.rank != 0:
        if flags.log_dir:
            return [CaffeLogListener(solver.display, in_step)]
        return [TrainerWarnings()] if in_step < communicator.size else []
    listeners: list[SolverListener] = []
    if flags.tensorboard:
        listeners.append(stack.enter_context(closing(TensorBoardListener(flags.tensorboard))))
    if flags.json_log:
        listeners.append(stack.enter_context(closing(JsonLog(flags.json_log))))
    if shows_progress:
        listeners.append(stack.enter_context(closing(ProgressListener(in_step))))
    if flags.log_dir or not shows_progress:
        listeners.append(CaffeLogListener(solver.display, in_step))
    return listeners
