"""The tables of trainers at their own pace that hold them themselves (`embeddings: ASYNC`). docs/async_tables.md.

Each row lies in one trainer, whose serving thread answers look-ups of the others and updates it by their gradients as
they come, while the trainer trains, and until all are done.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence

import torch

from mgcaffe.comm import Communicator
from mgcaffe.comm.supervision import status
from mgcaffe.comm.supervision.guard import run_guarded
from mgcaffe.comm.tables.client import TableClient
from mgcaffe.comm.tables.held_tables import HeldTables
from mgcaffe.comm.tables.server import TableServer
from mgcaffe.comm.transport.communicator import Waiting
from mgcaffe.engine.row_parameter import Placement
from mgcaffe.engine.tables.access import TableToPlace
from mgcaffe.prototxt import SolverParameter, Source
from mgcaffe.solvers.tables.server_tables import ServerPlacer, ServerTables
from mgcaffe.solvers.tables.settings import check_async

_RAISED_WITHIN_S = 3.0
"""How long an error of the serving thread waits for the training thread to raise it."""

# The serving thread and training share a core: looking for requests more often takes more than answering sooner gives.
_BESIDE_TRAINING = Waiting(spin_s=0.0, busy_spin_s=0.0, sleep_s=500e-6)


class AsyncPlacer(ServerPlacer):
    """Assigns tables to all trainers; see `ServerPlacer`.

    Args:
        source: where the solver's fields stand, for errors.
    """

    def __init__(
        self, param: SolverParameter, communicator: Communicator, dtype: torch.dtype, source: Source | None
    ) -> None:
        super().__init__(param, communicator, range(communicator.size), dtype)
        self._source = source

    def __call__(self, tables: Sequence[TableToPlace]) -> Sequence[Placement]:
        """Return the placement of each table.

        Raises:
            SolverError: the solver asks for what trainers do not do with each other's tables.
            NetError, DataError: as `TablePlacer`.
        """
        check_async(self._param, self._source)
        return super().__call__(tables)


class AsyncTables(ServerTables):
    """Places the tables of the training net on all trainers, and lets them look up there.

    Args:
        param: the SolverParameter message.
        communicator: the trainers; it is duplicated where there are tables.
        dtype, device: of the nets.
        source: where the solver's fields stand, for errors.

    Attributes:
        server: what answers the others, once there are tables.
    """

    def __init__(
        self,
        param: SolverParameter,
        communicator: Communicator,
        dtype: torch.dtype,
        device: torch.device,
        source: Source | None = None,
    ) -> None:
        super().__init__(param, communicator, range(communicator.size), dtype, device)
        self.place = AsyncPlacer(param, communicator, dtype, source)
        self.server: TableServer | None = None
        self._duplicates: tuple[Communicator, Communicator] | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._is_closing = threading.Event()

    @property
    def rank(self) -> int:
        """The number of this trainer."""
        return self._communicator.rank

    @property
    def sharing(self) -> int:
        """How many trainers there are on this host."""
        return self._communicator.local_size

    def serve(self, held: HeldTables, on_error: Callable[[BaseException], None]) -> None:
        """Begin to answer look-ups; before any of this trainer.

        Args:
            held: the rows that lie here.
            on_error: takes what goes wrong on the serving thread, on that thread.
        """
        client = self.client
        assert self._duplicates is not None
        others = [rank for rank in self._servers if rank != self._communicator.rank]
        self.server = TableServer(self._duplicates[0], others, held, self._duplicates[1])
        client.own = self.server.rows
        # Both threads beside training compute with one thread each, as servers do. `torch.set_num_threads` holds for
        # the thread that calls it, and for those that start later.
        threads = torch.get_num_threads()
        client.run_beside(lambda: torch.set_num_threads(1))
        is_ready = threading.Event()
        arguments = (self.server, is_ready, on_error)
        self._thread = threading.Thread(target=self._serve, args=arguments, name="mgcaffe tables", daemon=True)
        self._thread.start()
        is_ready.wait()
        torch.set_num_threads(threads)

    def close(self) -> None:
        """Let the others know that this trainer is done, and serve until all are; an error doesn't wait for them."""
        self._is_closing.set()
        super().close()
        if self._thread is None or sys.exc_info()[0] is not None:
            return
        status.doing("waiting for the other trainers, which look rows up here")
        self._thread.join()
        assert self._duplicates is not None
        for communicator in self._duplicates:
            communicator.close()
        if self._error is not None:
            raise self._error

    def _connect(self, shapes: Sequence[tuple[int, int]]) -> TableClient:
        requests, answers = self._communicator.duplicate(_BESIDE_TRAINING), self._communicator.duplicate()
        self._duplicates = requests, answers
        return TableClient(requests, shapes, self.place.assignment, self._servers, self._dtype, answers)

    def _serve(self, server: TableServer, is_ready: threading.Event, on_error: Callable[[BaseException], None]) -> None:
        torch.set_num_threads(1)
        is_ready.set()
        try:
            server.run()
        except BaseException as error:
            self._error = error  # of any kind: the training thread raises it
            on_error(error)
            if not self._is_closing.wait(_RAISED_WITHIN_S):
                self._end_job(error)

    def _end_job(self, error: BaseException) -> None:
        """End all ranks: the training thread waits for trainers that wait for answers of this thread."""

        def fail() -> None:
            raise error

        run_guarded(fail, lambda: self._communicator)
