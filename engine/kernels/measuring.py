"""Measures candidates in a process of its own, on a CPU.

What libraries keep of each candidate, such as oneDNN's primitives, half a MiB each, would stay in a process that goes
on to train, and lie between the net's values; and a candidate that crashes would end it.

The process reads from its standard input how many threads compute, the bound, and by text each `Asked`; it ends when
that is closed. Through a pipe it answers `None` once it can begin, and then an `Answer` for each text, in order.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

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

_PATIENCE_S = 10

_log = logging.getLogger(__name__)


class Answer(NamedTuple):
    """What became of a call.

    Attributes:
        measured: None where it could not be measured.
        logged: levels and messages.
    """

    measured: Measured | None
    logged: list[tuple[int, str]]


class MeasuringEnded(Exception):
    """The process ended before it had measured all, or could not be started; the text says how.

    Attributes:
        text: what it was measuring; None: it had not begun.
    """

    def __init__(self, message: str, text: str | None = None) -> None:
        super().__init__(message)
        self.text = text


def measure(asked: Mapping[str, Asked], bound: float) -> Generator[tuple[str, Measured], None, None]:
    """Yield by text what was measured, in order; log what was not, and what candidates were dropped for.

    The process ends with the caller, and is ended where this generator is closed.

    Args:
        asked: by text, what to measure.
        bound: as a `Contest` takes it.

    Raises:
        MeasuringEnded: the process did, or could not be started.
    """
    with contextlib.ExitStack() as after:
        reading, process = _start(after)
        text: str | None = None
        try:
            assert process.stdin is not None
            pickle.dump((torch.get_num_threads(), bound, dict(asked)), process.stdin)
            process.stdin.flush()
            pickle.load(reading)
            for text in asked:
                answer: Answer = pickle.load(reading)
                for level, message in answer.logged:
                    _log.log(level, "%s", message)
                if answer.measured is not None:
                    yield text, answer.measured
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            when = "before it could measure" if text is None else f"while it measured {text} of {asked[text].layer}"
            raise MeasuringEnded(f"the process that measures ended {when}, {_how(process)}", text) from None


def _start(after: contextlib.ExitStack) -> tuple[BinaryIO, subprocess.Popen[bytes]]:
    """Start the process, and return what its answers are read from; `after` ends it.

    In a session of its own it gets no signals that are meant for the caller.
    """
    try:
        answers, writing = os.pipe()
        reading = after.enter_context(os.fdopen(answers, "rb"))
        with os.fdopen(writing, "wb"), _on_all_cores():
            program = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import serve; serve({writing})"
            process = subprocess.Popen(
                [sys.executable or "", "-c", program],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[writing],
                start_new_session=True,
            )
    except OSError as error:
        raise MeasuringEnded(f"cannot start a process that measures: {error}") from None
    after.callback(_end, process)
    return reading, process


@contextlib.contextmanager
def _on_all_cores() -> Iterator[None]:
    """Let this thread run on each core that one of the process's threads may use.

    OpenMP may have bound it to one (OMP_PROC_BIND), which a process that it starts would inherit.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    mine = os.sched_getaffinity(0)
    cores = set(mine)
    for thread in Path("/proc/self/task").glob("*"):
        with contextlib.suppress(OSError):  # it has ended
            cores |= os.sched_getaffinity(int(thread.name))
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, mine)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    with contextlib.suppress(BrokenPipeError):
        assert process.stdin is not None
        process.stdin.close()


def _how(process: subprocess.Popen[bytes]) -> str:
    try:
        code = process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        return f"and did not exit within {_PATIENCE_S} s"
    return f"by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"with exit code {code}"


def serve(writing: int) -> None:
    """Be that process, and answer into this file descriptor."""
    with contextlib.suppress(OSError):  # where memory runs out the kernel shall end this process, not the net's
        Path("/proc/self/oom_score_adj").write_text("1000")
    keep_blocks()
    try:
        threads, bound, asked = pickle.load(sys.stdin.buffer)
    except (EOFError, pickle.UnpicklingError):  # the caller has ended
        os._exit(0)
    threading.Thread(target=_end_with_the_caller, daemon=True).start()
    torch.set_num_threads(threads)
    logger = logging.getLogger(Contest.__module__)
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    with os.fdopen(writing, "wb") as answers:
        _send(answers, None)
        for answer in answer_all(asked, bound):
            _send(answers, answer)
    os._exit(0)  # the thread is still reading


def _send(answers: BinaryIO, answer: Answer | None) -> None:
    pickle.dump(answer, answers)
    answers.flush()


def _end_with_the_caller() -> None:
    os.read(0, 1)
    os._exit(0)


def answer_all(asked: Mapping[str, Asked], bound: float) -> Iterator[Answer]:
    """Yield the answers, in order."""
    contest, log = Contest({}, bound), _Log()
    logger = logging.getLogger(Contest.__module__)
    logger.addHandler(log)
    try:
        for text, question in asked.items():
            contest.layer = question.layer
            try:
                contest.meet(OPERATIONS[question.operation], text, question.filled())
            except (RuntimeError, MemoryError) as failure:  # PyTorch's own errors, among them a lack of memory
                message = f"autotune: {question.layer}: not measured, by rule: {failure} ({text})"
                log.lines.append((logging.WARNING, message))
            yield Answer(contest.records.get(text), log.taken())
    finally:
        logger.removeHandler(log)


class _Log(logging.Handler):
    """Collects what is logged: levels and messages."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Collect the record's level and message."""
        self.lines.append((record.levelno, record.getMessage()))

    def taken(self) -> list[tuple[int, str]]:
        """Return what was collected since the last time."""
        lines, self.lines = self.lines, []
        return lines
