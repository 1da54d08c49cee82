"""One of three ranks is killed, crashes, raises, exits or is stopped, in every part of a run.

The job must end in ten seconds (a stopped one: after --stall_timeout, with a warning before), with the documented
exit code, a last block that names rank, host, iteration and what it was doing, and no process left.
"""

from __future__ import annotations

import random
import socket
import tempfile
import time
from pathlib import Path

from tests.soak import Row, count
from tests.soak.jobs import RANKS, Job

NAME = "faults"
SEED = 17
STALL_S = 20.0
LIMIT_S = 10.0

CODES = {"kill": 69, "segv": 69, "raise": 1, "exit": 69, "stop": 70}
DOING = {
    "set-up": "setting up",
    "forward": "forward, layer 'ip",
    "backward": "backward, layer 'ip",
    "test": "test net #0",
    "snapshot": "snapshot",
}


def run(full: bool) -> list[Row]:
    """Every fault at every point, or a tenth of these."""
    cases = all_cases()
    if not full:
        cases = random.Random(SEED).sample(cases, round(len(cases) / 10))
    return [count("a rank dies or stops: ended in time, named", ((name, lambda n=name: check(n)) for name in cases))]


def all_cases() -> list[str]:
    """`rank:point:how:occurrence` of all faults."""
    chance = random.Random(SEED)
    latest = {"set-up": 1, "snapshot": 3}
    return [
        f"{chance.randrange(RANKS)}:{point}:{how}:{chance.randint(1, latest.get(point, 60))}"
        for point in DOING
        for how in CODES
    ]


def check(fault: str) -> str | None:
    """Runs a job with a fault in it; what was wrong with its end, or None."""
    rank, point, how, _ = fault.split(":")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job = Job(folder, [f"--stall_timeout={STALL_S if how == 'stop' else 600}"], fault=fault)
        result = job.end()
        ended = time.time()
        if not (folder / "struck").exists():
            return f"the fault did not happen (exit code {result.code}): {result.output[-2000:]}"
        seconds = ended - float((folder / "struck").read_text())
    block = result.output[result.output.rfind("error: ") :]
    limit = LIMIT_S + (STALL_S if how == "stop" else 0.0)
    wanted = [f"rank {rank} of {RANKS} on {socket.gethostname()}", "iteration: ", DOING[point]]
    if how == "stop":
        wanted.append("is stopped by a signal")
    problems = [f"'{words}' is missing from the last block" for words in wanted if words not in block]
    if result.code != CODES[how]:
        problems.append(f"exit code {result.code}, not {CODES[how]}")
    if seconds > limit:
        problems.append(f"ended after {seconds:.1f} s")
    if how == "stop" and "warning: no progress" not in result.output:
        problems.append("no warning before the end")
    if result.left_behind:
        problems.append(f"processes {result.left_behind} were left behind")
    return f"{'; '.join(problems)}:\n{result.output[-2000:]}" if problems else None
