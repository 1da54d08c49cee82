"""An embedding server's part in a job: builds the tables that it holds, and serves trainers until they are done."""

from __future__ import annotations

from contextlib import ExitStack

import torch

from mgcaffe.comm import Communicator, SingleCommunicator
from mgcaffe.comm.tables.figures import ServerFigures
from mgcaffe.comm.tables.server import TableServer
from mgcaffe.prototxt import SolverParameter, SolverSource
from mgcaffe.solvers.exchange.ranks import Ranks
from mgcaffe.solvers.rates.policies import LearningRatePolicy
from mgcaffe.solvers.serving.served_rows import ServedRows
from mgcaffe.solvers.setup.agreement import agree_on_inputs, receive_seed
from mgcaffe.solvers.setup.building import build_train_net
from mgcaffe.solvers.setup.checks import check_fields
from mgcaffe.solvers.setup.hogwild import check_workers
from mgcaffe.solvers.setup.nets import NetReader
from mgcaffe.solvers.tables.server_tables import ServerPlacer
from mgcaffe.solvers.tables.settings import check_embeddings, refuse_no_tables
from mgcaffe.solvers.update.row_updates import RowUpdates
from mgcaffe.solvers.update.updater import solver_type


class EmbeddingServer:
    """Holds rows of the training net's tables, which begin with the values that a single process would give them.

    The trainers make their solvers at the same time, which is collective.

    Args:
        param: the SolverParameter message.
        communicator: the trainers and, behind them, the embedding servers; for this alone.
        trainers: how many trainers there are.
        source: where the solver's fields stand, for errors.
        dtype: float32 or float64.
        strict: whether an unknown field in a net's file is an error.

    Raises:
        PrototxtError, NetError, DataError, SolverError: an input that cannot be used, with its place.
        RankDisagreement: the ranks were given different inputs.
    """

    def __init__(
        self,
        param: SolverParameter,
        communicator: Communicator,
        trainers: int,
        *,
        source: SolverSource | None = None,
        dtype: torch.dtype = torch.float32,
        strict: bool = False,
    ) -> None:
        # As the trainers, in their order, so that all fail alike; they warn of what has no effect.
        check_fields(param, source)
        check_workers(param, source, ranks=1)
        LearningRatePolicy(param, source)
        check_embeddings(param, trainers, True, source)
        train = NetReader(param, source, strict).train_net()
        agree_on_inputs(param, [train], dtype, communicator)
        seed = receive_seed(communicator)
        place = ServerPlacer(param, communicator, range(trainers, communicator.size), dtype)
        alone = Ranks(SingleCommunicator())
        with ExitStack() as opened:
            net = build_train_net(train, alone, alone, seed, dtype, torch.device("cpu"), False, place)
            opened.callback(net.close)
            updates = RowUpdates(param, solver_type(param, source), net.arena.tables, source)
            tables = [table.parameter for table in place.tables]
        refuse_no_tables(len(tables), param, source)
        who = f"embedding server, rank {communicator.rank}"
        served = ServedRows(param, tables, updates, who, communicator.local_size)
        self._server = TableServer(communicator, range(trainers), served)

    @property
    def figures(self) -> ServerFigures:
        """What it has done so far."""
        return self._server.figures

    def step(self, patience_s: float) -> bool:
        """Wait for a request for so many seconds and serve it; return whether there was one.

        Raises:
            CommError: a message makes no sense; names who sent it.
        """
        return self._server.step(patience_s)

    def run(self) -> ServerFigures:
        """Serve until all trainers have closed their solvers."""
        return self._server.run()
