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
    """Puts the fault where the work is done."""
    from mgcaffe.engine.graph.node import Node
    from mgcaffe.engine.layer import TEST
    from mgcaffe.engine.layers.inner_product import InnerProduct
    from mgcaffe.engine.net import Net
    from mgcaffe.solvers import built_solver
    from mgcaffe.solvers.snapshots.resuming import RunState

    counted = 0

    def count() -> None:
        nonlocal counted
        counted += 1
        if counted == occurrence:
            strike(how)

    def before(owner: object, name: str) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def changed(*arguments: Any, **options: Any) -> Any:
            count()
            return original(*arguments, **options)

        setattr(owner, name, changed)

    def in_products(name: str, *, tests: bool) -> None:
        """Strike where an InnerProduct computes, by its code or by a replay of it."""
        original = getattr(Net, name)

        @functools.wraps(original)
        def changed(net: Net, node: Node, compute: Callable[[Node], Any], *others: Any) -> Any:
            def strike_and_compute(node: Node) -> Any:
                if isinstance(net.nodes[node.index].layer, InnerProduct) and (net.phase == TEST) == tests:
                    count()
                return compute(node)

            return original(net, node, strike_and_compute, *others)

        setattr(Net, name, changed)

    if point == "set-up":
        before(built_solver, "build_nets")
    elif point in ("forward", "backward"):
        in_products(f"run_{point}", tests=False)
    elif point == "test":
        in_products("run_forward", tests=True)
    else:
        before(RunState, "progress")


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
