"""The update of tables with row gradients: the rows that were looked up change, and no other is read (EmbeddingBag).

    SGD                             W[r] <- W[r] - eta g[r]
    AdaGrad                         h[r] <- h[r] + g[r]^2;          W[r] <- W[r] - eta g[r] / (sqrt(h[r]) + delta)
    AdaGrad with row_wise_adagrad   m[r] <- m[r] + mean of g[r]^2;  W[r] <- W[r] - eta g[r] / (sqrt(m[r]) + delta)

g[r] is the sum of the gradients of all look-ups of row r in an iteration, divided by iter_size; eta = rate * lr_mult.
The first two are what the rules do to a parameter whose other rows have a gradient of zero. Whatever would move a row
that nobody looked up (momentum, weight decay), or needs all gradients together (clipping, rates by norms), is refused.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import NoReturn

import torch

from mgcaffe.engine.arena import Table
from mgcaffe.engine.kernels.rows import Stack, add_to_rows, read_rows_of, stack
from mgcaffe.engine.row_parameter import HISTORY, RowParameter, WholeRows, join, merge
from mgcaffe.engine.types import Shape
from mgcaffe.errors import SolverError
from mgcaffe.prototxt import SolverParameter, Source
from mgcaffe.solvers.source import locate
from mgcaffe.solvers.update import rules
from mgcaffe.solvers.update.rules import Numbers

_TYPES = ("SGD", "AdaGrad")


class RowUpdates:
    """Updates the tables of one net.

    Args:
        param: the SolverParameter message.
        solver_type: the rule's name.
        tables: the arena's; those with lr_mult 0 stay as they are.
        source: where the solver's fields stand, for errors.

    Attributes:
        histories: what AdaGrad keeps of each table that trains, by the parameter's id; of the shape of its rows in this
            process, or one number a row.

    Raises:
        SolverError: the solver asks for what has no meaning for single rows.
    """

    def __init__(
        self, param: SolverParameter, solver_type: str, tables: Iterable[Table], source: Source | None = None
    ) -> None:
        self._param = param
        training = [each for each in tables if each.parameter.lr_mult != 0]
        for each in training:
            _check(param, solver_type, each, source)
        self._is_row_wise = solver_type == "AdaGrad" and param.row_wise_adagrad
        self._tables = [each.parameter for each in training]
        alike: dict[tuple[float, ...], list[RowParameter]] = {}
        for number, table in enumerate(self._tables):
            # With snapshot_diff each table keeps its own steps.
            key = (number,) if param.snapshot_diff else (table.shape[1], table.lr_mult)
            alike.setdefault(key, []).append(table)
        self._groups = list(alike.values())
        self._stacks: dict[tuple[int, ...], tuple[Stack, Stack | None]] = {}
        self.histories: dict[int, torch.Tensor] = {}
        if solver_type == "AdaGrad":
            for group in self._groups:
                self.histories.update(self._zeros(group))

    def _zeros(self, tables: Sequence[RowParameter]) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield the history of each table, side by side like the tables."""
        like = tables[0].data
        rows = [len(table.data) for table in tables]
        shape = self._history_shape((sum(rows), like.shape[1]))
        together = torch.zeros(shape, dtype=like.dtype, device=like.device)
        for table, part in zip(tables, together.split(rows), strict=True):
            yield id(table), part

    def history_blob(self, table: RowParameter) -> torch.Tensor | WholeRows | None:
        """Return a table's history as it is stored, for all rows, or None where there is none."""
        history = self.histories.get(id(table))
        if history is None or table.placement is None:
            return history
        return table.placement.whole(HISTORY, self._history_shape(table.shape))

    def _history_shape(self, shape: Shape) -> Shape:
        return shape[:1] if self._is_row_wise else shape

    def beside(self, tables: Iterable[Table]) -> RowUpdates:
        """Return the updates of the same tables by the gradients of another net, with these histories.

        Args:
            tables: those of an arena made beside the one that these are from.
        """
        other = copy.copy(self)
        other._tables = [each.parameter for each in tables if each.parameter.lr_mult != 0]
        theirs = dict(zip(map(id, self._tables), other._tables, strict=True))
        other._groups = [[theirs[id(mine)] for mine in group] for group in self._groups]
        other._stacks = {}
        other.histories = {id(theirs[mine]): history for mine, history in self.histories.items()}
        return other

    def apply(self, numbers: Numbers, scale: float) -> None:
        """Make one update of all tables; `scale` is a factor on every gradient."""
        for group in self._groups:
            tables = [table for table in group if not table.fresh]
            if tables:
                self._update(tables, numbers, scale)

    def _update(self, tables: Sequence[RowParameter], numbers: Numbers, scale: float) -> None:
        """Update tables that have the same rate, as one where they lie side by side."""
        found = self._stacks_of(tables)
        if found is None:
            for table in tables:
                self._update([table], numbers, scale)
            return
        weights, history = found
        eta = numbers.rate * tables[0].lr_mult
        gradients = [join(table.gradients) for table in tables]
        gradient = join(gradients, weights.rows([each.rows for each in gradients]))
        if history is None and not self._param.snapshot_diff:
            # A sum needs no merging first.
            add_to_rows(weights.whole, gradient.rows, gradient.by_lookup() * (-eta * scale))
            return
        rows, values = merge(gradient)
        if scale != 1:
            values.mul_(scale)
        step = values.mul_(eta) if history is None else self._step(history.whole, rows, values, numbers, eta)
        weights.whole.index_copy_(0, rows, read_rows_of(weights.whole, rows).sub_(step))
        if self._param.snapshot_diff:
            tables[0].replace_gradient(rows, step)

    def _stacks_of(self, tables: Sequence[RowParameter]) -> tuple[Stack, Stack | None] | None:
        """Return the tables as one, and their histories, if any; None where they do not lie side by side alike."""
        weights = [table.data for table in tables]
        histories = [self.histories[id(table)] for table in tables] if self.histories else []
        key = tuple(map(id, tables))
        known = self._stacks.get(key)
        if known is not None and known[0].is_of(weights) and (known[1] is None or known[1].is_of(histories)):
            return known
        stacked, history = stack(weights), stack(histories) if histories else None
        if stacked is None or (histories and (history is None or not torch.equal(history.starts, stacked.starts))):
            return None
        self._stacks[key] = stacked, history
        return self._stacks[key]

    def _step(
        self, history: torch.Tensor, rows: torch.Tensor, gradient: torch.Tensor, numbers: Numbers, eta: float
    ) -> torch.Tensor:
        """Return what AdaGrad takes off each row, and bring the rows' histories up to date."""
        part = read_rows_of(history, rows)
        if self._is_row_wise:
            part.add_(gradient.square().mean(1))
            step = gradient.mul_(eta).div_(part.sqrt().add_(numbers.param.delta)[:, None])
        else:
            step = rules.adagrad(numbers, eta, gradient, part)
        history.index_copy_(0, rows, part)
        return step


