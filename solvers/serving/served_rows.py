"""Rows of tables that an embedding server holds, looked up and updated as a solver does where it has them itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from mgcaffe.comm.tables import messages
from mgcaffe.engine.row_parameter import RowParameter
from mgcaffe.engine.tables.access import OwnedRows
from mgcaffe.engine.tables.bags import Bags, pooled
from mgcaffe.errors import CommError
from mgcaffe.prototxt import SolverParameter
from mgcaffe.solvers.update.row_updates import RowUpdates
from mgcaffe.solvers.update.rules import Numbers


class ServedRows:
    """What a `TableServer` serves; see `HeldTables`.

    Tables of one row length are laid side by side, so that one operator looks up in all of them: a third of the time
    that one for each takes.

    Args:
        param: the SolverParameter message.
        tables: by number, with the rows that lie here; they are given other memory.
        updates: updates them.
    """

    def __init__(self, param: SolverParameter, tables: Sequence[RowParameter], updates: RowUpdates) -> None:
        self.dtype = np.dtype(str(tables[0].data.dtype).removeprefix("torch."))
        self.rows: Sequence[int] = [table.data.shape[0] for table in tables]
        self.widths: Sequence[int] = [table.shape[1] for table in tables]
        self._param = param
        self._tables = tables
        self._owned = OwnedRows(tables)
        self._updates = updates
        self._starts = [0] * len(tables)
        self._side_by_side = {width: self._lay(width) for width in dict.fromkeys(self.widths)}

    def _lay(self, width: int) -> torch.Tensor:
        """Lay the tables of a row length side by side, one at a time so as to need memory for one more only."""
        numbers = [number for number, each in enumerate(self.widths) if each == width]
        together = self._tables[numbers[0]].data.new_empty((sum(self.rows[number] for number in numbers), width))
        start = 0
        for number in numbers:
            part = together[start : start + self.rows[number]]
            part.copy_(self._tables[number].data)
            self._tables[number].data = part
            self._starts[number] = start
            start += self.rows[number]
        return together

    def look_up(self, requests: Sequence[messages.Request]) -> np.ndarray:
        """Return the sums of the rows of all bags, request after request, flat."""
        by_width = {
            width: [each for each in requests if self.widths[each.table] == width] for width in self._side_by_side
        }
        if len(by_width) == 1:
            sums: np.ndarray = self._sums(*by_width.popitem()).numpy().reshape(-1)
            return sums
        parts = {width: self._sums(width, each).numpy() for width, each in by_width.items()}
        at = dict.fromkeys(parts, 0)
        found = [np.empty(0, self.dtype)]
        for table, bags, _ in requests:
            width = self.widths[table]
            found.append(parts[width][at[width] : at[width] + bags.count].reshape(-1))
            at[width] += bags.count
        return np.concatenate(found)

    def _sums(self, width: int, requests: Sequence[messages.Request]) -> torch.Tensor:
        """Return the sums of tables of one row length."""
        ids = np.empty(sum(len(each.bags.rows) for each in requests), np.int64)
        at = 0
        for each in requests:
            np.add(each.bags.rows, self._starts[each.table], out=ids[at : at + len(each.bags.rows)])
            at += len(each.bags.rows)
        lengths = None
        if any(each.bags.lengths is not None for each in requests):
            lengths = np.concatenate(
                [
                    np.ones(each.bags.count, np.int64) if each.bags.lengths is None else each.bags.lengths
                    for each in requests
                ]
            )
        return pooled(self._side_by_side[width], _tensors(messages.Bags(ids, lengths)))

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
        parameter = self._tables[table]
        tensor = parameter.data if what == 0 else self._updates.histories.get(id(parameter)) if what == 1 else None
        if tensor is None:
            raise CommError(f"there is no history {what} of table {table}")
        values: np.ndarray = tensor.numpy()
        return values


def _tensors(bags: messages.Bags) -> Bags:
    return Bags.of_lengths(
        torch.from_numpy(bags.rows), None if bags.lengths is None else torch.from_numpy(bags.lengths)
    )
