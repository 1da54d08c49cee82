"""Keeps a trainer's replica together with those of the others, beside training or every k iterations.

    sync = ParameterSynchronizer(rule, topology, every=5)       or every=None: in the background
    sync.start(arena.data)                     once, the same values on all trainers
    with sync.lock: update the replica         each iteration
    sync.iteration_done()
    sync.finish()                              when this trainer has trained enough: returns when all have

In the background a thread of its own (ShadowSync's shadow thread) goes from round to round. A round takes the lock for
a copy of the replica and for the merge, never while it communicates.

Before each period of rounds the trainers agree on who is done. A second thread exchanges beside the rounds, which may
be long in coming, what all have to know soon: whether somebody asks for the end of the training or for a snapshot, and
how far each has come. Where servers hold the centre, no trainer waits for another, and one exchange does for both.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy

from mgcaffe.comm.exchange.emulation import sleep_until
from mgcaffe.comm.planning.cost import AffineCost
from mgcaffe.comm.replicas.agreement import Agreement
from mgcaffe.comm.replicas.figures import SyncFigures
from mgcaffe.comm.replicas.rules import Rule
from mgcaffe.comm.replicas.topology import Topology
from mgcaffe.comm.supervision import status
from mgcaffe.comm.transport.buffers import host_view
from mgcaffe.errors import CommError

_AGREE_EVERY_S = 0.05
_SAMPLE_EVERY_S = 0.5
_REPORT_EVERY_S = 1.0


class ParameterSynchronizer:
    """One trainer's part in keeping replicas together.

    Args:
        rule: how replicas come together; None: they don't, and rounds in the background serve the agreements alone.
        topology: who averages with whom.
        every: iterations from one round to the next, in the foreground; None: rounds run in the background.
        interval_s: the least time from the start of one background round to the next.
        link: the link to emulate, None for the real one alone.
        clock: seconds, for the figures.

    Attributes:
        lock: to be held while the replica is updated.
        agreement: what this trainer and the others have told each other.
        on_round: is called after each round with its beginning and end by the clock and the figures, on the thread that
            ran it; None: there is nothing to call.

    Raises:
        CommError: `every` below 1, an interval below 0 or not finite, or groups with a rule that needs all trainers in
            each round.
    """

    def __init__(
        self,
        rule: Rule | None,
        topology: Topology,
        *,
        every: int | None = None,
        interval_s: float = 0.0,
        link: AffineCost | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if every is not None and every < 1:
            raise CommError(f"replicas cannot be synchronized every {every} iterations")
        if not 0 <= interval_s < math.inf:
            raise CommError(
                f"the least interval of {interval_s:g} s between two synchronizations is not 0 or more and finite"
            )
        if rule is not None and rule.needs_all_trainers and topology.rounds > 1:
            raise CommError(
                "elastic averaging keeps one centre for all trainers, which averaging in groups would make several of",
                hint="let all trainers average in each round, or choose another rule",
            )
        self.lock = threading.Lock()
        self._rule_lock = threading.Lock()  # held while the rule's state changes
        self.agreement = Agreement(topology.rank, topology.size)
        self.on_round: Callable[[float, float, SyncFigures], None] | None = None
        self._rule = rule
        self._topology = topology
        self._every = every
        self._interval_s = interval_s if rule is not None else max(interval_s, _AGREE_EVERY_S)
        self._link = link
        self._clock = clock
        self._replica = self._snapshot = numpy.empty(0)
        self._earlier_iterations = 0
        self._earlier_rounds = 0  # the same on all trainers
        self._iterations = 0  # written by the training thread, the figures by the one that runs the rounds
        self._figures = SyncFigures()
        self._served = 0  # rounds since this trainer is done, for the others
        self._notices: threading.Thread | None = None
        self._beats = 0
        self._sampled_at = float("-inf")
        self._done = threading.Event()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def start(
        self,
        replica: Any,
        state: Mapping[str, numpy.ndarray] | None = None,
        iterations: int = 0,
        of_first: int = 0,
    ) -> None:
        """Take the flat replica, a CPU tensor or numpy array with the same values on all trainers.

        Args:
            replica: the values.
            state: what the rule's `state` was when an earlier run ended; None: the rule begins anew.
            iterations: those of earlier runs, so that rounds in the foreground are due when they would have been.
            of_first: those of trainer 0, given on all trainers: groups in turn go on from its last round.

        Raises:
            CommError: it is not contiguous, or of a type that cannot be averaged.
        """
        self._replica = host_view(replica)
        self._earlier_iterations = iterations
        self._earlier_rounds = of_first // self._every if self._every is not None else 0
        if self._rule is not None:
            self._snapshot = self._replica.copy()
            self._rule.begin(self._replica)
            for name, values in (state or {}).items():
                self._rule.state[name][:] = values
            self._topology.begin(self._rule.target)
        if self._topology.notices is not None:
            self._notices = self._started(self._exchange_notices, "mgcaffe notices")
        if self._every is None:
            self._thread = self._started(self._run, "mgcaffe shadow")

    @property
    def figures(self) -> SyncFigures:
        """What it has come to so far."""
        known = self.agreement.known
        return replace(
            self._figures,
            iterations=self._iterations,
            trainers=known.trainers,
            rounds=known.rounds,
            distances=known.distances,
        )

    @property
    def state(self) -> dict[str, numpy.ndarray]:
        """A copy of the rule's state between two rounds, for `start`."""
        if self._rule is None:
            return {}
        with self._rule_lock:
            return {name: values.copy() for name, values in self._rule.state.items()}

    @property
    def state_names(self) -> tuple[str, ...]:
        """The names of the arrays in the rule's state."""
        return () if self._rule is None else tuple(self._rule.state)

    def iteration_done(self) -> None:
        """Take note of an iteration; in the foreground, run the round that is due.

        Raises:
            Exception: what went wrong in a round, also on the background's thread.
        """
        if self._error is not None:
            raise self._error
        self._iterations += 1
        if self._every is not None and (self._earlier_iterations + self._iterations) % self._every == 0:
            status.doing("synchronizing replicas")
            self._serve()

    def fail(self, error: BaseException) -> None:
        """Have `iteration_done` and `finish` raise an error of another thread; from any thread."""
        self._error = self._error or error

    def finish(self, wants_stop: Callable[[], bool] = lambda: False) -> SyncFigures:
        """Serve the rounds of the others until every trainer is done; harmless when repeated.

        Args:
            wants_stop: whether the others are to be asked to end their training meanwhile.

        Raises:
            Exception: what went wrong in a round, also on the background's thread.
        """
        if not self._done.is_set():
            self.agreement.asks_for_stop = wants_stop
            self._done.set()
            status.current().background_beat = None
            if self._thread is None and self._error is None:
                self._thread = self._started(self._serve_to_the_end, "mgcaffe rounds")
            for thread in (self._thread, self._notices):
                if thread is not None and self._error is None:
                    self._await_others(thread)
            self._topology.close()
        if self._error is not None:
            raise self._error
        return self.figures

    def _await_others(self, thread: threading.Thread) -> None:
        """Wait for the end of the background's thread; while it gets on, this trainer does not count as stalled."""
        seen = -1
        while thread.is_alive() and self._error is None:
            if self.agreement.exchanges != seen:
                seen = self.agreement.exchanges
                status.doing("waiting for the other trainers, whose replicas are still trained")
            thread.join(_REPORT_EVERY_S)

    def _started(self, work: Callable[[], None], name: str) -> threading.Thread:
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        return thread

    def _serve_to_the_end(self) -> None:
        """Serve the others' rounds in the foreground, after this trainer's own training; `finish` waits for it."""
        with contextlib.suppress(Exception):  # kept by `_serve`
            while self._serve():
                pass

    def _exchange_notices(self) -> None:
        """Exchange with the others, beside the rounds, what all have to know; until all are done."""
        communicator = self._topology.notices
        assert communicator is not None
        try:
            while True:
                facts = self._facts(with_requests=True)
                communicator.allreduce(facts)
                if self.agreement.take(facts):
                    return
                time.sleep(_AGREE_EVERY_S)
        except BaseException as error:
            self._error = self._error or error  # of any kind: the training thread raises it

    def _run(self) -> None:
        """Go from round to round; the background's thread."""
        try:
            while True:
                self._got_on()
                began = self._clock()
                if not self._serve():
                    return
                while (rest := began + self._interval_s - self._clock()) > 0 and not self._done.is_set():
                    self._done.wait(min(rest, _REPORT_EVERY_S))
                    self._got_on()
        except BaseException as error:
            self._error = self._error or error  # of any kind: the training thread raises it
        finally:
            status.current().background_beat = None

    def _got_on(self) -> None:
        """Let the watch know that the background gets on; once this trainer is done the main thread waits for it."""
        self._beats += 1
        status.current().background_beat = None if self._done.is_set() else self._beats

    def _serve(self) -> bool:
        """Do as `_round`; an error is kept, since this trainer has left the others in the middle of a round."""
        try:
            return self._round()
        except BaseException as error:
            self._error = self._error or error
            raise

    def _round(self) -> bool:
        """Run one round, unless all trainers are done; return whether it was run."""
        began, on_core = self._clock(), time.thread_time()
        number = self._earlier_rounds + self._figures.synchronizations + self._served
        is_served = self._done.is_set()
        if number % self._topology.rounds == 0 and self._agree():
            if self._rule is not None:
                self._topology.complete(self._rule.target)
            return False
        if self._rule is None:
            return True
        with self.lock:
            self._snapshot[:] = self._replica
        offered = self._rule.offer(self._snapshot)
        deadline = None if self._link is None else time.perf_counter() + self._link(offered.nbytes)
        trainers = self._topology.average(offered, number)
        if deadline is not None and self._every is None:
            time.sleep(max(0.0, deadline - time.perf_counter()))  # an emulated link takes no processor time
        elif deadline is not None:
            sleep_until(deadline)
        with self._rule_lock:
            self._rule.receive(offered, trainers)
        distance = self._sampled_distance(self._rule)
        with self.lock:
            self._rule.merge(self._replica, self._snapshot)
        if is_served:  # no synchronization of this trainer's training
            self._served += 1
            return True
        figures, taken = self._figures, self._clock() - began
        self._figures = replace(
            figures,
            synchronizations=figures.synchronizations + 1,
            bytes=figures.bytes + offered.nbytes,
            seconds=figures.seconds + taken,
            exposed_s=figures.exposed_s + (taken if self._every is not None else 0.0),
            processor_s=figures.processor_s + time.thread_time() - on_core,
            distance=distance,
        )
        if self.on_round is not None:
            self.on_round(began, self._clock(), self.figures)
        return True

    def _agree(self) -> bool:
        """Return whether all trainers are done.

        That is agreed on before each period of the topology: a trainer that left earlier than the others would leave
        them waiting.
        """
        return self.agreement.take(self._topology.agree(self._facts(with_requests=self._notices is None)))

    def _facts(self, *, with_requests: bool) -> numpy.ndarray:
        """Return what the others have to know of this trainer."""
        return self.agreement.facts(
            self._figures, self._iterations, is_done=self._done.is_set(), with_requests=with_requests
        )

    def _sampled_distance(self, rule: Rule) -> float:
        """Return how far the replica was from what it moves towards, now and then anew: it goes over both once."""
        now = self._clock()
        if now < self._sampled_at + _SAMPLE_EVERY_S:
            return self._figures.distance
        self._sampled_at = now
        length = float(numpy.linalg.norm(rule.target))
        return float(numpy.linalg.norm(self._snapshot - rule.target)) / length if length else 0.0
