"""What a trainer's synchronization has come to, for logs and reports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SyncFigures:
    """Totals since the start, of one trainer.

    Attributes:
        iterations: that it has trained.
        synchronizations: rounds that it has completed.
        bytes: that it has handed over for averaging, one way.
        seconds: that the rounds took, waiting for the others included.
        processor_s: of which the synchronizing thread was on a core.
        exposed_s: of which training waited: all of them in the foreground, none in the background.
        distance: of this replica from what replicas move towards, relative to that one's length (both as Euclidean
            norms), in the latest round that was sampled; nan before the first.
        trainers, rounds, distances: iterations, completed rounds and distance of each trainer, as of the latest
            agreement.
    """

    iterations: int = 0
    synchronizations: int = 0
    bytes: int = 0
    seconds: float = 0.0
    processor_s: float = 0.0
    distance: float = float("nan")
    trainers: tuple[int, ...] = ()
    distances: tuple[float, ...] = ()
    exposed_s: float = 0.0
    rounds: tuple[int, ...] = ()

    @property
    def gap(self) -> float:
        """The average synchronization gap: iterations for each synchronization; infinite before the first."""
        return self.iterations / self.synchronizations if self.synchronizations else float("inf")
