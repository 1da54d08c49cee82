"""The tables of a solver's nets, divided among the ranks that train in step (`embeddings: ALLTOALL`).

Each row lies in one rank, which answers look-ups of it, takes its gradients and updates it. docs/embedding_tables.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from mgcaffe.comm import Communicator
from mgcaffe.comm.transport.communicator import Waiting
from mgcaffe.engine import Net
from mgcaffe.engine.row_parameter import HISTORY, STEPS, RowParameter
from mgcaffe.prototxt import SolverParameter
from mgcaffe.solvers.events import Emit
from mgcaffe.solvers.tables.all_to_all_access import AllToAllAccess
from mgcaffe.solvers.tables.placing import TablePlacer
from mgcaffe.solvers.tables.shard_holder import SaveOrder, ShardFile

T = TypeVar("T")

# Nothing else is left to do in a step while rows are exchanged.
_SPIN_S = 5e-3


class DividedTables:
    """Places the tables of the training net, and lets all nets look up by all-to-all.

    Args:
        param: the SolverParameter message.
        communicator: the ranks that train in step; it is duplicated.
        dtype, device: of the nets.

    Attributes:
        place: what the training net is built with (`place_tables`).
        histories: the solver's histories of tables by the id of the parameter, as `RowUpdates` keeps them.
    """

    def __init__(
        self, param: SolverParameter, communicator: Communicator, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._communicator = communicator.duplicate(Waiting(spin_s=_SPIN_S))
        self.place = TablePlacer(param, self._communicator, dtype, device, self._tensor_of)
        self.histories: dict[int, torch.Tensor] = {}

    @property
    def are_there(self) -> bool:
        """Whether the training net has tables."""
        return bool(self.place.tables)

    def attach(self, training: Sequence[Net], tests: Sequence[Net]) -> list[str]:
        """Let nets look their tables up: the training net, and those of tests, which share them; return warnings."""
        access = AllToAllAccess(self._communicator, self.place.assignment, self._parameters)
        assert self.place.whole is not None
        self.place.whole.share_results(self._communicator.duplicate(Waiting()))
        for net in (*training, *tests):
            net.look_up_by(access)
        return []

    def display(self, iteration: int, emit: Emit) -> None:
        """Do nothing."""

    def settle(self) -> None:
        """Do nothing: updates of rows are made in step."""

    def lead(self, work: Callable[[], T]) -> T | None:
        """Run `work` on rank 0, where whole tables can be fetched and stored meanwhile; collective."""
        if self.place.whole is None:
            return work() if self._communicator.rank == 0 else None
        return self.place.whole.lead(work)

    @property
    def count(self) -> int:
        """How many shards a snapshot has: one of each rank."""
        return self._communicator.size

    def name_of(self, table: int) -> str:
        """Return what a table is called in shards."""
        return self.place.name_of(table)

    def save(self, order: SaveOrder) -> Callable[[], list[ShardFile]]:
        """Let all ranks write their rows, on rank 0 inside of `lead`; see `TableHolders`."""
        assert self.place.whole is not None
        return self.place.whole.save(order)

    def close(self) -> None:
        """Wait for shards that are being written, and give up the communicators."""
        if self.place.whole is not None:
            self.place.whole.close()
        self._communicator.close()

    @property
    def _parameters(self) -> list[RowParameter]:
        return [table.parameter for table in self.place.tables]

    def _tensor_of(self, table: int, kind: str) -> torch.Tensor:
        parameter = self.place.tables[table].parameter
        if kind == HISTORY:
            return self.histories[id(parameter)]
        return parameter.dense_diff() if kind == STEPS else parameter.data
