"""Measures candidates in a process of its own, on a CPU.

What libraries keep of each candidate, such as oneDNN's primitives, half a MiB each, would stay in a process that goes
on to train, and lie between the net's values; and a candidate that crashes would end it.

    to the process       how many threads compute, the bound, and by text each `Asked`; open as long as the caller waits
    from it, one a text  (text, `Measured`, what was logged meanwhile: level and message)
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import BinaryIO

import torch

from mgcaffe.engine.heap import keep_blocks
from mgcaffe.engine.kernels import convolution_data, convolution_forward, convolution_weight, linear_ways
from mgcaffe.engine.kernels.choice.choices import Measured
from mgcaffe.engine.kernels.choice.contest import Contest
from mgcaffe.engine.kernels.choice.survey import Asked

OPERATIONS = {
    each.name: each
    for each in (
        convolution_forward.FORWARD,
        convolution_data.BACKWARD_DATA,
        convolution_weight.BACKWARD_WEIGHT,
        linear_ways.FORWARD,
        linear_ways.BACKWARD_DATA,
        linear_ways.ADD_PRODUCT,
    )
}
"""All that there is a choice for, by name."""

Answer = tuple[str, Measured, list[tuple[int, str]]]

_log = logging.getLogger(__name__)


class MeasuringEnded(Exception):
    """The process ended before it had measured all; the text says how, and what it was about."""


def measure(asked: Mapping[str, Asked], bound: float) -> Iterator[tuple[str, Measured]]:
    """Yield by text what was measured, in order; what candidates were dropped for is logged.

    The process ends with the caller, and is ended where the caller stops.

    Args:
        asked: by text, what to measure.
        bound: as a `Contest` takes it.

    Raises:
        MeasuringEnded: the process did, or could not be started.
    """
    waiting = list(asked)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-c", f"from {__name__} import serve; serve()"]
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    except OSError as error:
        raise MeasuringEnded(f"cannot start {sys.executable}: {error.strerror or error}") from None
    assert process.stdin is not None and process.stdout is not None
    try:
        try:
            pickle.dump((torch.get_num_threads(), bound, dict(asked)), process.stdin)
            process.stdin.flush()
            while waiting:
                text, measured, logged = pickle.load(process.stdout)
                for level, message in logged:
                    _log.log(level, "%s", message)
                waiting.remove(text)
                yield text, measured
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            raise MeasuringEnded(f"{_how_ended(process.wait())} while it measured {waiting[0]}") from None
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def _how_ended(code: int) -> str:
    if code < 0:
        return f"the process that measures was ended by signal {-code} ({signal.Signals(-code).name})"
    return f"the process that measures ended with exit code {code}"


def serve() -> None:
    """Be that process: measure what the standard input asks for. What libraries print goes to the standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the caller as well, which ends this process
    keep_blocks()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    threads, bound, asked = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_the_caller, args=(sys.stdin.buffer,), daemon=True).start()
    torch.set_num_threads(threads)
    logger = logging.getLogger(Contest.__module__)
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    for answer in answer_all(asked, bound):
        pickle.dump(answer, answers)
        answers.flush()


def _end_with_the_caller(questions: BinaryIO) -> None:
    questions.read()
    os._exit(0)


def answer_all(asked: Mapping[str, Asked], bound: float) -> Iterator[Answer]:
    """Yield the answers, in order."""
    contest, log = Contest({}, bound), _Log()
    logger = logging.getLogger(Contest.__module__)
    logger.addHandler(log)
    try:
        for text, question in asked.items():
            contest.layer = question.layer
            contest.meet(OPERATIONS[question.operation], text, question.filled())
            yield text, contest.records[text], log.taken()
    finally:
        logger.removeHandler(log)


class _Log(logging.Handler):
    """Collects what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Collect the record's level and message."""
        self._lines.append((record.levelno, record.getMessage()))

    def taken(self) -> list[tuple[int, str]]:
        """Return what was collected since the last time."""
        lines, self._lines = self._lines, []
        return lines
