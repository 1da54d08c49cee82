"""Rows of tables that an embedding server holds, looked up and updated as a solver does where it has them itself."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import numpy as np
import torch

from mgcaffe.comm.tables import messages
from mgcaffe.engine.kernels.rows import stack
from mgcaffe.engine.row_parameter import HISTORY, VALUES, RowParameter
from mgcaffe.engine.tables.access import OwnedRows
from mgcaffe.engine.tables.bags import Bags, pooled
from mgcaffe.errors import CommError
from mgcaffe.prototxt import SolverParameter
from mgcaffe.solvers.tables.shard_holder import ShardHolder, ShardSaving
from mgcaffe.solvers.update.row_updates import RowUpdates
from mgcaffe.solvers.update.rules import Numbers

KINDS = (VALUES, HISTORY)
"""What a `Block.what` means."""


class ServedRows:
    """What a `TableServer` serves; see `HeldTables`.

    One operator looks up in all tables that lie side by side, as those of one row length and rate do
    (`ParameterArena`): a third of the time that one for each takes.

    Args:
        param: the SolverParameter message.
        tables: by number, with the rows that lie here.
        updates: updates them.
        who: what holds them, for messages.
        sharing: how many processes there are on this host.
    """

    def __init__(
        self,
        param: SolverParameter,
        tables: Sequence[RowParameter],
        updates: RowUpdates,
        who: str = "embedding server",
        sharing: int = 1,
    ) -> None:
        self.dtype = np.dtype(str(tables[0].data.dtype).removeprefix("torch."))
        self.rows: Sequence[int] = [table.data.shape[0] for table in tables]
        self.widths: Sequence[int] = [table.shape[1] for table in tables]
        self._param = param
        self._tables = tables
        self._owned = OwnedRows(tables)
        self._updates = updates
        self._holder = ShardHolder(who, tables, self._tensor_of, sharing)
        self._matrices, self._places = _side_by_side([table.data for table in tables])

    def look_up(self, requests: Sequence[messages.Request], rows: np.ndarray) -> np.ndarray:
        """Return the sums of the rows of all bags, request after request, flat."""
        of = [self._places[each.table][0] for each in requests]
        if len(set(of)) == 1:
            sums: np.ndarray = self._sums(of[0], requests, rows).numpy().reshape(-1)
            return sums
        parts: dict[int, np.ndarray] = {}
        for matrix in set(of):
            mine = [each for each, other in zip(requests, of, strict=True) if other == matrix]
            parts[matrix] = self._sums(matrix, mine, np.concatenate([each.bags.rows for each in mine])).numpy()
        at = dict.fromkeys(parts, 0)
        found = [np.empty(0, self.dtype)]
        for each, matrix in zip(requests, of, strict=True):
            found.append(parts[matrix][at[matrix] : at[matrix] + each.bags.count].reshape(-1))
            at[matrix] += each.bags.count
        return np.concatenate(found)

    def _sums(self, matrix: int, requests: Sequence[messages.Request], rows: np.ndarray) -> torch.Tensor:
        """Return the sums of tables that lie in one matrix."""
        starts = np.array([self._places[each.table][1] for each in requests])
        counts = [len(each.bags.rows) for each in requests]
        if counts.count(counts[0]) == len(counts):
            ids = (rows.reshape(len(counts), -1) + starts[:, np.newaxis]).reshape(-1)
        else:
            ids = rows + np.repeat(starts, counts)
        lengths = None
        if any(each.bags.lengths is not None for each in requests):
            lengths = np.concatenate(
                [
                    np.ones(each.bags.count, np.int64) if each.bags.lengths is None else each.bags.lengths
                    for each in requests
                ]
            )
        return pooled(self._matrices[matrix], _tensors(messages.Bags(ids, lengths)))

    def update(self, gradients: Sequence[tuple[int, messages.Bags, np.ndarray]], rate: float, scale: float) -> None:
        """Update tables by the gradients of sums.

        Raises:
            CommError: one does not train.
        """
        for table, bags, values in gradients:
            if self._tables[table].lr_mult == 0:
                raise CommError(f"it gives gradients of table {table}, which does not train")
            self._owned.add_gradients(table, _tensors(bags), torch.from_numpy(values))
        numbers = Numbers(self._param, rate, iteration=0, momentum=0.0, weight_decay=0.0, history_momentum=0.0)
        self._updates.apply(numbers, scale)
        for parameter in self._tables:
            parameter.fresh = True

    def numbers(self, table: int, what: int) -> np.ndarray:
        """Return the values (`what` 0) or the history of all rows, themselves."""
        if not 0 <= what < len(KINDS):
            raise CommError(f"there is no history {what} of table {table}")
        values: np.ndarray = self._tensor_of(table, KINDS[what]).numpy()
        return values

    def save(self, order: bytes) -> ShardSaving:
        """Begin to write all rows to a shard, as a `SaveOrder` and the shard's number say."""
        return self._holder.save(*pickle.loads(order))

    def load(self, order: bytes) -> bytes:
        """Read rows from shards, as a `LoadOrder` says; return what went wrong, if anything."""
        return self._holder.load(pickle.loads(order)).encode()

    def _tensor_of(self, table: int, kind: str) -> torch.Tensor:
        parameter = self._tables[table]
        tensor = parameter.data if kind == VALUES else self._updates.histories.get(id(parameter))
        if tensor is None:
            raise CommError(f"there is no {kind} of table {table}")
        return tensor


def _side_by_side(tables: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], list[tuple[int, int]]]:
    """Return matrices that tables are rows of, and for each table its matrix and where it begins there."""
    groups: dict[tuple[int, int], list[int]] = {}
    for number, table in enumerate(tables):
        groups.setdefault((table.untyped_storage().data_ptr(), table.shape[1]), []).append(number)
    matrices: list[torch.Tensor] = []
    places = [(0, 0)] * len(tables)
    for numbers in groups.values():
        stacked = stack([tables[number] for number in numbers])
        for place, number in enumerate(numbers):
            if stacked is None or place == 0:
                matrices.append(tables[number] if stacked is None else stacked.whole)
            places[number] = len(matrices) - 1, 0 if stacked is None else int(stacked.starts[place])
    return matrices, places


def _tensors(bags: messages.Bags) -> Bags:
    return Bags.of_lengths(
        torch.from_numpy(bags.rows), None if bags.lengths is None else torch.from_numpy(bags.lengths)
    )
