"""SIGINT to the launcher of three ranks at random moments: all stop at one iteration, where the next job goes on."""

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
    with tempfile.TemporaryDirectory() as name:
        series = _Series(Path(name))
        cases = [
            (f"{'set-up' if early else 'training'} + {delay:.2f} s", lambda e=early, d=delay: series.interrupt(e, d))
            for early, delay in moments
        ]
        row = count("SIGINT to the launcher: one iteration, code 75, resume goes on", cases)
        problem = series.end()
        row.failures += [f"at the end: {problem}"] if problem else []
        return [row]


class _Series:
    """Jobs in one folder, each going on where a signal has stopped the one before."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stopped_at = 0

    def interrupt(self, early: bool, delay: float) -> str | None:
        """Interrupt a job, so long after its start or its first snapshot; what was wrong, or None."""
        before = {path.name for path in self._folder.glob("*.solverstate")}
        job = Job(self._folder, ["--snapshot=auto"])

        def is_there() -> bool:
            # mpirun is there once the launcher has a child; then signals are translated.
            if early:
                return bool(_children(job))
            return any(path.name not in before for path in self._folder.glob("*.solverstate"))

        if not job.await_(is_there):
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
        return self._resumed(result.output) or self._ended_together()

    def end(self) -> str | None:
        """Run the last job to its end, five iterations on; what was wrong, or None."""
        last = self._stopped_at + 5
        result = Job(self._folder, ["--snapshot=auto"], max_iter=last).end()
        if result.code != 0:
            return f"exit code {result.code}: {result.output[-2000:]}"
        problem = self._resumed(result.output) or self._ended_together()
        if problem is None and self._stopped_at != last:
            return f"the resumed run did not end at {last}"
        return problem

    def _resumed(self, output: str) -> str | None:
        """Return what is wrong with where a job has begun: at the iteration at which the one before has stopped."""
        resumed = re.search(r"Resuming from small_iter_(\d+)", output)
        if (int(resumed[1]) if resumed else 0) != self._stopped_at:
            return f"it did not resume from iteration {self._stopped_at}: {output[:2000]}"
        return None

    def _ended_together(self) -> str | None:
        """Take where the ranks have stopped; return what is wrong with it."""
        ends = {(self._folder / f"stopped.{rank}").read_text() for rank in range(RANKS)}
        if len(ends) != 1:
            return f"the ranks stopped at different places: {ends}"
        self._stopped_at = int(ends.pop().split()[0])
        return None


def _children(job: Job) -> list[int]:
    try:
        return [
            int(word) for word in Path(f"/proc/{job.process.pid}/task/{job.process.pid}/children").read_text().split()
        ]
    except OSError:
        return []
