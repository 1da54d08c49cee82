"""All tests of an iteration, and leaving them early: agreed by all ranks, and as if they had never begun.

The ranks run different batches of a test and do not communicate meanwhile. To agree on a stop they exchange a number
about once per second: after how many batches follows from the mean time of a batch, which is part of the exchange.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from mgcaffe.engine import Net
from mgcaffe.errors import PeerFailure
from mgcaffe.solvers import carried_state
from mgcaffe.solvers.events import Emit, OutputValue, Warned
from mgcaffe.solvers.events.testing import Tested, Testing
from mgcaffe.solvers.exchange.ranks import Ranks
from mgcaffe.solvers.testing import tester
from mgcaffe.solvers.testing.stop_poll import StopPoll


class TestRuns:
    """Tests the test nets, one after the other.

    Args:
        nets: the test nets.
        ranks: those that test together.
        with_loss: whether the mean loss is wanted.
        emit: takes the events.

    Attributes:
        scores: those of each net in the latest test that was not left.
        tested_at: its iteration; None before the first.
    """

    __test__ = False  # the name is not a pytest class

    def __init__(self, nets: Sequence[Net], ranks: Ranks, with_loss: bool, emit: Emit) -> None:
        self.scores: tuple[tuple[OutputValue, ...], ...] = ()
        self.tested_at: int | None = None
        self._nets = list(nets)
        self._ranks = ranks
        self._with_loss = with_loss
        self._emit = emit
        self._put_back: Callable[[], None] = lambda: None

    def rewind(self) -> None:
        """Let the next test read what the latest one has read; before the first there is nothing to do."""
        self._put_back()

    def run(self, seed: int, iteration: int, wants_stop: Callable[[], bool]) -> bool:
        """Run all tests; collective.

        Args:
            seed: of the run's random numbers.
            iteration: updates done.
            wants_stop: whether this rank wants to stop.

        Returns:
            Whether the tests ended; if not, a rank wanted to stop, all have left, and the data stand where they stood.
        """
        positions = [(layer, layer.position()) for net in self._nets for layer in net.data_layers]
        states = [carried_state.snapshot(net) for net in self._nets]

        def put_back() -> None:
            for layer, position in positions:
                layer.seek(position)
            for state in states:
                carried_state.put(state)

        self._put_back = put_back
        scores = []
        for index, net in enumerate(self._nets):
            self._emit(Testing(iteration, index))
            began = time.perf_counter()
            poll = StopPoll(self._ranks, wants_stop)
            try:
                result = tester.run_test(net, self._ranks, seed, iteration, self._with_loss, poll)
            except PeerFailure:
                put_back()
                raise
            if result is None:
                put_back()
                self._emit(Warned("the test is left before its end; it runs again when training goes on"))
                return False
            seconds = time.perf_counter() - began
            self._emit(Tested(iteration, index, result.scores, result.loss, seconds))
            scores.append(result.scores)
        self.scores, self.tested_at = tuple(scores), iteration
        return True
