"""The policy that lowers the rate when the loss has stopped falling (SSD's and Intel's forks: sgd_solver.cpp).

It alone of the policies has a state: what it does next depends on the losses so far. The loss is the one that
`average_loss` smooths, a mean over the ranks, so every rank decides alike; the state is part of a snapshot, so a run
that is resumed goes on as if it had never stopped.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace

from mgcaffe.errors import DataError
from mgcaffe.errors.checked_json import parse_json
from mgcaffe.prototxt import SolverParameter

_NO_LOSS = 9.9e37
"""What forks begin with (1e38, or FLT_MAX) is above it, in float32 too."""


@dataclass(frozen=True)
class PlateauState:
    """The state of the policy.

    Attributes:
        steps: how often the rate has gone down.
        lowest_loss: the lowest smoothed loss so far.
        last_event: the iteration of the last new lowest loss or step down.
    """

    steps: int = 0
    lowest_loss: float = math.inf
    last_event: int = 0

    def encode(self) -> bytes:
        """Encode the state for a snapshot; `decode` gives back the same bits."""
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def decode(content: bytes) -> PlateauState:
        """Read what `encode` wrote.

        Raises:
            ValueError: it is something else.
        """
        try:
            values = parse_json(content, "solverstate", "the plateau's state is damaged")
            state = PlateauState(
                values["steps"].integer(),
                values["lowest_loss"].number(most=math.inf),  # before the first loss
                values["last_event"].integer(),
            )
        except DataError as error:
            raise ValueError(error.message) from None
        return state.checked()

    @staticmethod
    def of_fork(steps: int, lowest_loss: float, last_event: int) -> PlateauState:
        """Make the state of the fields that a fork's solverstate has for it.

        Raises:
            ValueError: as `decode`.
        """
        return PlateauState(steps, lowest_loss if lowest_loss < _NO_LOSS else math.inf, last_event).checked()

    def checked(self) -> PlateauState:
        """Check the state, and return it.

        Raises:
            ValueError: a count is negative, or the loss is NaN.
        """
        if self.steps < 0 or self.last_event < 0 or math.isnan(self.lowest_loss):
            raise ValueError(f"the plateau's state is damaged: {self}")
        return self


class Plateau:
    """Counts how often the rate has gone down.

    Args:
        param: the SolverParameter message; reads plateau_winsize, which the policy has checked.

    Attributes:
        state: what a snapshot has to hold.
    """

    def __init__(self, param: SolverParameter) -> None:
        self._winsize: list[int] = list(param.plateau_winsize)
        self.state = PlateauState()

    def observe(self, iteration: int, loss: float) -> bool:
        """Take the smoothed loss of an iteration, before its update; return whether the rate goes down with it.

        The k-th step down is made once plateau_winsize[k] iterations have passed since the last event, which is a new
        lowest loss or the step before. After as many steps as there are sizes the rate stays.
        """
        if loss < self.state.lowest_loss:
            self.state = replace(self.state, lowest_loss=loss, last_event=iteration)
        steps = self.state.steps
        if steps >= len(self._winsize) or iteration < self.state.last_event + self._winsize[steps]:
            return False
        self.state = replace(self.state, steps=steps + 1, last_event=iteration)
        return True
