"""`engine train --dry_run`: does once everything that a run does, says what was found, and leaves nothing behind.

The nets are built, one batch of each test net is tested, one update is made, and one snapshot is written, read back
and compared. The snapshot goes into a folder of its own beside the place where the run's would go, so that a missing
permission or a full disk shows, and the folder is removed. No log, no snapshot and no other file of the user's is
written to.
"""

from __future__ import annotations

import resource
import shutil
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import torch

from mgcaffe.comm.replicas.roles import RoleGroups
from mgcaffe.comm.transport.communicator import Communicator
from mgcaffe.comm.transport.handshake import handshake
from mgcaffe.errors import EXIT_OK, SnapshotError
from mgcaffe.prototxt import SolverParameter
from mgcaffe.prototxt.source import SolverSource
from mgcaffe.solvers import events
from mgcaffe.solvers.events.testing import Tested
from mgcaffe.solvers.setup.nets import solver_text
from mgcaffe.solvers.snapshots import names
from mgcaffe.solvers.snapshots.files import prefix_error
from mgcaffe.solvers.solver import Solver
from mgcaffe.tools.flags.parsing import Flags
from mgcaffe.tools.flags.snapshot_flags import chosen_snapshot
from mgcaffe.tools.listeners.communication_lines import scores_text
from mgcaffe.tools.listeners.glog import number, start_logging
from mgcaffe.tools.running.first_weights import first_weights
from mgcaffe.tools.running.process import dtype_named, pick_device, set_threads
from mgcaffe.tools.running.rank_watch import RankWatch
from mgcaffe.tools.running.roles import run_in_role
from mgcaffe.tools.running.steady_memory import lay_out, speed_up_training
from mgcaffe.tools.running.training_run import read_solver
from mgcaffe.tools.table import format_bytes, format_shape

_NEVER = 2**31 - 1


@dataclass
class _Notes:
    """Remembers what the events of the one iteration say."""

    done: events.IterationDone | None = None
    outputs: tuple[events.OutputValue, ...] = ()
    tests: list[Tested] = field(default_factory=list)

    def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.IterationDone):
            self.done = event
        elif isinstance(event, events.Displayed):
            self.outputs = event.outputs
        elif isinstance(event, Tested):
            self.tests.append(event)


def dry_run(flags: Flags, path: str, communicator: Communicator, watch: RankWatch) -> int:
    """Try a run out; every rank calls it, rank 0 reports on standard output.

    Args:
        flags, path: of `engine train`, and the solver's file.
        communicator: all ranks.
        watch: what keeps an eye on this one.

    Returns:
        The exit code, 0.

    Raises:
        EngineError: whatever would have stopped the run.
    """
    start_logging(speaks=communicator.rank == 0, rank=communicator.rank)
    source = read_solver(flags, path)
    return run_in_role(flags, source, communicator, watch, lambda groups: _try_out(flags, source, groups))


def _try_out(flags: Flags, source: SolverSource, groups: RoleGroups) -> int:
    """Try a run out, on every trainer; return the exit code."""
    communicator = groups.trainers
    assert communicator is not None
    speed_up_training()
    set_threads(flags.threads, communicator.local_size)
    local = (communicator.local_rank, communicator.local_size)
    device = pick_device(flags.gpu, *local) if flags.gpu else None
    # What follows depends on the solver, and changes it.
    handshake(communicator, {"solver": solver_text(source.param)})
    asked = type(source.param).FromString(source.param.SerializeToString())
    notes = _Notes()
    begin_with = chosen_snapshot(flags, source, communicator, [notes])
    with ExitStack() as stack:
        prefix = scratch = None
        if asked.snapshot > 0 or asked.snapshot_after_train:
            prefix = names.snapshot_prefix(asked, source)
            scratch = _make_scratch(prefix, communicator) / prefix.name
            # A rank that fails ends the others, so whoever comes here first cleans up.
            stack.callback(shutil.rmtree, scratch.parent, ignore_errors=True)
        _once(source.param, scratch)
        if groups.embedding is not None:
            groups.embedding.broadcast_object(source.param.SerializeToString())  # the servers take it over
        began = time.perf_counter()
        solver = stack.enter_context(
            Solver(
                source.param,
                source=source,
                communicator=communicator,
                listeners=[notes],
                weights=first_weights(flags, begin_with, communicator),
                dtype=dtype_named(flags.dtype),
                device=device,
                strict=flags.strict,
                sync_servers=groups.sync,
                embedding_servers=groups.embedding,
            )
        )
        lay_out(solver.net)
        built_s = time.perf_counter() - began
        if begin_with:
            solver.restore(begin_with)
        start = solver.iteration
        solver.test_all()
        solver.step(1)
        solver.finish_training()
        report = [*_of_net(solver, communicator.size, built_s), *_of_step(solver, notes, start)]
        if prefix is None or scratch is None:
            report.append("Snapshot: the run writes none")
        else:
            report += _of_snapshots(asked, prefix, _try_snapshot(solver, scratch), start)
        # No rank may clean up while rank 0 still needs the folder.
        communicator.barrier()
    if communicator.rank == 0:
        print("\n".join([*report, "Nothing was left behind. The run can start."]), flush=True)
    return EXIT_OK


