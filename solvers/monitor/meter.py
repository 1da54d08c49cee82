"""Adds up the figures of a run, in all and since the last display, and emits them as events."""

from __future__ import annotations

import time

from mgcaffe.comm import CommReport
from mgcaffe.comm.exchange.sums.base import Rounding
from mgcaffe.solvers.events import Displayed, Emit, Finished, IterationDone, OutputValue
from mgcaffe.solvers.iteration import Iteration


class Meter:
    """The figures of one run.

    Args:
        emit: takes the events.
        images: records that all ranks read in an iteration.
    """

    def __init__(self, emit: Emit, images: int) -> None:
        self._emit = emit
        self._images = images
        self.start_run()
        self.start_display(0)

    def start_run(self) -> None:
        """Reset the totals."""
        self._run_began = time.perf_counter()
        self._total_images = 0
        self._total_hidden_s = self._total_exposed_s = 0.0
        self._rounding: Rounding | None = None

    def start_display(self, iteration: int) -> None:
        """Count what the next display shows from this iteration on."""
        self._display_began = time.perf_counter()
        self._display_iteration = iteration
        self._hidden_s = self._exposed_s = 0.0

    def communicated(self, comm: CommReport) -> None:
        """Count one exchange of gradients."""
        self._hidden_s += comm.hidden_s
        self._exposed_s += comm.exposed_s
        self._total_hidden_s += comm.hidden_s
        self._total_exposed_s += comm.exposed_s
        if comm.rounding is not None:
            self._rounding = comm.rounding if self._rounding is None else self._rounding + comm.rounding

    def display(self, iteration: Iteration, interval: int, outputs: tuple[OutputValue, ...]) -> None:
        """Emit the speed since the last display, every `interval` iterations."""
        seconds = time.perf_counter() - self._display_began
        number, loss = iteration.number, iteration.smoothed_loss
        speed = (number - self._display_iteration) / seconds if seconds > 0 else 0.0
        self._emit(Displayed(number, loss, speed, seconds, interval, outputs, self._hidden_s, self._exposed_s))
        self.start_display(number)

    def iteration_done(self, iteration: Iteration) -> None:
        """Emit the figures of an iteration with its update."""
        self._total_images += self._images
        comm = iteration.comm
        self._emit(
            IterationDone(
                iteration=iteration.number,
                loss=iteration.loss,
                smoothed_loss=iteration.smoothed_loss,
                rate=iteration.rate,
                images=self._images,
                seconds=time.perf_counter() - iteration.began,
                data_wait_s=iteration.data_wait_s,
                comm_hidden_s=comm.hidden_s,
                comm_exposed_s=comm.exposed_s,
                rounding=comm.rounding.relative if comm.rounding is not None else None,
            )
        )

    def finish(
        self,
        iteration: int,
        stopped_early: bool,
        snapshot: str | None,
        scores: tuple[tuple[OutputValue, ...], ...],
    ) -> None:
        """Emit the totals of the run."""
        self._emit(
            Finished(
                iteration,
                stopped_early,
                time.perf_counter() - self._run_began,
                self._total_images,
                self._total_hidden_s,
                self._total_exposed_s,
                snapshot,
                scores,
                self._rounding.relative if self._rounding is not None else None,
            )
        )
