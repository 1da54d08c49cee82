"""Mutates every kind of input of every command: what comes of it is a result or one message, never a traceback.

A case is a valid input (a net of every layer type, a solver, a plan, costs, a trace, a log, a timeline, a data source,
a file of weights) with a few values changed, and a command that reads it. The command has to end by itself within
`LIMIT_S` of processor time, with an exit code that the input can cause, and with a message that has no traceback. All
of it runs in a child process with limited memory, so that a signal would be seen; `SEED:CASE` of a failure runs it
again:

python -m tests.soak.mutated_inputs SEED FIRST LAST
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from mgcaffe.errors import (
    EXIT_BAD_INPUT,
    EXIT_CANNOT_WRITE,
    EXIT_FAILED,
    EXIT_NOT_FINITE,
    EXIT_OK,
    EXIT_USAGE,
    EngineError,
)
from tests.soak import Row
from tests.soak.input_cases import Inputs, read_plan_file

NAME = "inputs"
CASES = 6000
SEED = 12
LIMIT_S = 10.0

_PER_CHILD = 500
_MAX_BYTES = 1 << 30
_ALLOWED = {EXIT_OK, EXIT_USAGE, EXIT_BAD_INPUT, EXIT_CANNOT_WRITE, EXIT_NOT_FINITE}


def run(full: bool) -> list[Row]:
    """All cases, or a twentieth of them."""
    cases = CASES if full else CASES // 20
    row, began, outcomes = Row("mutated inputs", cases), time.monotonic(), Counter[str]()
    first = 0
    while first < cases:
        last = min(cases, first + _PER_CHILD)
        command = [sys.executable, "-m", "tests.soak.mutated_inputs", str(SEED), str(first), str(last)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [line.split("\t", 2) for line in result.stdout.splitlines() if line.count("\t") >= 2]
        for number, verdict, about in lines:
            outcomes[verdict] += 1
            if verdict.startswith("!"):
                row.failures.append(f"{SEED}:{number} {verdict[1:]}: {about}")
        first = int(lines[-1][0]) + 1 if lines else first
        if result.returncode:
            row.failures.append(f"{SEED}:{first} ended the process with {result.returncode}: {result.stderr[-300:]}")
            first += 1
    row.note = ", ".join(f"{count} {what}" for what, count in sorted(outcomes.items()) if not what.startswith("!"))
    row.seconds = time.monotonic() - began
    return [row]


def main(seed: int, first: int, last: int) -> None:
    """Print a line for each case: its number, what came of it, and the command."""
    import torch

    from mgcaffe.tools import main as engine

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    limit_time()
    with tempfile.TemporaryDirectory() as name, inside(name):
        inputs = Inputs(Path(name))
        limit_memory()
        for number in range(first, last):
            numbers = random.Random(f"{seed}:{number}")
            kind = numbers.choice(inputs.kinds)
            inputs.restore()
            words, about = kind(numbers)
            verdict, text = outcome(engine.main if words[0] != "plan_file" else read_plan_file, words)
            shown = text.strip().replace("\n", " | ").replace("\t", " ")
            what = f"{kind.__name__.strip('_')}: engine {' '.join(words)[:100]}"
            print(
                number, verdict, f"{what} [{about}] {shown[-600:] if verdict[0] == '!' else ''}", sep="\t", flush=True
            )


@contextlib.contextmanager
def inside(folder: str) -> Any:
    """Make a folder the working directory."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def limit_time() -> None:
    """Let `outcome` end what takes too long."""
    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, _too_long)


def limit_memory() -> None:
    """Let this process have `_MAX_BYTES` more than it has now."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _MAX_BYTES, resource.RLIM_INFINITY))


class _TooLong(BaseException):
    """The case has taken `LIMIT_S`."""


def _too_long(number: int, frame: FrameType | None) -> None:
    raise _TooLong


def outcome(command: Callable[[list[str]], int], words: list[str], *, verdict: str = "") -> tuple[str, str]:
    """What came of a command, with `!` in front where it must not be, and what it wrote.

    Args:
        command: a function that gives an exit code.
        words: its arguments.
        verdict: what it may print besides results, with code 65 and no message.
    """
    out, errors = io.StringIO(), io.StringIO()
    handlers = logging.getLogger("mgcaffe").handlers[:]
    signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
    signal.setitimer(signal.ITIMER_REAL, 10 * LIMIT_S)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            code = command(words)
    except _TooLong:
        return f"!more than {LIMIT_S:.0f} s", ""
    except EngineError as error:  # of cases that call a function
        code = error.exit_code
        errors.write(f"error: {error}")
    except BaseException as error:
        return f"!{type(error).__name__}", str(error)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        logging.getLogger("mgcaffe").handlers[:] = handlers
    text = errors.getvalue()
    if "Traceback" in text or "internal error" in text or "_TooLong" in text:
        return "!a traceback", text
    if code == EXIT_FAILED and "out of memory" in text:
        return "out of memory", text
    if code not in _ALLOWED:
        return f"!code {code}", text
    messages = [line for line in text.splitlines() if line.startswith("error: ")]
    if code == EXIT_BAD_INPUT and verdict and verdict in out.getvalue():
        return verdict, text
    if code == EXIT_BAD_INPUT and len(messages) != 1:
        return f"!{len(messages)} messages", text
    if any(len(message) > 2000 for message in messages):
        return "!a message without end", text[:300]
    return f"code {code}", text


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
