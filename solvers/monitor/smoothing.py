"""The loss displayed: the mean over the last `average_loss` iterations (Caffe: UpdateSmoothedLoss)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class SmoothedLoss:
    """A window over the latest losses.

    Args:
        span: how many losses count; until there are so many, all of them do.
    """

    def __init__(self, span: int) -> None:
        self._losses: deque[float] = deque(maxlen=span)

    @property
    def losses(self) -> list[float]:
        """The losses in the window, oldest first."""
        return list(self._losses)

    def restart(self, losses: Iterable[float] = ()) -> None:
        """Empties the window, or fills it with the losses of an earlier run."""
        self._losses.clear()
        self._losses.extend(losses)

    def add(self, loss: float) -> float:
        """Takes the latest loss and returns the mean over the window.

        The sum is taken anew each time, so that a resumed run shows the same digits.
        """
        self._losses.append(loss)
        return sum(self._losses) / len(self._losses)
