"""Runs the commands that `tests/support/standing_ranks.py` sends through a pipe to each rank of an mpirun."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mgcaffe.comm.transport.environment import detect
from mgcaffe.engine.checks import said_once
from mgcaffe.tools.main import main
from tests.support.programs import faulty_engine


def run_all(folder: Path, rank: int) -> None:
    """Run every command as it comes."""
    with (folder / f"commands.{rank}").open() as pipe:
        for line in pipe:
            command = json.loads(line)
            code = run(Path(command["place"]), rank, command)
            part = Path(command["place"], f"part.{rank}")
            part.write_text(str(code))
            part.rename(part.with_name(f"code.{rank}"))  # with all that it holds


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
