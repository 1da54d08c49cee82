"""Counts what a run does, in all and since the last display, and turns it into events."""

from __future__ import annotations

import time

from mgcaffe.comm import CommReport
from mgcaffe.comm.exchange.sums.base import Rounding
from mgcaffe.solvers.events import Displayed, Emit, Finished, IterationDone, OutputValue


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
        """Forgets the totals."""
        self._run_began = time.perf_counter()
        self._total_images = 0
        self._total_hidden_s = self._total_exposed_s = 0.0
        self._rounding: Rounding | None = None

    def start_display(self, iteration: int) -> None:
        """Counts what the next display shows from this iteration on."""
        self._display_began = time.perf_counter()
        self._display_iteration = iteration
        self._hidden_s = self._exposed_s = 0.0

    def communicated(self, comm: CommReport) -> None:
        """Counts one exchange of gradients."""
        self._hidden_s += comm.hidden_s
        self._exposed_s += comm.exposed_s
        self._total_hidden_s += comm.hidden_s
        self._total_exposed_s += comm.exposed_s
        if comm.rounding is not None:
            self._rounding = comm.rounding if self._rounding is None else self._rounding + comm.rounding

    def display(self, iteration: int, loss: float, interval: int, outputs: tuple[OutputValue, ...]) -> None:
        """Tells the speed since the last display, every `interval` iterations."""
        seconds = time.perf_counter() - self._display_began
        speed = (iteration - self._display_iteration) / seconds if seconds > 0 else 0.0
        self._emit(Displayed(iteration, loss, speed, seconds, interval, outputs, self._hidden_s, self._exposed_s))
        self.start_display(iteration)

    def iteration_done(
        self,
        iteration: int,
        loss: float,
        smoothed_loss: float,
        rate: float,
        *,
        seconds: float,
        data_wait_s: float,
        comm: CommReport,
    ) -> None:
        """Tells of an update."""
        self._total_images += self._images
        self._emit(
            IterationDone(
                iteration,
                loss,
                smoothed_loss,
                rate,
                self._images,
                seconds,
                data_wait_s,
                comm.hidden_s,
                comm.exposed_s,
                comm.rounding.relative if comm.rounding is not None else None,
            )
        )

    def finish(
        self,
        iteration: int,
        stopped_early: bool,
        snapshot: str | None,
        scores: tuple[tuple[OutputValue, ...], ...],
    ) -> None:
        """Tells the totals of the run."""
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
