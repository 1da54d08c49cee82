"""Builds what a solver drives, alike on every rank: training net and test nets, on the device that it chooses."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import torch

from mgcaffe.comm import Communicator
from mgcaffe.comm.supervision import status as statuses
from mgcaffe.engine import Net, Shard, TestShard
from mgcaffe.engine.kernels.precision import FLOAT32, Precision
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.shard import BatchShard
from mgcaffe.engine.tables.access import PlaceTables
from mgcaffe.errors import SolverError
from mgcaffe.prototxt import TEST, TRAIN, SolverParameter, Source
from mgcaffe.solvers import carried_state
from mgcaffe.solvers.events import Emit, Noted, Warned
from mgcaffe.solvers.exchange.ranks import Ranks
from mgcaffe.solvers.monitor.debug_info import watch_tests
from mgcaffe.solvers.setup.agreement import agree_on_inputs, agree_on_shapes, choose_seed
from mgcaffe.solvers.setup.nets import NetChoice, NetReader
from mgcaffe.solvers.setup.precision import choose_precision, warn_of_losses
from mgcaffe.solvers.source import locate
from mgcaffe.solvers.tables.async_tables import AsyncTables
from mgcaffe.solvers.tables.divided_tables import DividedTables
from mgcaffe.solvers.tables.server_tables import ServerTables
from mgcaffe.solvers.tables.settings import refuse_no_tables


@dataclass(frozen=True)
class BuiltNets:
    """The nets of a solver.

    Attributes:
        train: the training net.
        tests: the test nets, which share its weights.
        workers: the training nets of all Hogwild workers, `train` first; the others train its weights too.
        seed: what every random number of the run derives from.
        tables: those of the training net, where they are divided among ranks; else None.
    """

    train: Net
    tests: list[Net]
    workers: list[Net]
    seed: int
    tables: DividedTables | ServerTables | None = None


def build_nets(
    param: SolverParameter,
    reader: NetReader,
    world: Ranks,
    ranks: Ranks,
    emit: Emit,
    opened: ExitStack,
    dtype: torch.dtype,
    device: str | torch.device | None,
    keep_blobs: bool,
    embedding_servers: Communicator | None = None,
) -> BuiltNets:
    """Build the nets that a solver names; collective.

    Args:
        param: the SolverParameter message.
        reader: reads the nets' files.
        world: all ranks, which share out the data.
        ranks: those that train in step: all of them, or this one alone, with a replica of its own.
        emit: takes the events.
        opened: closes the nets.
        dtype: float32 or float64.
        device: where to train; None: as solver_mode says.
        keep_blobs: whether the nets' values and gradients stay readable after a pass.
        embedding_servers: the same ranks and, behind them, the embedding servers; None: there are none.

    Raises:
        PrototxtError, NetError, DataError, SolverError: an input that cannot be trained, with its place.
        RankDisagreement: the ranks were given different inputs.
    """
    train, *tests = [reader.train_net(), *reader.test_nets()]
    agree_on_inputs(param, [train, *tests], dtype, world.communicator)
    if device is None:
        device = choose_device(param, world.communicator, emit, reader.source)
    seed = choose_seed(param, world.communicator)
    precision = choose_precision(param, reader.source, torch.device(device), dtype, emit)
    divisors = Ranks(ranks.communicator.duplicate())
    keep_blobs = keep_blobs or param.debug_info
    tables: DividedTables | ServerTables | None
    if embedding_servers is not None:
        agree_on_inputs(param, [train], dtype, embedding_servers)
        embedding_servers.broadcast_object(seed)
        servers = range(world.size, embedding_servers.size)
        tables = ServerTables(param, embedding_servers, servers, dtype, torch.device(device))
        opened.callback(tables.close)
    elif world.size > ranks.size:
        tables = AsyncTables(param, world.communicator, dtype, torch.device(device), reader.source)
        opened.callback(tables.close)
    else:
        tables = divide_tables(param, ranks, dtype, torch.device(device), opened)
    place: PlaceTables | None = None if tables is None else tables.place
    workers = param.comm_param.hogwild_threads
    worker_nets: list[Net] = []
    for worker in range(workers):
        beside = worker_nets[0] if worker_nets else None
        if beside is not None and tables is not None:
            place = tables.place.again
        worker_nets.append(
            build_train_net(
                train,
                world,
                divisors,
                seed,
                dtype,
                torch.device(device),
                keep_blobs=keep_blobs,
                place_tables=place,
                workers=workers,
                worker=worker,
                beside=beside,
                precision=precision,
            )
        )
        opened.callback(worker_nets[-1].close)
    train_net = worker_nets[0]
    test_nets = build_test_nets(tests, train_net, ranks, opened)
    if embedding_servers is not None:
        refuse_no_tables(len(train_net.arena.tables), param, reader.source)
    if tables is not None and not tables.are_there:
        tables = None
    if tables is not None:
        for warning in tables.attach(worker_nets, test_nets):
            emit(Warned(warning))
        emit(Noted(tables.place.describe()))
        if param.debug_info:
            emit(Warned("debug_info shows of tables the rows that lie in rank 0, and their gradients as they come"))
    else:
        for field in ("embedding_loads", "embeddings"):
            if param.comm_param.HasField(field):
                emit(Warned(f"comm_param.{field} has no effect: there are no tables that are divided among ranks"))
        if param.comm_param.HasField("lookahead") and world.size > ranks.size:  # else the settings alone tell
            emit(Warned("comm_param.lookahead has no effect: the training net has no layer of type EmbeddingBag"))
    if tables is None and param.comm_param.HasField("snapshot_tables"):
        emit(
            Warned("comm_param.snapshot_tables has no effect: all tables lie in this process, and snapshots hold them")
        )
    if train.phase == TEST:
        emit(Warned("the training net is in the TEST phase, as its state says: its layers compute as they do in tests"))
    for index, choice in enumerate(tests):
        if choice.phase == TRAIN:
            text = f"test net #{index} is in the TRAIN phase, as its state says: its layers compute as in training"
            emit(Warned(text))
    warn_of_losses(train_net, precision, emit)
    watch_tests(test_nets, param, world.rank, emit)
    agree_on_shapes(train_net, world.communicator)
    carried_state.warn_of_ranks(train.param, world.size, workers, emit)
    return BuiltNets(train_net, test_nets, worker_nets, seed, tables)


def choose_device(
    param: SolverParameter, communicator: Communicator, emit: Emit, source: Source | None = None
) -> torch.device:
    """Choose the device that solver_mode and device_id ask for; of several ranks on a host each takes its own GPU.

    `solver_mode: GPU` on a machine without a GPU warns and trains on the CPU. Caffe's default is the GPU too,
    so a solver that leaves solver_mode unset takes one if there is one.

    Raises:
        SolverError: there are GPUs, but none with the number device_id.
    """
    wants_gpu = param.solver_mode == type(param).GPU
    if not wants_gpu or not torch.cuda.is_available():
        if wants_gpu and param.HasField("solver_mode"):
            emit(Warned("solver_mode is GPU, and no GPU can be used here: training on the CPU"))
        return torch.device("cpu")
    count = torch.cuda.device_count()
    if communicator.size > 1:
        return torch.device("cuda", communicator.local_rank % count)
    if not 0 <= param.device_id < count:
        raise SolverError(
            f"device_id is {param.device_id}, and PyTorch sees {count} GPU{'s' if count > 1 else ''}",
            location=locate(source, "device_id"),
            hint="choose 0, by device_id or --gpu" if count == 1 else f"choose one from 0 to {count - 1}",
        )
    return torch.device("cuda", param.device_id)


def divide_tables(
    param: SolverParameter, ranks: Ranks, dtype: torch.dtype, device: torch.device, opened: ExitStack
) -> DividedTables | None:
    """Return what divides the tables of EmbeddingBag layers among ranks that train in step; None where it is one."""
    if ranks.size == 1:
        return None
    tables = DividedTables(param, ranks.communicator, dtype, device)
    opened.callback(tables.close)
    return tables


def build_train_net(
    choice: NetChoice,
    world: Ranks,
    divisors: Ranks,
    seed: int,
    dtype: torch.dtype,
    device: torch.device,
    keep_blobs: bool = False,
    place_tables: PlaceTables | None = None,
    workers: int = 1,
    worker: int = 0,
    beside: Net | None = None,
    precision: Precision = FLOAT32,
) -> Net:
    """Build the training net, which reads this rank's records, or that of a Hogwild worker, which reads its share.

    Args:
        choice: what the solver asks for.
        world: all ranks, which share out the data.
        divisors: those that train in step, with a communicator of their own for the numbers that loss layers add up.
        seed, dtype, device, keep_blobs, place_tables, precision: as for Net.
        workers, worker: how many workers each rank has, and the number of this one.
        beside: worker 0's net, whose weights this one trains too; None: it is worker 0's.
    """
    statuses.doing("setting up: building the training net" + (f" of worker {worker}" if worker else ""))
    shard = BatchShard if carried_state.reads_sequences(choice.param) else Shard
    return Net(
        choice.param,
        phase=choice.phase,
        level=choice.level,
        stages=choice.stages,
        sources=choice.sources,
        seed=seed,
        dtype=dtype,
        device=device,
        shard=shard(world.rank * workers + worker, world.size * workers),
        sum_over_ranks=divisors.sum_of,
        solver_ranks=divisors.size,
        keep_blobs=keep_blobs or choice.phase == TEST,  # what frees its blobs in the TEST phase cannot run backward
        train_beside=beside,
        before_setup=partial(_record_setup, "setting up"),
        place_tables=place_tables,
        precision=precision,
    )


def build_test_nets(choices: Sequence[NetChoice], train_net: Net, ranks: Ranks, opened: ExitStack) -> list[Net]:
    """Build the test nets, which share the training net's weights, each with this rank's batches.

    `opened` closes them.
    """
    nets: list[Net] = []
    for number, choice in enumerate(choices):
        place = f"setting up, test net #{number}"
        statuses.doing(place)
        # A state that goes on from batch to batch needs all batches: each rank runs the whole test.
        shard = (0, 1) if carried_state.carries_state(choice.param) else (ranks.rank, ranks.size)
        net = Net(
            choice.param,
            phase=choice.phase,
            level=choice.level,
            stages=choice.stages,
            sources=choice.sources,
            seed=train_net.seed,
            dtype=train_net.dtype,
            device=train_net.device,
            shard=TestShard(*shard, choice.test_iter),
            keep_blobs=train_net.keep_blobs,
            share_with=train_net,
            before_setup=partial(_record_setup, place),
            precision=train_net.context.precision,
        )
        opened.callback(net.close)
        nets.append(net)
    statuses.doing("setting up: the nets are built")
    return nets


def _record_setup(place: str, layer: Layer) -> None:
    """Record in this rank's status which layer is being set up."""
    statuses.doing(f"{place}, {layer.describe()}")
