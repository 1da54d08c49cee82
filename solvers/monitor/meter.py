"""Adds up the figures of a run, in all and since the last display, and emits them as events."""

from __future__ import annotations

import time
from collections.abc import Callable

from mgcaffe.comm import CommReport
from mgcaffe.solvers.events import Displayed, Emit, Finished, IterationDone, OutputValue
from mgcaffe.solvers.replicas.replicas import Replicas
from mgcaffe.solvers.training_iteration import TrainingIteration


class _Stretch:
    """A stretch of a run, from the moment when it is made on: its time, and the communication in it."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self.hidden_s = self.exposed_s = 0.0

    @property
    def seconds(self) -> float:
        """How long it has lasted."""
        return time.perf_counter() - self._began

    def add(self, comm: CommReport) -> None:
        """Count one exchange of gradients."""
        self.hidden_s += comm.hidden_s
        self.exposed_s += comm.exposed_s


class Meter:
    """The figures of one run.

    Args:
        emit: takes the events.
        images: records that one worker of all ranks which train in step reads in an iteration.
        workers: how many Hogwild workers each rank has.
        others: gives the records that the other workers of this one have trained on so far; they go their own way.
    """

    def __init__(self, emit: Emit, images: int, workers: int = 1, others: Callable[[], int] = int) -> None:
        self._emit = emit
        self._images = images
        self._workers = workers
        self._others = others
        self.start_run()
        self.start_display(0)

    def start_run(self) -> None:
        """Reset the totals."""
        self._run = _Stretch()
        self._total_images = 0
        self._training_s = 0.0
        self._of_others = self._others()

    def start_display(self, iteration: int) -> None:
        """Count what the next display shows from this iteration on."""
        self._since_display = _Stretch()
        self._display_iteration = iteration

    def communicated(self, comm: CommReport) -> None:
        """Count one exchange of gradients."""
        self._since_display.add(comm)
        self._run.add(comm)

    def display(self, iteration: TrainingIteration, interval: int, outputs: tuple[OutputValue, ...]) -> None:
        """Emit the speed since the last display, every `interval` iterations."""
        since = self._since_display
        seconds, number = since.seconds, iteration.number
        speed = (number - self._display_iteration) / seconds if seconds > 0 else 0.0
        self._emit(
            Displayed(
                iteration=number,
                loss=iteration.smoothed_loss,
                iterations_per_second=speed,
                seconds=seconds,
                iterations=interval,
                outputs=outputs,
                comm_hidden_s=since.hidden_s,
                comm_exposed_s=since.exposed_s,
            )
        )
        self.start_display(number)

    def iteration_done(self, iteration: TrainingIteration) -> None:
        """Emit the figures of an iteration with its update."""
        images = self._images + self._new_of_others()
        self._total_images += images
        comm = iteration.comm
        self._emit(
            IterationDone(
                iteration=iteration.number,
                loss=iteration.loss,
                smoothed_loss=iteration.smoothed_loss,
                rate=iteration.rate,
                images=images,
                seconds=time.perf_counter() - iteration.began,
                data_wait_s=iteration.data_wait_s,
                comm_hidden_s=comm.hidden_s,
                comm_exposed_s=comm.exposed_s,
                data_work_s=iteration.data_work_s,
            )
        )

    def training_done(self) -> None:
        """Take note that the last update of all ranks has been made."""
        self._training_s = self._run.seconds

    def finish(
        self,
        iteration: int,
        stopped_early: bool,
        snapshot: str | None,
        scores: tuple[tuple[OutputValue, ...], ...],
        tested_at: int | None,
        replicas: Replicas,
        mean_scores: tuple[tuple[OutputValue, ...], ...],
    ) -> None:
        """Emit the totals of the run; arguments as for `Finished`."""
        images = self._total_images + self._new_of_others()
        if replicas.is_one_of_several:
            images = sum(replicas.iterations_here(iteration)) * self._images * self._workers
        self._emit(
            Finished(
                iteration=iteration,
                stopped_early=stopped_early,
                seconds=self._run.seconds,
                images=images,
                comm_hidden_s=self._run.hidden_s,
                comm_exposed_s=self._run.exposed_s,
                snapshot=snapshot,
                scores=scores,
                training_s=self._training_s,
                iterations=replicas.iterations(iteration),
                synchronization=replicas.figures if replicas.is_one_of_several else None,
                mean_scores=mean_scores,
                tested_at=tested_at,
            )
        )

    def _new_of_others(self) -> int:
        """Return how many records the other workers have trained on since this was last asked."""
        before, self._of_others = self._of_others, self._others()
        return self._of_others - before
