"""How tables are read and given gradients whose rows lie in other processes.

Whoever builds a net says where the rows of its tables lie (`PlaceTables`), and then gives it the object that carries
look-ups and gradients (`Net.look_up_by`). The net hands over all look-ups that can be made at once, and later the
gradients of their sums. Everything here is in sums: a layer that averages divides by the length of the whole bag
itself, so that a table may be divided by rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch

from mgcaffe.engine.layer import Layer
from mgcaffe.engine.row_parameter import Placement, RowParameter
from mgcaffe.engine.tables.bags import Bags, pooled


class TableToPlace(NamedTuple):
    """A table of a net that is being built.

    Attributes:
        layer: the first layer that uses it.
        parameter: the table.
        look_ups: how many rows a pass looks up in it, as far as the blobs' shapes say.
    """

    layer: Layer
    parameter: RowParameter
    look_ups: int


class PlaceTables(Protocol):
    """Decides where the rows of a net's tables lie, before memory is taken for them."""

    def __call__(self, tables: Sequence[TableToPlace]) -> Sequence[Placement]:
        """Return the placement of each table.

        Raises:
            NetError: there is no memory for one.
        """


class LookUp(NamedTuple):
    """What one layer looks up in one pass.

    Attributes:
        table: the number of the table (`Placement.number`).
        length: of a row.
        bags: its ids are numbers of rows of the whole table.
        trains: whether gradients will come back, the same in every process.
    """

    table: int
    length: int
    bags: Bags
    trains: bool


class LookedUp(Protocol):
    """The answer to look-ups that were made at once."""

    def sums(self) -> Sequence[torch.Tensor]:
        """Return for each look-up the sum of the rows of each bag (bags x length), which the caller may write over.

        May wait; called once.
        """

    def add_gradients(self, gradients: Sequence[torch.Tensor | None]) -> None:
        """Hand over the gradients of the sums, None for each look-up that doesn't train; called once or not at all."""

    def drop(self) -> None:
        """Take note that no gradients will come, and that sums are not waited for."""


class TableAccess(Protocol):
    """Reads tables wherever their rows lie."""

    def look_up(self, look_ups: Sequence[LookUp]) -> LookedUp:
        """Begin look-ups; every process that takes part names the same tables in the same order."""

    def gradients(self) -> Sequence[torch.Tensor]:
        """Return the gradients that wait here to be taken to the tables with the update; others lie in the tables."""

    def forget_gradients(self) -> None:
        """Forget them: there will be no update by them."""

    def update(self, rate: float, scale: float) -> None:
        """Take them to the tables, which are updated by them: the solver's rate, and a factor on every gradient."""


class PassLookUps(Protocol):
    """What a layer calls whose table lies elsewhere (`engine/graph/table_look_ups.py`)."""

    def take(self, layer: Layer) -> tuple[Bags, torch.Tensor]:
        """Return the layer's bags in this pass, and the sum of the rows of each."""

    def give(self, layer: Layer, gradient: torch.Tensor) -> None:
        """Hand over the gradient of these sums."""


class OwnedRows:
    """The owner's side: rows of tables that lie in this process, and answer look-ups, whoever asks.

    Gradients gather in the tables, where rows that come again are added up, until `RowUpdates` applies them.

    Args:
        tables: the tables by number. Row numbers begin with the first row that lies here, for ids too.
    """

    def __init__(self, tables: Sequence[RowParameter]) -> None:
        self.tables = tables

    def look_up(self, table: int, bags: Bags) -> torch.Tensor:
        """Return the sum of the rows of each bag."""
        return pooled(self.tables[table].data, bags)

    def add_gradients(self, table: int, bags: Bags, gradients: torch.Tensor) -> None:
        """Add the gradients of these sums to the rows'; the table keeps the tensor."""
        self.tables[table].add_rows(bags.ids, gradients, bags.items())
