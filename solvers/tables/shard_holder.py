"""What a process does with the rows of tables that it holds when a snapshot is written or read: its shard.

The rows are copied between two updates, so that values and history are of one moment, and written in the background,
where memory permits; else they are written before the next update.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

import torch

from mgcaffe.engine.checks.memory import free_memory, is_about_memory
from mgcaffe.engine.row_parameter import RowParameter
from mgcaffe.engine.weights.shards import RowsToWrite, ShardSet, StoredRows, encode_shard
from mgcaffe.errors import EngineError, SnapshotError
from mgcaffe.errors.whole_files import size_of, write_aside
from mgcaffe.solvers.snapshots.files import cannot_write
from mgcaffe.solvers.snapshots.manifest import FileSum, ShardSum

SHARED_FOLDER = (
    "all hosts have to see the snapshots in one folder under the same path; with snapshot_tables: WHOLE rank 0 alone"
    " handles files"
)
"""What to do where one process does not find what another one has written."""
_SHARE = 0.5
"""The part of the free memory that a copy may take."""


@dataclass(frozen=True)
class ArrayOfTable:
    """A tensor of a table: the table's number, VALUES or HISTORY, its name in the shards, and the table's rows."""

    table: int
    kind: str
    name: str
    rows: int


@dataclass(frozen=True)
class SaveOrder:
    """What a snapshot asks of all that hold rows.

    Attributes:
        folder: where the shards go, the same path for all.
        shards: their names.
        iteration: updates done.
        background: whether training goes on while they are written.
        arrays: what they hold.
    """

    folder: str
    shards: ShardSet
    iteration: int
    background: bool
    arrays: Sequence[ArrayOfTable]


@dataclass(frozen=True)
class LoadOrder:
    """What a resume asks of all that hold rows: to read those of a tensor of a table from shards."""

    table: int
    kind: str
    rows: StoredRows


@dataclass(frozen=True)
class ShardFile:
    """A shard that was written under another name, or why it was not.

    Attributes:
        sum: what the manifest says of it.
        temporary: the file, which is to be renamed.
        waited_for: bytes that were written while nothing was looked up, for want of memory for a copy.
        error, hint: why it could not be written.
    """

    sum: ShardSum
    temporary: str
    waited_for: int = 0
    error: str = ""
    hint: str | None = None


class TableHolders(Protocol):
    """All that hold rows of tables, for the one that writes snapshots.

    Attributes:
        count: how many shards a snapshot has.
    """

    @property
    def count(self) -> int:
        """As above."""

    def name_of(self, table: int) -> str:
        """Return what a table is called in shards: `layer/number of the blob`."""

    def save(self, order: SaveOrder) -> Callable[[], list[ShardFile]]:
        """Let all write their rows as they are now; what it returns waits until that is done, on any thread."""


class ShardSaving:
    """A shard that is being written.

    Args:
        write: writes it.
        background: whether a thread does.
    """

    def __init__(self, write: Callable[[], ShardFile], *, background: bool) -> None:
        self._file: ShardFile | None = None
        self._thread = threading.Thread(target=self._run, args=(write,), name="shard")
        if background:
            self._thread.start()
        else:
            self._thread.run()

    def _run(self, write: Callable[[], ShardFile]) -> None:
        self._file = write()

    def wait(self) -> ShardFile:
        """Return what was written, once it is."""
        if self._thread.ident is not None:
            self._thread.join()
        assert self._file is not None
        return self._file

    def result(self, patience_s: float | None = 0) -> bytes | None:
        """Return the `ShardFile` as bytes, None if it is not written within so many seconds (None: wait)."""
        if self._thread.ident is not None:
            self._thread.join(patience_s)
        return None if self._file is None else pickle.dumps(self._file)


@dataclass
class ShardHolder:
    """Writes and reads the rows of tables that lie in this process.

    Attributes:
        who: what this process is, for messages.
        tables: by number.
        tensor_of: returns, by a table's number and a kind, the tensor of the rows that lie here.
        sharing: how many processes may take memory of this host for their copies at once.
    """

    who: str
    tables: Sequence[RowParameter]
    tensor_of: Callable[[int, str], torch.Tensor] = field(repr=False)
    sharing: int = 1

    def save(self, order: SaveOrder, number: int) -> ShardSaving:
        """Begin to write the shard with this number; an error is part of the result."""
        path = Path(order.folder) / order.shards.name(number)
        tensors = {each.name: self.tensor_of(each.table, each.kind) for each in order.arrays if self._rows(each.table)}
        size = sum(tensor.nbytes for tensor in tensors.values())
        copies = order.background and size * self.sharing <= _SHARE * free_memory()
        try:
            values = {name: tensor.to("cpu", copy=copies).numpy() for name, tensor in tensors.items()}
        except (MemoryError, RuntimeError) as error:
            if not (copies and is_about_memory(error)):
                raise
            copies, values = False, {name: tensor.to("cpu").numpy() for name, tensor in tensors.items()}
        rows = [
            RowsToWrite(each.name, self._rows(each.table).start, each.rows, values[each.name])
            for each in order.arrays
            if each.name in tensors
        ]
        waited_for = size if order.background and not copies else 0
        return ShardSaving(lambda: self._write(path, order, number, rows, waited_for), background=copies)

    def load(self, order: LoadOrder) -> str:
        """Replace the rows that lie here; return what went wrong, if anything."""
        here = self._rows(order.table)
        if not here:
            return ""
        try:
            order.rows.fill(self.tensor_of(order.table, order.kind), here.start)
        except EngineError as error:
            return f"{error.message} ({self.who})"
        return ""

    def _rows(self, table: int) -> range:
        placement = self.tables[table].placement
        assert placement is not None
        return placement.rows

    def _write(
        self, path: Path, order: SaveOrder, number: int, rows: Sequence[RowsToWrite], waited_for: int
    ) -> ShardFile:
        about = {each.name: (each.first, each.first + len(each.values)) for each in rows}
        size = sum(each.values.nbytes for each in rows)
        try:
            content = encode_shard(order.shards, number, self.who, order.iteration, rows)
            size = size_of(content)
            digest = FileSum.of(path.name, content)
            temporary = write_aside(path, content)
        except OSError as error:
            problem = cannot_write(path, error, size, size)
        except Exception as error:  # of any kind: a thread's would be lost, and the snapshot waited for
            problem = SnapshotError(f"cannot write {path}: {type(error).__name__}: {error}")
        else:
            return ShardFile(ShardSum(**asdict(digest), holder=self.who, rows=about), str(temporary), waited_for)
        nothing = ShardSum(path.name, 0, "", self.who, {})
        return ShardFile(nothing, "", error=f"{problem.message} ({self.who})", hint=problem.hint)
