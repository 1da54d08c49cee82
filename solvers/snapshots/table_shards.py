"""The shards of one snapshot: which tables are in them, and what stands for these in the other files."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

from mgcaffe.engine.checks.memory import gib
from mgcaffe.engine.row_parameter import VALUES, WholeRows
from mgcaffe.engine.weights.shards import ShardSet, lacking
from mgcaffe.errors import SnapshotError
from mgcaffe.prototxt import BlobProto, SolverParameter
from mgcaffe.solvers.tables.shard_holder import SHARED_FOLDER, ArrayOfTable, SaveOrder, ShardFile, TableHolders


def writes_shards(param: SolverParameter) -> bool:
    """Return whether tables that lie in several processes are written in shards."""
    return param.comm_param.snapshot_tables == type(param.comm_param).SHARDED and not param.snapshot_diff


class TablesOfTrainer0:
    """Stands for tables in a snapshot of another trainer's replica; as `TableShards`, and nothing is written."""

    warnings: Sequence[str] = ()

    def reference(self, rows: WholeRows) -> BlobProto:
        """Return the blob that stands for a tensor of a table."""
        return lacking(rows.shape)

    def begin(self) -> None:
        """Do nothing."""

    def finish(self) -> list[ShardFile]:
        """Return no file."""
        return []


class TableShards:
    """Has the tables of a snapshot written by all that hold rows of them.

    Args:
        holders: these.
        weights: the caffemodel's path, beside which the shards lie.
        iteration: updates done.
        background: whether training goes on while they are written.

    Attributes:
        set: the files.
        warnings: once they are written, of which of them rows could not be looked up meanwhile.
    """

    def __init__(self, holders: TableHolders, weights: Path, iteration: int, *, background: bool) -> None:
        self.set = ShardSet(weights.name, holders.count, secrets.token_hex(8))
        self._folder = weights.parent.absolute()
        self._holders = holders
        self._iteration = iteration
        self._background = background
        self._arrays: dict[tuple[int, str], ArrayOfTable] = {}
        self._finish: Callable[[], list[ShardFile]] = list
        self.warnings: list[str] = []

    def describe(self) -> str:
        """Return the names of the files."""
        names = [self.set.name(number) for number in (0, self.set.count - 1)]
        return str(self._folder / names[0]) + (f" ... {names[1]}" if self.set.count > 1 else "")

    def reference(self, rows: WholeRows) -> BlobProto:
        """Return the blob that stands for a tensor of a table, which will be in the shards."""
        table, kind = rows.table, rows.kind
        if (table, kind) not in self._arrays:
            name = self._holders.name_of(table) + ("" if kind == VALUES else f"/{kind}")
            self._arrays[table, kind] = ArrayOfTable(table, kind, name, rows.shape[0])
        return self.set.reference(self._arrays[table, kind].name, rows.shape)

    def begin(self) -> None:
        """Let all that hold rows write those that were referred to, as they are now."""
        arrays = sorted(self._arrays.values(), key=lambda each: (each.kind != VALUES, each.table))
        order = SaveOrder(str(self._folder), self.set, self._iteration, self._background, arrays)
        self._finish = self._holders.save(order)

    def finish(self) -> list[ShardFile]:
        """Wait until all are written; called once, by any thread.

        Raises:
            SnapshotError: one cannot be written, or is not found here; none is left.
        """
        files = self._finish()
        try:
            for each in files:
                if each.error:
                    raise SnapshotError(each.error, hint=each.hint)
                if not Path(each.temporary).is_file():
                    raise SnapshotError(
                        f"{each.sum.holder} has written {each.temporary}, and rank 0 does not find it there",
                        hint=SHARED_FOLDER,
                    )
        except SnapshotError:
            for each in files:
                if each.temporary:
                    Path(each.temporary).unlink(missing_ok=True)
            raise
        self.warnings = [
            f"{each.sum.holder} has no memory for a copy of its {gib(each.waited_for)} of rows: nothing was looked up"
            " there, and no row updated, while they were written"
            for each in files
            if each.waited_for
        ]
        return files