def _check(param: SolverParameter, solver_type: str, table: Table, source: Source | None) -> None:
    """Refuse a solver that a table cannot follow."""
    what = f"the table of layer '{table.layer_name}', of which an iteration updates only the rows that it looked up"

    def refuse(field: str, problem: str, hint: str) -> NoReturn:
        raise SolverError(f"{problem} {what}", location=locate(source, field), hint=hint)

    if solver_type not in _TYPES:
        refuse("type", f"solver type {solver_type} cannot train", f"choose type {' or '.join(_TYPES)}")
    for field in ("larc", "local_lr_auto"):
        if getattr(param, field):
            refuse(field, f"{field} needs the norm of all weights, and would read every row of", f"remove {field}")
    if solver_type == "SGD" and param.momentum_policy != "fixed":
        refuse(
            "momentum_policy",
            f"momentum_policy is '{param.momentum_policy}', and momentum would move every row of",
            "remove momentum_policy and set momentum: 0",
        )
    if solver_type == "SGD" and param.momentum:
        refuse("momentum", f"momentum is {param.momentum:g} and would move every row of", "set momentum: 0")
    if (param.weight_decay or param.weight_decay_policy != "fixed") and table.parameter.decay_mult:
        refuse(
            "weight_decay",
            f"weight_decay is {param.weight_decay:g} and would move every row of",
            f"set param {{ decay_mult: 0 }} in layer '{table.layer_name}', or weight_decay: 0",
        )
    if param.clip_gradients >= 0:
        refuse("clip_gradients", "clip_gradients is not offered with", "remove clip_gradients")
