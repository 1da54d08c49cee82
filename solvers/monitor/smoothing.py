"""The loss displayed: the mean over the last `average_loss` iterations (Caffe: UpdateSmoothedLoss)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class SmoothedLoss:
    """A window over the latest losses.

    Args:
        span: how many losses count; until there are so many, all of them do.
        losses: those to begin with, oldest first.
    """

    def __init__(self, span: int, losses: Iterable[float] = ()) -> None:
        self._losses: deque[float] = deque(losses, maxlen=span)
        self._is_restored = False

    @property
    def losses(self) -> list[float]:
        """The losses in the window, oldest first."""
        return list(self._losses)

    def copy(self) -> SmoothedLoss:
        """Return another window with these losses."""
        return SmoothedLoss(self._losses.maxlen or 0, self._losses)

    def restart(self) -> None:
        """Empty the window, unless nothing has happened since it was restored."""
        if not self._is_restored:
            self._losses.clear()
        self._is_restored = False

    def restore(self, losses: Iterable[float]) -> None:
        """Fill the window with the losses of an earlier run; the next `restart` leaves them there."""
        self._losses.clear()
        self._losses.extend(losses)
        self._is_restored = True

    def add(self, loss: float) -> float:
        """Take the latest loss and return the mean over the window.

        The sum is taken anew each time, so that a resumed run shows the same digits.
        """
        self._losses.append(loss)
        return sum(self._losses) / len(self._losses)
