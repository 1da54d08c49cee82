"""The tables of a solver's nets where embedding servers hold them (`embedding_servers`). docs/embedding_servers.md."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np
import torch

from mgcaffe.comm import Communicator
from mgcaffe.comm.tables.client import TableClient
from mgcaffe.engine import Net
from mgcaffe.engine.row_parameter import HISTORY, STEPS, VALUES
from mgcaffe.engine.types import Array, Shape
from mgcaffe.engine.weights.shards import StoredRows
from mgcaffe.errors import NetError
from mgcaffe.prototxt import SolverParameter
from mgcaffe.solvers.events import Emit, TablesLookedUp
from mgcaffe.solvers.tables.placing import TablePlacer
from mgcaffe.solvers.tables.server_access import ServerAccess
from mgcaffe.solvers.tables.shard_holder import SHARED_FOLDER, LoadOrder, SaveOrder, ShardFile

T = TypeVar("T")

_WHAT = {VALUES: 0, HISTORY: 1}


class ServerPlacer(TablePlacer):
    """Assigns tables to the ranks that serve them; trainers and servers call it alike.

    Args:
        param: the SolverParameter message.
        communicator: the trainers and, behind them, the embedding servers.
        servers: the ranks that hold tables.
        dtype: of the tables.

    Attributes:
        servers: their ranks.
        dtype: of the tables.
        client: of a trainer, once it has one.
    """

    def __init__(self, param: SolverParameter, communicator: Communicator, servers: range, dtype: torch.dtype) -> None:
        self.servers = servers
        super().__init__(param, communicator, dtype, torch.device("cpu"), _refuse_collective, servers)
        self.dtype = dtype
        self.client: TableClient | None = None

    def _whole_of(self, number: int) -> Callable[[str, Shape], ServedTensor]:
        return partial(ServedTensor, self, number)


class ServerTables:
    """Places the tables of a trainer's training net on servers, and lets all its nets look up there.

    Args:
        param: the SolverParameter message.
        communicator: the trainers and, behind them, the embedding servers; for this alone.
        servers: the ranks that hold tables.
        dtype, device: of the nets.

    Attributes:
        place: what the training net is built with (`place_tables`).
        histories: those of the rows that lie here.
    """

    def __init__(
        self,
        param: SolverParameter,
        communicator: Communicator,
        servers: range,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.place = ServerPlacer(param, communicator, servers, dtype)
        self.histories: dict[int, torch.Tensor] = {}
        self._ahead: int = param.comm_param.lookahead
        self._communicator = communicator
        self._servers = servers
        self._dtype, self._device = np.dtype(str(dtype).removeprefix("torch.")), device
        self._training: Sequence[Net] = ()

    @property
    def are_there(self) -> bool:
        """Whether the training net has tables."""
        return bool(self.place.tables)

    @property
    def client(self) -> TableClient:
        """What looks up, for all nets of this trainer."""
        if self.place.client is None:
            shapes = [(table.parameter.shape[0], table.parameter.shape[1]) for table in self.place.tables]
            self.place.client = self._connect(shapes)
        return self.place.client

    def _connect(self, shapes: Sequence[tuple[int, int]]) -> TableClient:
        return TableClient(self._communicator, shapes, self.place.assignment, self._servers, self._dtype)

    def display(self, iteration: int, emit: Emit) -> None:
        """Emit what look-ups have come to so far."""
        emit(TablesLookedUp(iteration, replace(self.client.figures)))

    def attach(self, training: Sequence[Net], tests: Sequence[Net]) -> list[str]:
        """Let nets look their tables up: the training nets of all Hogwild workers, and those of tests.

        Returns:
            Warnings: what of the training nets cannot be looked up ahead.
        """
        self._training = training
        for net in training:
            net.look_up_by(ServerAccess(self.client, self._device), self._ahead)
        for net in tests:
            net.look_up_by(ServerAccess(self.client, self._device))
        look_ups = training[0].table_look_ups
        assert look_ups is not None
        return [
            f"layer '{layer.name}' cannot look up ahead: layer '{maker.name}' of type {maker.type} makes its ids, which"
            " are known ahead only where they come from a data layer, if need be through Slice, Reshape or Flatten"
            for layer, maker in look_ups.not_ahead
        ]

    def settle(self) -> None:
        """Return once the servers have made all updates of this trainer, so that trainer 0 reads them."""
        self.client.settle()

    def lead(self, work: Callable[[], T]) -> T | None:
        """Run `work` on rank 0, which may fetch and store whole tables in it; no worker is in an iteration."""
        if self._communicator.rank != 0:
            return None
        result = work()
        for net in self._training:
            if net.table_look_ups is not None:
                # So a run that goes on after a snapshot looks up what one that resumes from it does.
                net.table_look_ups.forget_begun()
        return result

    @property
    def count(self) -> int:
        """How many shards a snapshot has: one of each server."""
        return len(self._servers)

    def name_of(self, table: int) -> str:
        """Return what a table is called in shards."""
        return self.place.name_of(table)

    def save(self, order: SaveOrder) -> Callable[[], list[ShardFile]]:
        """Let all servers write their rows; see `TableHolders`."""
        saving = self.client.save(
            {server: pickle.dumps((order, number)) for number, server in enumerate(self._servers)}
        )
        return lambda: [pickle.loads(answer) for _, answer in sorted(saving.wait().items())]

    def close(self) -> None:
        """Let the servers know that this trainer is done."""
        if self.place.client is not None:
            self.place.client.close()


@dataclass(frozen=True)
class ServedTensor:
    """One tensor of a table that servers hold, as rank 0 sees it; see `WholeRows`."""

    placer: ServerPlacer
    table: int
    kind: str
    shape: Shape

    def fetch(self) -> torch.Tensor:
        """Return a copy of all rows in the host's memory."""
        client = self._client()
        whole = torch.empty(self.shape, dtype=self.placer.dtype)
        client.read(self.table, _WHAT[self.kind], whole.numpy())
        return whole

    def store(self, start: int, values: Array) -> None:
        """Write the values, in their order, from element number `start` on."""
        width = self.shape[1] if len(self.shape) > 1 else 1
        with np.errstate(all="ignore"):  # a double may be too large for a float: it becomes infinite
            self._client().write(self.table, _WHAT[self.kind], width, start, values)

    def load(self, rows: StoredRows) -> None:
        """Let each server read its rows from shards.

        Raises:
            NetError: one cannot.
        """
        order = pickle.dumps(LoadOrder(self.table, self.kind, rows))
        for answer in self._client().load(dict.fromkeys(self.placer.servers, order)).values():
            if answer:
                raise NetError(answer.decode(), hint=SHARED_FOLDER)

    def _client(self) -> TableClient:
        assert self.kind != STEPS, "refused with the solver's fields"
        assert self.placer.client is not None
        return self.placer.client


def _refuse_collective(table: int, kind: str) -> torch.Tensor:
    raise AssertionError("the rows of servers are read by requests")
