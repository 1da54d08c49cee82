"""A progress line on a terminal: iteration, loss, rate, images per second, time left, and what is waited for.

Tests, snapshots and warnings scroll by above it. On a narrow terminal net and bar go first, then the last figures.
"""

from __future__ import annotations

import logging
from functools import singledispatchmethod

from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column

from mgcaffe.solvers import events
from mgcaffe.solvers.events.snapshots import BestFound, NothingToRestore, Restored, SnapshotWritten, WeightsCopied
from mgcaffe.solvers.events.testing import Tested
from mgcaffe.tools.listeners.communication_lines import closing_lines, plan_lines, scores_text
from mgcaffe.tools.listeners.glog import number, replace_handler
from mgcaffe.tools.listeners.terminal import terminal_console

# How much of an iteration's speed enters the speed shown: the line is to be read, not to flicker.
_SMOOTHING = 0.1
# The share of an iteration from which on its wait for data is shown.
_WORTH_SHOWING = 0.05
_BAR = 20
# A terminal of this width fits the bar.
_WIDE = 120
# What "12:34:56" takes beside a gap.
_TIME_LEFT = 9


class ProgressListener:
    """Shows a run as it goes.

    Args:
        ranks: how many ranks train in step; with more than one, exposed communication is shown, and with trainers that
            have replicas of their own synchronizations and gap as of the last display.
        console: where to draw, standard error by default.
    """

    def __init__(self, ranks: int, console: Console | None = None) -> None:
        self.console = console or terminal_console()
        replace_handler(RichHandler(logging.WARNING, self.console, show_time=False, show_path=False))
        self._ranks = ranks
        self._started_at = 0
        self._images_per_second = 0.0
        self._synchronized = ""
        self._taken = 0
        self._task: TaskID | None = None
        self._progress = Progress(
            *((TextColumn("{task.description}"), BarColumn(bar_width=_BAR)) if self._is_wide() else ()),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            console=self.console,
            refresh_per_second=5,
        )

    @singledispatchmethod
    def on_event(self, event: events.Event) -> None:
        """Show an event; kinds that say nothing to a person are passed over."""

    @on_event.register
    def _(self, event: events.Started) -> None:
        self._print(
            f"Solving {event.net} ({event.solver_type}, {event.policy}): {event.parameters:,} parameters, "
            f"batch {event.batch_size}, {event.ranks} rank{'s' * (event.ranks != 1)}, {event.precision}"
        )
        self._started_at = event.iteration
        self._taken = 2 * len(f"{event.max_iter} ") + _TIME_LEFT + (len(event.net) + _BAR + 2) * self._is_wide()
        self._task = self._progress.add_task(event.net, total=event.max_iter, completed=event.iteration, figures="")
        self._progress.start()

    @on_event.register
    def _(self, event: events.IterationDone) -> None:
        if self._task is None:
            return
        speed = event.images / event.seconds if event.seconds > 0 else 0.0
        previous = self._images_per_second or speed
        self._images_per_second = previous + _SMOOTHING * (speed - previous)
        figures = [f"loss {number(event.smoothed_loss)}", f"lr {number(event.rate)}"]
        if event.images:
            figures.append(f"{self._images_per_second:.0f} images/s")
        if self._synchronized:
            figures.append(self._synchronized)
        elif self._ranks > 1:
            figures.append(f"{event.comm_exposed_s * 1e3:.1f} ms exposed")
        if event.seconds > 0 and event.data_wait_s > _WORTH_SHOWING * event.seconds:
            figures.append(f"{event.data_wait_s * 1e3:.1f} ms waiting for data")
        self._progress.update(self._task, completed=event.iteration + 1, figures=self._fitting(figures))

    @on_event.register
    def _(self, event: events.Synchronized) -> None:
        count = event.figures.synchronizations
        self._synchronized = f"{count} syncs, gap {event.figures.gap:.1f}" if count else "no syncs"

    @on_event.register
    def _(self, event: Tested) -> None:
        loss = "" if event.loss is None else f", test loss = {number(event.loss)}"
        self._print(f"Iteration {event.iteration}: test net #{event.net}: {scores_text(event.scores)}{loss}")

    @on_event.register
    def _(self, event: SnapshotWritten) -> None:
        self._print(f"Iteration {event.iteration}: snapshot {event.state}")

    @on_event.register
    def _(self, event: BestFound) -> None:
        self._print(f"Iteration {event.iteration}: best {event.output} so far, {number(event.value)}: {event.state}")

    @on_event.register
    def _(self, event: NothingToRestore) -> None:
        self._print(f"No snapshot begins with {event.prefix}: starting anew")

    @on_event.register
    def _(self, event: Restored) -> None:
        self._print(f"Resuming from {event.state} at iteration {event.iteration}")

    @on_event.register
    def _(self, event: WeightsCopied) -> None:
        if event.net == "train":
            self._print(f"Finetuning from {event.path}\n{event.report}")

    @on_event.register
    def _(self, event: events.PlanChosen) -> None:
        for line in plan_lines(event):
            self._print(line)

    @on_event.register
    def _(self, event: events.LossScaleChanged) -> None:
        self._print(event.text)

    @on_event.register
    def _(self, event: events.Noted) -> None:
        self._print(event.text)

    @on_event.register
    def _(self, event: events.Warned) -> None:
        logging.getLogger(__name__).warning("%s", event.text)

    @on_event.register
    def _(self, event: events.Finished) -> None:
        self.close()
        self._print("Optimization stopped early." if event.stopped_early else "Optimization Done.")
        for line in closing_lines(event, self._ranks, event.iteration - self._started_at):
            self._print(line)

    def close(self) -> None:
        """Leave the terminal as a run that ends should; harmless when repeated."""
        self._progress.stop()

    def _is_wide(self) -> bool:
        return self.console.width >= _WIDE

    def _fitting(self, figures: list[str]) -> str:
        """Return as many of the figures, from the first on, as fit into the line."""
        space = self.console.width - self._taken
        for count in range(len(figures), 0, -1):
            for gap in ("  ", " "):
                if len(text := gap.join(figures[:count])) <= space:
                    return text
        return figures[0]

    def _print(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)
