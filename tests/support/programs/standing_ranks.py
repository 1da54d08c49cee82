"""Runs the commands that `tests/support/standing_ranks.py` writes into a folder, on the ranks of an mpirun."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mgcaffe.comm.transport.environment import detect
from mgcaffe.engine.checks import said_once
from mgcaffe.tools.main import main
from tests.support.programs import faulty_engine
from tests.support.standing_ranks import write_whole


def run_all(folder: Path, rank: int) -> None:
    """Run every command as it comes, to the empty one."""
    for number in itertools.count(1):
        place = folder / str(number)
        while not (place / "command").exists():
            time.sleep(0.01)
        command = json.loads((place / "command").read_text())
        if command is None:
            return
        write_whole(place / f"code.{rank}", run(place, rank, command))


def run(place: Path, rank: int, command: Mapping[str, Any]) -> int:
    """Run one command as a process of its own would, and return its exit code."""
    said_once.forget()
    os.chdir(command["cwd"])
    before = dict(os.environ)
    os.environ.update(command["environment"])
    try:
        with printing_into(place), recording(rank) if "RECORD" in os.environ else contextlib.nullcontext():
            return main(command["words"])
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def recording(rank: int) -> Iterator[None]:
    """Have a solver write down where it ended, as in `faulty_engine`."""
    from mgcaffe.solvers.solver import Solver

    solve = Solver.solve
    faulty_engine.record(rank)
    try:
        yield
    finally:
        Solver.solve = solve  # type: ignore[method-assign]


@contextlib.contextmanager
def printing_into(place: Path) -> Iterator[None]:
    """Have all that is printed go to files, those of all ranks to the same."""
    kept = {}
    for number, name in ((1, "stdout"), (2, "stderr")):
        kept[number] = os.dup(number)
        file = os.open(place / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, copy in kept.items():
            os.dup2(copy, number)
            os.close(copy)


if __name__ == "__main__":
    run_all(Path(sys.argv[1]), detect().rank)
