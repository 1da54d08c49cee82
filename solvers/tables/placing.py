"""Places the tables of a training net on the ranks that train it in step, before memory is taken for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from mgcaffe.comm import Communicator
from mgcaffe.comm.tables.assignment import RowRange, TableLoad, TooLargeError, assign_tables
from mgcaffe.engine.checks.memory import device_memory, gib
from mgcaffe.engine.row_parameter import Placement, WholeRows
from mgcaffe.engine.tables.access import TableToPlace
from mgcaffe.engine.types import Shape
from mgcaffe.prototxt import SolverParameter
from mgcaffe.solvers.tables.loads import read_loads
from mgcaffe.solvers.tables.shard_holder import ShardHolder
from mgcaffe.solvers.tables.whole_tables import WholeTables, WholeTensor


class TablePlacer:
    """Assigns tables to ranks; what `Net` calls as `place_tables`, a collective call.

    Args:
        param: the SolverParameter message.
        communicator: the ranks.
        dtype, device: of the tables.
        tensor_of: as for `ShardHolder`.
        owners: the ranks that rows are assigned to, by their numbers in the assignment; None: all ranks.

    Attributes:
        tables: those that were placed.
        assignment: which rank has which rows of each; none before the net is built, or if it has no tables.
        whole: reads and writes whole tables; None likewise.
    """

    def __init__(
        self,
        param: SolverParameter,
        communicator: Communicator,
        dtype: torch.dtype,
        device: torch.device,
        tensor_of: Callable[[int, str], torch.Tensor],
        owners: Sequence[int] | None = None,
    ) -> None:
        self._owners = range(communicator.size) if owners is None else owners
        self._param = param
        self._communicator = communicator
        self._value_bytes = dtype.itemsize
        self._device = device
        self._tensor_of = tensor_of
        self.tables: Sequence[TableToPlace] = ()
        self.loads: list[TableLoad] = []
        self.assignment: list[list[RowRange]] = []
        self.whole: WholeTables | None = None

    def __call__(self, tables: Sequence[TableToPlace]) -> Sequence[Placement]:
        """Return the placement of each table.

        Raises:
            NetError: the ranks have no memory for a table, which is named with its size.
            DataError: on rank 0, which alone reads it: a file of loads cannot be used.
        """
        self.tables = tables
        self.loads = self._read_loads(tables)
        of_ranks = self._communicator.allgather(_memory_of(self._communicator, self._device))
        memory = [of_ranks[rank] for rank in self._owners]
        try:
            self.assignment = assign_tables(self.loads, memory)
        except TooLargeError as error:
            self._refuse(error, sum(memory))
        who, sharing = f"rank {self._communicator.rank}", self._communicator.local_size
        holder = ShardHolder(who, [table.parameter for table in tables], self._tensor_of, sharing)
        self.whole = WholeTables(self._communicator, self.assignment, holder)
        return [Placement(number, self._rows_here(number), self._whole_of(number)) for number in range(len(tables))]

    def again(self, tables: Sequence[TableToPlace]) -> Sequence[Placement]:
        """Return the placements that these tables were given in a net before; not collective."""
        placements = [table.parameter.placement for table in self.tables]
        return [placement for placement in placements if placement is not None]

    def _whole_of(self, number: int) -> Callable[[str, Shape], WholeRows]:
        """Return what gives all rows of a table's tensors."""
        assert self.whole is not None
        return partial(WholeTensor, self.whole, number)

    def name_of(self, table: int) -> str:
        """Return what a table is called in shards: `layer/number of the blob`, as in files of weights."""
        names = []
        for layer, parameter, _ in self.tables[: table + 1]:
            number = next(index for index, each in enumerate(layer.parameters) if each is parameter)
            names.append(f"{layer.name}/{number}")
        # Layers may have one name.
        return names[table] if names.count(names[table]) == 1 else f"{names[table]}/{table}"

    @property
    def _whom(self) -> str:
        return "ranks" if len(self._owners) == self._communicator.size else "embedding servers"

    def describe(self) -> str:
        """Return how many tables, rows and bytes of them each rank has."""
        parts = []
        for owner, rank in enumerate(self._owners):
            mine = [
                (load, part)
                for load, ranges in zip(self.loads, self.assignment, strict=True)
                for part in ranges
                if part.owner == owner
            ]
            size = sum((part.last - part.first) * load.row_bytes for load, part in mine)
            of_tables = f"{len(mine)} table{'' if len(mine) == 1 else 's'}"
            parts.append(f"rank {rank} {of_tables}, {size / 2**20:,.1f} MiB")
        divided = sum(len(ranges) > 1 for ranges in self.assignment)
        extra = f" ({divided} divided by rows)" if divided else ""
        return f"Tables divided among {self._whom}{extra}: {'; '.join(parts)}"

    def _read_loads(self, tables: Sequence[TableToPlace]) -> list[TableLoad]:
        names = [table.layer.name for table in tables]
        path = self._param.comm_param.embedding_loads
        given = read_loads(path, names) if path and self._communicator.rank == 0 else {}
        given = self._communicator.broadcast_object(given)
        return [
            TableLoad(
                rows=table.parameter.shape[0],
                length=table.parameter.shape[1],
                row_bytes=self._row_bytes(table),
                looked_up=given.get(table.layer.name, float(table.look_ups)),
            )
            for table in tables
        ]

    def _row_bytes(self, table: TableToPlace) -> int:
        """Return the bytes of a row, AdaGrad's sums of squares included."""
        length = table.parameter.shape[1]
        sums = 0
        if self._param.type == "AdaGrad" and table.parameter.lr_mult != 0:
            sums = 1 if self._param.row_wise_adagrad else length
        return (length + sums) * self._value_bytes

    def _rows_here(self, number: int) -> range:
        mine = [part for part in self.assignment[number] if self._owners[part.owner] == self._communicator.rank]
        return range(mine[0].first, mine[0].last) if mine else range(0)

    def _refuse(self, error: TooLargeError, memory: int) -> None:
        table = self.tables[error.table]
        load = self.loads[error.table]
        rows, length = table.parameter.shape
        with_sums = " with AdaGrad's sums" if load.row_bytes > length * self._value_bytes else ""
        others = f", of which other tables leave {gib(error.free)}" if error.free < memory else ""
        table.layer.fail(
            f"the table of {rows} x {length} would take {gib(load.bytes)}{with_sums}, and the {len(self._owners)}"
            f" {self._whom} have {gib(memory)} of memory together{others}",
            hint="lower input_dim (ids modulo a smaller number) or num_output, or start ranks on more hosts",
        )


def _memory_of(communicator: Communicator, device: torch.device) -> int:
    """Return the bytes that this rank can use, where others share its host or GPU."""
    sharing = communicator.local_size
    if device.type == "cuda":
        sharing = -(-sharing // torch.cuda.device_count())
    return device_memory(device) // sharing
