"""Log lines with glog's prefix, since people's parsers of Caffe's logs read it.

    I1121 01:27:10.123456 12345 solver.cpp:228] Iteration 100, lr = 0.00992565

Everything goes through the standard logging module under the name `mgcaffe`, so warnings of every package
come out as W lines. A record may say which of Caffe's source lines it stands for
(`extra={"place": "solver.cpp:228"}`).
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from typing import TextIO

LOGGER_NAME = "mgcaffe"
_LETTERS = ((logging.CRITICAL, "F"), (logging.ERROR, "E"), (logging.WARNING, "W"), (logging.NOTSET, "I"))


class GlogFormatter(logging.Formatter):
    """Formats records as glog does: one prefix, also in front of a message of several lines."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as text without a newline at its end."""
        letter = next(letter for level, letter in _LETTERS if record.levelno >= level)
        whole = int(record.created)
        clock = time.strftime("%m%d %H:%M:%S", time.localtime(whole))
        micros = int((record.created - whole) * 1e6)
        place = getattr(record, "place", None) or f"{record.filename}:{record.lineno}"
        prefix = f"{letter}{clock}.{micros:06d} {threading.get_native_id():5d} {place}] "
        return prefix + record.getMessage()


def start_logging(speaks: bool, stream: TextIO | None = None) -> logging.Logger:
    """Sends everything that `mgcaffe` logs to standard error, in glog's form.

    Args:
        speaks: False on every rank but 0, which keeps silent.
        stream: takes the lines instead of standard error.
    """
    handler: logging.Handler = logging.StreamHandler(stream or sys.stderr) if speaks else logging.NullHandler()
    handler.setFormatter(GlogFormatter())
    return replace_handler(handler)


def replace_handler(handler: logging.Handler) -> logging.Logger:
    """Makes `handler` the only one that hears of `mgcaffe`."""
    logger = logging.getLogger(LOGGER_NAME)
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logging.captureWarnings(False)
    return logger


def log_line(text: str, place: str | None = None, level: int = logging.INFO) -> None:
    """Logs `text`; `place` is the file and line of Caffe's source that users know the line from."""
    extra = {"place": place} if place else None
    logging.getLogger(LOGGER_NAME).log(level, "%s", text, extra=extra, stacklevel=2)


def number(value: float) -> str:
    """A number as C++ streams print it by default: six significant digits."""
    return f"{value:g}"
