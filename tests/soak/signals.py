"""SIGINT to the launcher of three ranks at random moments: all stop at one iteration, and the run resumes."""

from __future__ import annotations

import random
import re
import signal
import tempfile
import time
from pathlib import Path

from tests.soak import Row, count
from tests.soak.jobs import RANKS, Job

NAME = "signals"
SEED = 23
FULL, TENTH = 20, 2
STOPPED = 75


def run(full: bool) -> list[Row]:
    """So many signals, one a job: every other one while the ranks are set up, the others while they train or test."""
    chance = random.Random(SEED)
    moments = [(number % 2 == 1, chance.uniform(0.0, 3.0)) for number in range(FULL if full else TENTH)]
    cases = (
        (f"{'set-up' if early else 'training'} + {delay:.2f} s", lambda e=early, d=delay: check(e, d))
        for early, delay in moments
    )
    return [count("SIGINT to the launcher: one iteration, code 75, resume goes on", cases)]


def check(early: bool, delay: float) -> str | None:
    """Interrupts a job and resumes it; what was wrong, or None."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job = Job(folder)
        # mpirun is there once the launcher has a child; then signals are translated.
        started = job.await_(
            lambda: bool(_children(job)) if early else bool(list(folder.glob("small_iter_40.solverstate")))
        )
        if not started:
            return f"it did not start: {job.end().output[-2000:]}"
        time.sleep(delay)
        job.process.send_signal(signal.SIGINT)
        result = job.end()
        if result.left_behind:
            return f"processes {result.left_behind} were left behind"
        if result.code != STOPPED:
            return f"exit code {result.code}: {result.output[-2000:]}"
        if "error: " in result.output:
            return f"an error: {result.output[-2000:]}"
        ends = {(folder / f"stopped.{rank}").read_text() for rank in range(RANKS)}
        if len(ends) != 1:
            return f"the ranks stopped at different places: {ends}"
        iteration = int(ends.pop().split()[0])
        last = iteration + 5
        again = Job(folder, ["--snapshot=auto"], max_iter=last).end()
        resumed = re.search(r"Resuming from small_iter_(\d+)", again.output)
        reached = {(folder / f"stopped.{rank}").read_text() for rank in range(RANKS)}
        if again.code != 0 or resumed is None or int(resumed[1]) != iteration:
            return f"resuming from iteration {iteration}: exit code {again.code}: {again.output[-2000:]}"
        if len(reached) != 1 or int(reached.pop().split()[0]) != last:
            return f"the resumed run did not end at {last}"
    return None


def _children(job: Job) -> list[int]:
    try:
        return [
            int(word) for word in Path(f"/proc/{job.process.pid}/task/{job.process.pid}/children").read_text().split()
        ]
    except OSError:
        return []