def _make_scratch(prefix: Path, communicator: Communicator) -> Path:
    made: str | OSError = ""
    if communicator.rank == 0:
        try:
            made = tempfile.mkdtemp(prefix=".dry_run_", dir=prefix.parent)
        except OSError as error:
            made = error
    made = communicator.broadcast_object(made)
    if isinstance(made, OSError):
        raise prefix_error(prefix, made)
    return Path(made)


def _once(param: SolverParameter, prefix: Path | None) -> None:
    """Change a solver so that it does everything once, where and when it is asked to."""
    if prefix is not None:
        param.snapshot_prefix = str(prefix)
    param.snapshot = 0
    param.display = 1
    param.test_initialization = False
    if param.test_interval:
        param.test_interval = _NEVER
    for index in range(len(param.test_iter)):
        param.test_iter[index] = min(param.test_iter[index], 1)
    if param.autotune not in ("", "off"):
        # What is recorded is read, and nothing is measured that would have to be.
        param.comm_param.deterministic = True


def _try_snapshot(solver: Solver, prefix: Path) -> int:
    """Write a snapshot, read it back and compare; return its size in bytes."""
    arena = solver.net.arena
    weights = [arena.data, *(table.parameter.data for table in arena.tables)]
    before = [tensor.clone() for tensor in weights]
    iteration = solver.iteration
    solver.snapshot()
    solver.world.communicator.barrier()  # rank 0 alone may have written it
    hdf5 = names.is_hdf5(solver.param)
    files = (names.weights_path(prefix, iteration, hdf5=hdf5), names.state_path(prefix, iteration, hdf5=hdf5))
    size = 0
    if solver.world.rank == 0:
        size = sum(file.stat().st_size for file in (*files, *names.stored_shards(files[0])))
    for tensor in weights:
        tensor.zero_()
    solver.restore(str(files[1]))
    # Of trainers with replicas of their own the first one's is written.
    is_written = solver.world.rank == 0 or solver.ranks is solver.world
    if solver.iteration != iteration or (is_written and not all(map(torch.equal, weights, before))):
        raise SnapshotError("the snapshot that was written and read back holds other weights")
    return size


def _of_net(solver: Solver, ranks: int, seconds: float) -> list[str]:
    net = solver.net
    count = sum(parameter.count for parameter in net.parameters)
    lines = [
        f"Net '{net.name}': {len(net.layers)} layers, {count:,} parameters, on {_device_text(net.device)},"
        f" {ranks} rank{'s' * (ranks != 1)}; built in {seconds:.1f} s"
    ]
    for label, data_layers in [
        ("training", net.data_layers),
        *((f"test net #{index}", test.data_layers) for index, test in enumerate(solver.test_nets)),
    ]:
        for layer in data_layers:
            records = "an unknown number of" if layer.source_records is None else f"{layer.source_records:,}"
            shapes = ", ".join(format_shape(shape) for shape in layer.reshape(()))
            lines.append(f"Data, {label}, layer '{layer.name}': {records} records; a batch of a rank is {shapes}")
    return lines


def _of_step(solver: Solver, notes: _Notes, start: int) -> list[str]:
    lines = [
        f"Test net #{test.net}, one batch: {scores_text(test.scores)} ({test.seconds * 1e3:.1f} ms)"
        for test in notes.tests
        if solver.param.test_iter[test.net]
    ]
    done = notes.done
    if done is not None:
        outputs = f"; {scores_text(notes.outputs)}" if notes.outputs else ""
        lines.append(
            f"Step, iteration {start}: loss {number(done.loss)}, lr {number(done.rate)}{outputs}; {done.images} images"
            f" in {done.seconds * 1e3:.1f} ms (the first is slower), {done.data_wait_s * 1e3:.1f} ms of it waiting for"
            " data"
        )
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    lines.append(f"Memory: at most {format_bytes(peak)} of rank 0")
    if solver.net.device.type == "cuda":
        lines.append(f"GPU memory: at most {format_bytes(torch.cuda.max_memory_allocated(solver.net.device))}")
    return lines


def _of_snapshots(param: SolverParameter, prefix: Path, size: int, start: int) -> list[str]:
    """Return what the run's snapshots will take.

    Args:
        param: the solver as the user wrote it.
        prefix: what their names begin with.
        size: of one, in bytes.
        start: the iteration that the run begins with.
    """
    count = 0
    if param.snapshot > 0:
        count = max(0, param.max_iter // param.snapshot - start // param.snapshot)
    if param.snapshot_after_train and not (param.snapshot > 0 and param.max_iter % param.snapshot == 0):
        count += 1
    free = shutil.disk_usage(prefix.parent).free
    lines = [
        f"Snapshot: {format_bytes(size)}, written, read back and found equal; the run writes {count} to {prefix}_iter_*"
    ]
    kept = min(count, param.snapshot_keep) if param.snapshot_keep else count
    if kept * size > free:
        lines.append(
            f"WARNING: {kept} snapshots take {format_bytes(kept * size)}, and {format_bytes(free)} are free there"
        )
    return lines


def _device_text(device: torch.device) -> str:
    return f"the CPU ({torch.get_num_threads()} threads)" if device.type == "cpu" else f"GPU {device.index}"
