"""The worker threads of one trainer (Hogwild): each computes gradients on a net of its own and updates one replica.

    with workers.running(start, end, seed):
        while iteration < workers.end:
            workers.begin(iteration)       worker 0's iteration, on the thread that trains; the others go their own way
            with workers.lock: update
            workers.meet(iteration)        where all have to have completed as many: before a snapshot

Worker j of m reads and draws what rank j of m would. Workers run freely and meet before a snapshot, at the end, and
where a stop is asked for: each then completes as many iterations as the one that is furthest. With one worker nothing
of this does anything.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from mgcaffe.comm.supervision import status
from mgcaffe.engine import Net
from mgcaffe.errors import SolverError
from mgcaffe.prototxt import SolverParameter
from mgcaffe.solvers.events import Emit, Event, Noted, Warned
from mgcaffe.solvers.exchange.ranks import Ranks, changed_by_forward
from mgcaffe.solvers.replicas.replicas import Replicas
from mgcaffe.solvers.update.updater import Updater
from mgcaffe.solvers.workers.progress import WorkerProgress
from mgcaffe.solvers.workers.worker import Worker

_PATIENCE_S = 60.0
"""How long the end of a run waits for a thread that is still in its iteration."""


class HogwildWorkers:
    """The workers of one trainer.

    Args:
        nets: theirs, worker 0's first.
        rank: the trainer's number among all.
        updater: worker 0's; the others share its histories.
        param: the SolverParameter message.
        rate: gives the learning rate of an iteration.
        replicas: the replica among those of other trainers; who keeps them together holds its lock.
        emit: takes the events, on the thread that trains.

    Attributes:
        lock: is held during an update: with one worker and with `hogwild_lock` a lock that all share who change the
            replica, else nothing.
        end: where the run ends, in iterations.
    """

    def __init__(
        self,
        nets: Sequence[Net],
        rank: int,
        updater: Updater,
        param: SolverParameter,
        rate: Callable[[int], float],
        replicas: Replicas,
        emit: Emit,
    ) -> None:
        self._is_locked = bool(param.comm_param.hogwild_lock)
        self._replica_lock: AbstractContextManager[object] = replicas.lock
        self.lock: AbstractContextManager[object] = nullcontext()
        if len(nets) == 1 or (self._is_locked and replicas.is_one_of_several):
            self.lock = self._replica_lock
        elif self._is_locked:
            self.lock = threading.Lock()
        self.end = 0
        self._nets = list(nets)
        # All stand still where a snapshot is taken, and where the weights of a test may have to be written.
        keeps_tested = bool(param.snapshot_best) and rank == 0
        meets_every = (param.snapshot, param.test_interval if keeps_tested else 0)
        self._meets_every = [every for every in meets_every if every > 0]
        self._emit = emit
        self._events: deque[Event] = deque()
        self._others = [
            Worker(number, len(nets), rank, net, updater, param, rate, self.lock, self._events.append)
            for number, net in enumerate(nets)
            if number
        ]
        self._progress = WorkerProgress(len(nets), status.doing)
        self._meeting: int | None = None
        self._seed = 0
        self._threads: list[threading.Thread] = []
        self._announce()

    @property
    def count(self) -> int:
        """How many there are, worker 0 included."""
        return len(self._nets)

    @property
    def records(self) -> int:
        """How many records the other workers' updates came from, since they were made."""
        return sum(worker.records for worker in self._others)

    # -- a run -------------------------------------------------------------------------------------------

    @contextmanager
    def running(self, start: int, end: int, seed: int) -> Iterator[None]:
        """Train inside, from iteration `start` on; afterwards all workers have completed `self.end` iterations.

        Where an error ends it, each ends its iteration, and their threads end.

        Args:
            start: iterations done.
            end: where the run ends, unless `stop` is called.
            seed: of the run's random numbers.

        Raises:
            Exception: what has ended a worker's thread.
        """
        self.end, self._seed, self._meeting = end, seed, None
        for worker in self._others:
            worker.iteration = start
        self._progress.start(start)
        with self._sharing_cores():
            try:
                yield
                self._progress.wait_for_others(self.end)
            finally:
                self._progress.end()
                self._join()
                self._deliver()

    def begin(self, iteration: int) -> None:
        """Begin worker 0's iteration, and let the others go on to the next meeting.

        Raises:
            Exception: what has ended a worker's thread.
        """
        self.check()
        self._deliver()
        self._progress.allow(self._next_meeting(iteration))
        self._progress.begin(0)
        if self._others and not self._threads:
            self._start()

    def check(self) -> None:
        """Raise what has ended a worker's thread."""
        self._progress.check()

    def call_meeting(self) -> None:
        """Let all meet as soon as they can, where the one that is furthest has ended its iteration."""
        self._meeting = self._progress.halt()

    def is_called_to(self, iteration: int) -> bool:
        """Return whether that meeting, if one was called, is after so many iterations."""
        return self._meeting == iteration

    def stop(self) -> None:
        """Let the run end as soon as all workers can have completed one number of iterations (`end`)."""
        self.end = min(self.end, self._progress.halt())

    def meet(self, iteration: int) -> None:
        """Wait until all workers have completed so many iterations; they wait there until worker 0 begins the next.

        Between two runs they have.

        Raises:
            Exception: what has ended a worker's thread.
        """
        if self._threads:
            self._progress.wait_for_others(iteration)
            self._deliver()

    # -- statistics that forward passes measure ------------------------------------------------------------

    def average_statistics(self, ranks: Ranks) -> None:
        """Give each worker of each rank the mean of what forward passes have measured (BatchNorm); collective.

        The workers are kept between two of their iterations for it. See `Ranks.average_statistics`.
        """
        if not self._others:
            ranks.average_statistics(self._nets[0])
            return
        measured = [changed_by_forward(net) for net in self._nets]
        if not measured[0]:
            return
        with self._progress.paused(), self._replica_lock:
            for mine, *others in zip(*measured, strict=True):
                for other in others:
                    mine.add_(other)
                mine.div_(self.count)
            ranks.average_statistics(self._nets[0])
            self.take_statistics()

    def take_statistics(self) -> None:
        """Give the other workers, none of which is in an iteration, the statistics of worker 0's net."""
        for worker in self._others:
            for theirs, mine in zip(changed_by_forward(worker.net), changed_by_forward(self._nets[0]), strict=True):
                theirs.copy_(mine)

    # -- inside ------------------------------------------------------------------------------------------

    def _next_meeting(self, iteration: int) -> int:
        """Return how many iterations all have completed at the first meeting after worker 0's next iteration."""
        meetings = [(iteration // every + 1) * every for every in self._meets_every]
        if self._meeting is not None and self._meeting > iteration:
            meetings.append(self._meeting)
        return min([self.end, *meetings])

    @contextmanager
    def _sharing_cores(self) -> Iterator[None]:
        """Share this rank's computing threads out over the workers.

        `torch.set_num_threads` sets the number of the thread that calls it, and of those that start later.
        """
        threads = torch.get_num_threads()
        share = self._share(threads)
        if share != threads:
            torch.set_num_threads(share)
        try:
            yield
        finally:
            if share != threads:
                torch.set_num_threads(threads)

    def _announce(self) -> None:
        """Say how many workers there are, if there are several."""
        if self._others:
            how = "one at a time" if self._is_locked else "without a lock"
            threads = self._share(torch.get_num_threads())
            text = f"Hogwild: {self.count} workers update one replica {how}, each with {threads} computing thread"
            self._emit(Noted(text + "s" * (threads > 1)))

    def _share(self, threads: int) -> int:
        return max(1, threads // self.count)

    def _start(self) -> None:
        for worker in self._others:
            name = f"hogwild worker {worker.number}"
            thread = threading.Thread(target=self._run, args=(worker,), name=name, daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # of the system: no memory, or no more threads
                raise SolverError(
                    f"{name} of {self.count} cannot be started: {error}",
                    hint="train with fewer workers (hogwild_threads), or give this process more threads and memory",
                ) from None
            self._threads.append(thread)

    def _join(self) -> None:
        """Wait for the other workers' threads, but not without end for one that hangs."""
        for thread in self._threads:
            thread.join(_PATIENCE_S)
            if thread.is_alive():
                text = f"{thread.name} is still in its iteration {_PATIENCE_S:.0f} s after the end of the run"
                self._emit(Warned(f"{text}, which goes on without it"))
        self._threads = []

    def _run(self, worker: Worker) -> None:
        torch.get_num_threads()  # takes over the number set above, which the first operation might not
        try:
            while self._progress.begin(worker.number):
                worker.iterate(self._seed)
                self._progress.completed(worker.number)
        except BaseException as error:  # it belongs to the thread that trains
            self._progress.fail(error)

    def _deliver(self) -> None:
        """Emit the events of the other workers."""
        while self._events:
            self._emit(self._events.popleft())
