"""When a log's lines were written, in seconds since training began."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TextIO

from mgcaffe.errors import DataError
from mgcaffe.errors.file_names import refuse_device
from mgcaffe.tools.logs.clock import LogClock


def iteration_seconds(path: str) -> tuple[list[float], int]:
    """Return the time of each line that holds the word Iteration, and the number of those that have none.

    Raises:
        DataError: the log cannot be read, or does not say when training began.
    """
    clock = LogClock()
    start: datetime | None = None
    seconds = []
    without = 0
    with _opened(path) as lines:
        for line in lines:
            timed, text = clock.read(line)
            if start is None and timed and text.startswith("Solving "):
                start = clock.time
            elif "Iteration" in text:
                if timed and start is not None and clock.time is not None:
                    seconds.append((clock.time - start).total_seconds())
                else:
                    without += 1
    if start is None:
        raise DataError(
            f"log '{path}' has no line 'Solving ...' with a time", hint="it should be what Caffe or engine train wrote"
        )
    return seconds, without


@contextmanager
def _opened(path: str) -> Iterator[TextIO]:
    try:
        refuse_device(path)
        with Path(path).open(encoding="utf-8", errors="replace") as lines:
            yield lines
    except OSError as error:
        raise DataError(f"log '{path}' cannot be read: {error.strerror}") from error
