"""A trainer that serves the rows of tables that lie in it, beside its training (`embeddings: ASYNC`)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

from mgcaffe.engine import Net
from mgcaffe.engine.row_parameter import RowParameter
from mgcaffe.prototxt import SolverParameter
from mgcaffe.solvers.serving.served_rows import ServedRows
from mgcaffe.solvers.tables.async_tables import AsyncTables
from mgcaffe.solvers.tables.divided_tables import DividedTables
from mgcaffe.solvers.tables.server_tables import ServerTables
from mgcaffe.solvers.update.updater import Updater


def serve_other_trainers(
    tables: ServerTables | DividedTables,
    param: SolverParameter,
    net: Net,
    updater: Updater,
    on_error: Callable[[BaseException], None],
) -> None:
    """Begin to answer look-ups of the other trainers, if the tables lie with the trainers.

    Args:
        tables: the training net's.
        param: the SolverParameter message.
        net: the training net, whose rows are served.
        updater: updates it; the sums that AdaGrad keeps of these rows are its.
        on_error: takes what goes wrong beside training, on another thread.
    """
    if not isinstance(tables, AsyncTables):
        return
    # The same rows and sums, with gradients of their own: training clears those of its net.
    served = {id(table.parameter): _beside(table.parameter) for table in net.arena.tables}
    updates = updater.tables_beside(
        [replace(table, parameter=served[id(table.parameter)]) for table in net.arena.tables]
    )
    by_number = [served[id(table.parameter)] for table in tables.place.tables]
    rows = ServedRows(param, by_number, updates, f"trainer, rank {tables.rank}", tables.sharing)
    tables.serve(rows, on_error)


def _beside(table: RowParameter) -> RowParameter:
    other = copy.copy(table)
    other._gradients = []
    return other
