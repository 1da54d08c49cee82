"""Builds a solver: checks its parameters, builds the nets, and makes the parts that train, test and save them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import TypeVar

import torch

from mgcaffe.comm import Communicator, SingleCommunicator
from mgcaffe.prototxt import SolverParameter, SolverSource
from mgcaffe.solvers import events
from mgcaffe.solvers.exchange.averaging import GradientAveraging
from mgcaffe.solvers.exchange.gradient_buffer import GradientBuffer
from mgcaffe.solvers.exchange.ranks import Ranks
from mgcaffe.solvers.loss_scale import LossScale
from mgcaffe.solvers.monitor.debug_info import DebugInfo
from mgcaffe.solvers.monitor.finite_check import FiniteCheck
from mgcaffe.solvers.monitor.meter import Meter
from mgcaffe.solvers.monitor.smoothing import SmoothedLoss
from mgcaffe.solvers.rates.policies import LearningRatePolicy
from mgcaffe.solvers.replicas.replicas import Replicas
from mgcaffe.solvers.replicas.sync_settings import check_servers, sync_settings, sync_warnings
from mgcaffe.solvers.serving.serving_trainer import serve_other_trainers
from mgcaffe.solvers.setup.autotune import autotune
from mgcaffe.solvers.setup.building import BuiltNets, build_nets
from mgcaffe.solvers.setup.checks import check_fields
from mgcaffe.solvers.setup.hogwild import check_net_of_workers, check_workers
from mgcaffe.solvers.setup.nets import NetReader
from mgcaffe.solvers.setup.recomputation import recompute
from mgcaffe.solvers.setup.weights import copy_weights
from mgcaffe.solvers.snapshots.resuming import RunState
from mgcaffe.solvers.snapshots.writer import Snapshots, check_prefix
from mgcaffe.solvers.tables.settings import check_embeddings
from mgcaffe.solvers.testing.test_runs import TestRuns
from mgcaffe.solvers.trainer import Trainer
from mgcaffe.solvers.update.kept_products import KeptProducts
from mgcaffe.solvers.update.updater import Updater
from mgcaffe.solvers.workers.hogwild import HogwildWorkers

T = TypeVar("T")


class BuiltSolver:
    """What a solver consists of: its nets, and the parts that an iteration, a test and a snapshot go through.

    Args:
        param: the SolverParameter message.
        source: where its fields stand (`read_solver_source`), for errors and the default snapshot prefix.
        communicator: the ranks that train together; None: this one alone.
        listeners: take the events.
        weights: caffemodels to start from; None: those that the solver names.
        schedule: how gradients are merged; None: comm_param.schedule.
        dtype: float32 or float64.
        device: where to train; None: as solver_mode says.
        strict: whether an unknown field in a net's file is an error.
        keep_blobs: whether the nets' values and gradients stay readable after a pass, at the cost of memory.
        sync_servers: the same ranks and, behind them, the synchronization servers; None: there are none.
        embedding_servers: the same ranks and, behind them, the embedding servers; None: there are none.
        stop_is_requested: asked while the solver is built whether to stop measuring (`autotune`).

    Attributes:
        iteration: how many times the weights have been updated, always; with several Hogwild workers, by worker 0.
        net, test_nets: the training net, and the test nets, which share its weights.
        worker_nets: the training nets of all Hogwild workers, `net` first.
        seed: what every random number of the run derives from.
        world: all ranks.
        ranks: those that train in step: all of them, or, where each is a trainer with a replica of its own
            (`comm_param.sync`), this one alone.

    Raises:
        PrototxtError, NetError, DataError, SolverError: an input that cannot be trained, with its place.
        SnapshotError: (exit code 73) snapshots are due and cannot be written.
        RankDisagreement: the ranks were given different inputs.
    """

    def __init__(
        self,
        param: SolverParameter,
        *,
        source: SolverSource | None = None,
        communicator: Communicator | None = None,
        listeners: Iterable[events.SolverListener] = (),
        weights: Sequence[str] | None = None,
        schedule: str | None = None,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device | None = None,
        strict: bool = False,
        keep_blobs: bool = False,
        sync_servers: Communicator | None = None,
        embedding_servers: Communicator | None = None,
        stop_is_requested: Callable[[], bool] = lambda: False,
    ) -> None:
        self.param = param
        self.listeners = list(listeners)
        self.iteration = 0
        self.world = Ranks(communicator if communicator is not None else SingleCommunicator())
        sync = sync_settings(param, source)
        self.ranks = self.world if sync is None else Ranks(SingleCommunicator())
        self._on_start: list[Callable[[], None]] = []
        self._on_gradients_ready: list[Callable[[], None]] = []
        self._stop_requested = self._snapshot_requested = self._stopped = False
        self._warn([*check_fields(param, source), *check_workers(param, source, self.ranks.size)])
        self._policy = LearningRatePolicy(param, source)
        self._warn([*self._policy.warnings, *sync_warnings(param, self.world.size, source)])
        self._warn(check_embeddings(param, self.world.size, embedding_servers is not None, source))
        check_prefix(param, source, self.world.rank)
        with ExitStack() as opened:
            reader = NetReader(param, source, strict)
            nets = build_nets(
                param, reader, self.world, self.ranks, self._emit, opened, dtype, device, keep_blobs, embedding_servers
            )
            self.net, self.test_nets, self.worker_nets, self.seed = nets.train, nets.tests, nets.workers, nets.seed
            check_servers(param, source, sync_servers is not None)
            self._replicas = Replicas(sync, self.net, self.world.communicator, self._emit, sync_servers)
            self._build(nets, source, schedule, opened)
            recompute(param, source, nets.workers, self._emit)
            autotune(param, [*nets.workers, *nets.tests], self.world.communicator, self._emit, stop_is_requested)
            if weights is None:
                self.load_weights(param.weights, source)
            else:
                self.load_weights(weights)
            self._opened = opened.pop_all()

    def _build(self, nets: BuiltNets, source: SolverSource | None, schedule: str | None, opened: ExitStack) -> None:
        """Make the parts that an iteration, a test and a snapshot go through."""
        param, net, ranks, rank = self.param, self.net, self.ranks, self.world.rank
        check_net_of_workers(param, source, net)
        for each in nets.workers:
            each.is_trained = True
        self._updater = Updater(param, net.arena, source)
        self._tables = nets.tables
        if self._tables is not None:
            self._tables.histories = self._updater.table_histories
            assert net.table_look_ups is not None
            self._updater.update_elsewhere = net.table_look_ups.update
            serve_other_trainers(self._tables, param, net, self._updater, self._replicas.fail)
        self._warn(self._updater.warnings)
        products = KeptProducts(net, param, self._updater, ranks.communicator, self._emit, nets.tests)
        buffer = GradientBuffer.of_net(net, ranks.size)
        self._averaging = GradientAveraging(buffer, ranks.communicator, param, schedule, self._emit)
        opened.callback(self._averaging.close)
        rates, workers = self._policy.rate, len(nets.workers)
        self._workers = HogwildWorkers(nets.workers, rank, self._updater, param, rates, self._replicas, self._emit)
        self._loss_scale = LossScale(net.context.precision)
        self._trainer = Trainer(net, self._updater, self._averaging, products, param, rank * workers, self._loss_scale)
        records = self._trainer.records_per_iteration * ranks.size
        self._meter = Meter(self._emit, records, workers, lambda: self._workers.records)
        self._finite = FiniteCheck(net, ranks.communicator, param, self._emit, rank, self._loss_scale, workers=workers)
        self._averaging.on_ready = self._finite.gradients_ready
        self._debug = DebugInfo(net, param, rank, self._emit, self._loss_scale)
        self._smoothed = SmoothedLoss(param.average_loss)
        self._tests = TestRuns(self.test_nets, ranks, param.test_compute_loss, self._emit)
        self._snapshots = Snapshots(
            param, source, net, self.test_nets, self._updater, self._emit, rank if self._replicas.are_all_saved else 0,
            self._tables,
        )  # fmt: skip
        opened.callback(self._snapshots.close)
        self._state = RunState(
            param, nets, self.world, ranks, self._updater, self._policy, self._smoothed, self._averaging,
            self._replicas, self._loss_scale, self._emit,
        )  # fmt: skip

    def load_weights(self, paths: Sequence[str], source: SolverSource | None = None) -> None:
        """Copy weights by layer name into all nets; later files win. Entries may be comma-separated lists.

        Args:
            paths: caffemodels.
            source: of the solver whose field `weights` these are, if it is that; messages then say where they stand.

        Raises:
            NetError, PrototxtError: on rank 0, which alone reads them.
        """
        self._on_rank0(lambda: copy_weights(paths, self.net, self.test_nets, self._emit, source))
        self.world.broadcast_from_rank0([t for net in (self.net, *self.test_nets) for t in net.arena.tensors()])
        self._workers.take_statistics()

    @property
    def _is_first(self) -> bool:
        """Whether this is the rank that writes and, where trainers have replicas of their own, tests."""
        return self.world.rank == 0

    def _on_rank0(self, work: Callable[[], T]) -> T | None:
        """Run `work` on rank 0, which alone handles files, and return its result there, None elsewhere; collective.

        The other ranks meanwhile give and take the rows of tables that lie in them.
        """
        if self._tables is not None:
            return self._tables.lead(work)
        return work() if self._is_first else None

    def close(self) -> None:
        """End the exchange of gradients and the data layers' threads."""
        self._opened.close()

    def _emit(self, event: events.Event) -> None:
        for listener in self.listeners:
            listener.on_event(event)

    def _warn(self, texts: Iterable[str]) -> None:
        for text in texts:
            self._emit(events.Warned(text))
