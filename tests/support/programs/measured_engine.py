"""`engine` that writes down what each rank holds as it trains, as `tests/soak/steady.py` runs it.

RECORD=folder    rank r appends "iteration bytes files" to `held.<r>` there, after iterations 5, 15, 25 and so on

No snapshot is being written then, whose copy is held for a moment. malloc first hands back what it only keeps for
later: of LeNet some 10 MiB, which otherwise come and go as the threads take turns, so that a run of 1,000 iterations
looks as if it grew, or shrank, by up to 5 MiB.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Any

from mgcaffe.comm.transport.environment import detect
from mgcaffe.tools.running.loading import loading

EVERY, FIRST = 10, 5
_PAGE = os.sysconf("SC_PAGE_SIZE")


def held() -> tuple[int, int]:
    """Resident bytes of this process, and its open files."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's; without it memory is measured as it is
    if trim is not None:
        trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * _PAGE, sum(1 for _ in Path("/proc/self/fd").iterdir())


def record(path: Path) -> None:
    """Has the solver write it down."""
    with loading():
        from mgcaffe.solvers.solver import Solver

    end = Solver._end

    def end_and_measure(self: Solver, *arguments: Any, **options: Any) -> None:
        end(self, *arguments, **options)
        if self.iteration % EVERY == FIRST:
            memory, files = held()
            with path.open("a") as file:
                file.write(f"{self.iteration} {memory} {files}\n")

    Solver._end = end_and_measure  # type: ignore[method-assign]


def main() -> int:
    """Runs `engine` with this process's arguments."""
    from mgcaffe.tools import main as engine

    record(Path(os.environ["RECORD"], f"held.{detect().rank}"))
    return engine.main()


if __name__ == "__main__":
    sys.exit(main())
