"""How far a conversion is: a bar on a terminal, and Caffe's line every thousand records in the log."""

from __future__ import annotations

import logging
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from mgcaffe.tools.listeners.glog import log_line, replace_handler, start_logging

if TYPE_CHECKING:
    from rich.progress import Progress

_EVERY = 1000
_REFRESH_S = 0.2


class RecordProgress:
    """Counts what is converted, for the length of a `with` block. Warnings scroll by above the bar.

    Args:
        total: how many records there will be, those that are left out included.
        place: the line of Caffe's source that users know the log's line from, if any.
        done: how many of them an earlier run has done.
        line: what the log says, with `{count}`.
    """

    def __init__(
        self, total: int, place: str | None = None, *, done: int = 0, line: str = "Processed {count} files."
    ) -> None:
        self._place, self._line = place, line
        self._done, self._done_before = done, done
        self._began = self._shown_at = time.perf_counter()
        self._bar: Progress | None = None
        if sys.stderr.isatty():
            from rich.logging import RichHandler
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            from mgcaffe.tools.listeners.terminal import terminal_console

            console = terminal_console()
            replace_handler(RichHandler(logging.WARNING, console, show_time=False, show_path=False))
            columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[speed]}"), TimeRemainingColumn())
            self._bar = Progress(*columns, console=console)
            self._task = self._bar.add_task("", total=total, completed=done, speed="")

    def advance(self, records: int | None) -> None:
        """Take note of one more.

        Args:
            records: how many have been written by now; None where this one was left out.
        """
        self._done += 1
        if records is not None and records % _EVERY == 0:
            log_line(self._line.format(count=records), self._place)
        now = time.perf_counter()
        if self._bar is not None and now - self._shown_at > _REFRESH_S:
            speed = f"{(self._done - self._done_before) / (now - self._began):.0f} images/s"
            self._bar.update(self._task, completed=self._done, speed=speed)
            self._shown_at = now

    def __enter__(self) -> RecordProgress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done)
            self._bar.stop()
            start_logging(speaks=True)
