"""Finds the costs of an all-reduce: in `comm_param.cost_file`, or else by measuring, and writes them there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from mgcaffe.comm import Communicator
from mgcaffe.comm.planning.cost import AllReduceCosts
from mgcaffe.comm.planning.cost_file import CostEntry, find_costs, find_key, read_cost_file, write_cost_file
from mgcaffe.errors import EXIT_CANNOT_WRITE, CommError
from mgcaffe.solvers.events import Emit, Noted, Warned


class AllReduceCostSource:
    """The costs of this job's all-reduce.

    Args:
        communicator: the ranks; rank 0 alone reads and writes the file.
        path: the file; empty: there is none.
        transport: how gradients travel, such as "host memory, float32".
        measure: measures the costs on all ranks alike.
        emit: takes the events.

    Raises:
        CommError: (on rank 0) the file exists and is no file of costs, or could not be written.
        DataError: (on rank 0) it cannot be read.
    """

    def __init__(
        self, communicator: Communicator, path: str, transport: str, measure: Callable[[], AllReduceCosts], emit: Emit
    ) -> None:
        self._communicator = communicator
        self._path = path
        self._transport = transport
        self._measure = measure
        self._emit = emit
        if path and communicator.rank == 0:
            read_cost_file(path)
            _probe(Path(path))

    def find(self, anew: bool) -> AllReduceCosts:
        """Return the same costs on every rank, with an event that says where they come from; a collective call.

        Args:
            anew: whether they are to be measured in any case.
        """
        if not self._path:
            return self._measure()
        key = find_key(self._communicator, self._transport)
        found, difference = None, "the search begins again"
        if self._communicator.rank == 0 and not anew:
            found, difference = find_costs(read_cost_file(self._path), key)
        found, difference = self._communicator.broadcast_object((found, difference))
        if found is not None:
            self._emit(Noted(f"All-reduce costs are those of {self._path}; the all-reduce is not measured"))
            return found
        costs = self._measure()
        written = self._write(CostEntry(key, costs)) if self._communicator.rank == 0 else False
        if written:
            self._emit(Noted(f"All-reduce costs were measured and written to {self._path} ({difference})"))
        return costs

    def _write(self, entry: CostEntry) -> bool:
        """Write the file and return whether that worked; if not, training goes on with a warning."""
        try:
            write_cost_file(self._path, read_cost_file(self._path), entry)
        except CommError as error:
            self._emit(Warned(str(error)))
            return False
        return True


def _probe(path: Path) -> None:
    target = path if path.exists() else path.absolute().parent
    if not os.access(target, os.W_OK):
        raise CommError(
            f"the cost file {path} could not be written: {target} is not writable or does not exist",
            hint="choose another --cost_file",
            exit_code=EXIT_CANNOT_WRITE,
        )
