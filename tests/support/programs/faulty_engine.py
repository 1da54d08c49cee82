"""`engine` with a fault in it, as the ranks of `tests/soak/jobs.py` and of tests/mpi run it.

FAULT=rank:point:how:occurrence     strike in this rank when it comes to the point for the so-manieth time
RECORD=folder                       leave `stopped.<rank>` there: the iteration at which training ended, and a hash

Points: set-up, forward, backward, test, snapshot. How: kill, segv, raise, exit, stop.
"""

from __future__ import annotations

import functools
import hashlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mgcaffe.comm.transport.environment import detect
from mgcaffe.tools.running.loading import loading


def strike(how: str) -> None:
    """Does it, after writing down when."""
    Path(os.environ["RECORD"], "struck").write_text(str(time.time()))
    if how == "raise":
        raise RuntimeError("struck")
    if how == "exit":
        os._exit(3)
    os.kill(os.getpid(), {"kill": signal.SIGKILL, "segv": signal.SIGSEGV, "stop": signal.SIGSTOP}[how])


def install(point: str, how: str, occurrence: int) -> None:
    """Puts the fault into the class that does the work."""
    from mgcaffe.engine.layer import TEST
    from mgcaffe.engine.layers.inner_product import InnerProduct
    from mgcaffe.solvers import built_solver
    from mgcaffe.solvers.snapshots.resuming import RunState

    counted = 0

    def before(owner: object, name: str, applies: Callable[[Any], bool]) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def changed(self: Any, *arguments: Any, **options: Any) -> Any:
            nonlocal counted
            if applies(self):
                counted += 1
                if counted == occurrence:
                    strike(how)
            return original(self, *arguments, **options)

        setattr(owner, name, changed)

    if point == "set-up":
        before(built_solver, "build_nets", lambda _: True)
    elif point == "forward":
        before(InnerProduct, "forward", lambda layer: layer.context.phase != TEST)
    elif point == "backward":
        before(InnerProduct, "backward", lambda _: True)
    elif point == "test":
        before(InnerProduct, "forward", lambda layer: layer.context.phase == TEST)
    else:
        before(RunState, "progress", lambda _: True)


def record(rank: int) -> None:
    """Has the solver write down where it ended."""
    with loading():
        from mgcaffe.solvers.solver import Solver

    solve = Solver.solve

    def solve_and_tell(self: Solver) -> None:
        solve(self)
        digest = hashlib.sha256(self.net.arena.data.numpy().tobytes()).hexdigest()
        Path(os.environ["RECORD"], f"stopped.{rank}").write_text(f"{self.iteration} {digest}")

    Solver.solve = solve_and_tell  # type: ignore[method-assign]


def main() -> int:
    """Runs `engine` with this process's arguments."""
    from mgcaffe.tools import main as engine
    from mgcaffe.tools.running import rank_watch

    rank = detect().rank
    original = rank_watch.RankWatch.__init__

    def watch(self: Any, flags: Any) -> None:
        # Torch is loaded only once the rank is watched, as without faults.
        original(self, flags)
        record(rank)
        if fault := os.environ.get("FAULT"):
            struck, point, how, occurrence = fault.split(":")
            if int(struck) == rank:
                install(point, how, int(occurrence))

    rank_watch.RankWatch.__init__ = watch  # type: ignore[method-assign]
    return engine.main()


if __name__ == "__main__":
    sys.exit(main())
