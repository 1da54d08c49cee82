"""Log lines with glog's prefix, since people's parsers of Caffe's logs read it.

    I1121 01:27:10.123456 12345 solver.cpp:228] Iteration 100, lr = 0.00992565

Everything goes through the standard logging module under the name `mgcaffe`, so warnings of every package
come out as W lines. A record may say which of Caffe's source lines it stands for
(`extra={"place": "solver.cpp:228"}`), and that it is shown whichever rank it comes from
(`extra={"from_every_rank": True}`).
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from typing import TextIO

from mgcaffe.tools.listeners.log_files import LogFile, open_log_file

LOGGER_NAME = "mgcaffe"
_LETTERS = ((logging.CRITICAL, "F"), (logging.ERROR, "E"), (logging.WARNING, "W"), (logging.NOTSET, "I"))


class GlogFormatter(logging.Formatter):
    """Formats records as glog does: one prefix, also in front of a message of several lines.

    Args:
        start: what every message begins with.
    """

    def __init__(self, start: str = "") -> None:
        super().__init__()
        self._start = start

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text without a newline at its end."""
        letter = next(letter for level, letter in _LETTERS if record.levelno >= level)
        whole = int(record.created)
        clock = time.strftime("%m%d %H:%M:%S", time.localtime(whole))
        micros = int((record.created - whole) * 1e6)
        place = getattr(record, "place", None) or f"{record.filename}:{record.lineno}"
        prefix = f"{letter}{clock}.{micros:06d} {threading.get_native_id():5d} {place}] "
        text = prefix + self._start + record.getMessage()
        # Names of files may hold bytes that are no UTF-8, as surrogates, which no log file takes.
        return text.encode("utf-8", "backslashreplace").decode()


def start_logging(
    speaks: bool, stream: TextIO | None = None, *, rank: int = 0, log_dir: str | None = None
) -> logging.Logger:
    """Send everything that `mgcaffe` logs to standard error, in glog's form.

    Args:
        speaks: False on every rank but 0: these show nothing but what must be known of every rank.
        stream: takes the lines instead of standard error.
        rank: this rank's number.
        log_dir: a folder where this rank writes a log file of its own as well.

    Raises:
        EngineError: (exit code 73) the log file cannot be written.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(GlogFormatter() if speaks else GlogFormatter(f"rank {rank}: "))
    if not speaks:
        handler.addFilter(lambda record: getattr(record, "from_every_rank", False))
    logger = logging.getLogger(LOGGER_NAME)
    close_log_file()
    replace_handler(handler)
    if log_dir:
        file = open_log_file(log_dir, rank)
        file.setFormatter(GlogFormatter())
        logger.addHandler(file)
    return logger


def close_log_file() -> None:
    """End this rank's log file, if there is one."""
    logger = logging.getLogger(LOGGER_NAME)
    for file in [known for known in logger.handlers if isinstance(known, LogFile)]:
        logger.removeHandler(file)
        file.close()


def replace_handler(handler: logging.Handler) -> logging.Logger:
    """Make `handler` the only one, beside a log file, of the logger `mgcaffe`."""
    logger = logging.getLogger(LOGGER_NAME)
    logger.handlers[:] = [handler, *(known for known in logger.handlers if isinstance(known, LogFile))]
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logging.captureWarnings(False)
    return logger


def log_line(text: str, place: str | None = None, level: int = logging.INFO) -> None:
    """Log `text`; `place` is the file and line of Caffe's source that users know the line from."""
    extra = {"place": place} if place else None
    logging.getLogger(LOGGER_NAME).log(level, "%s", text, extra=extra, stacklevel=2)


def number(value: float) -> str:
    """Return a number as C++ streams print it by default: six significant digits."""
    return f"{value:g}"
