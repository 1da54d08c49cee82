"""One computing thread for the tests and the processes that they start, unless the user says otherwise; marks.

The tests' tensors are small, and idle OpenMP threads take the cores that ranks and data threads need.
"""

from __future__ import annotations

import functools
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from mgcaffe.engine.checks import said_once
from tests.support.mpirun import MPIRUN
from tests.support.paths import ROOT
from tests.support.standing_ranks import StandingRanks

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell has jobs in the background ignore it, and commands that tests start would do so too.
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

MPI = ROOT / "tests" / "mpi"

_frozen_modules = 0
"""How many modules were loaded when garbage collection last got to pass over them."""


@pytest.fixture(autouse=True)
def _nothing_said() -> None:
    """Let each test hear the warnings that are said once a process."""
    said_once.forget()


@pytest.fixture(scope="session")
def mpi_ranks() -> Iterator[Callable[[int], StandingRanks]]:
    """`mpi_ranks(2)` are two ranks that run the commands of all tests of this process."""
    ranks: dict[int, StandingRanks] = {}
    yield lambda size: ranks.setdefault(size, StandingRanks(size))
    for each in ranks.values():
        each.close()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m mpi`, do not even import files that have no such tests."""
    if config.getoption("markexpr") != "mpi" or collection_path.suffix != ".py" or MPI in collection_path.parents:
        return None
    return True if "mark.mpi" not in collection_path.read_text(encoding="utf-8") else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while all that is loaded stays: a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Spare each test what grows with all that collecting them has loaded.

    Pytest attaches its handlers, six times a test, to each logger that does not propagate, of which PyTorch has forty.
    """
    _freeze()
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("torch") and isinstance(logger, logging.Logger):
            logger.propagate = True


def pytest_runtest_logfinish() -> None:
    """Spare the next tests what this one was the first to load, such as `torch.export`."""
    if len(sys.modules) >= _frozen_modules + 100:
        _freeze()


def _freeze() -> None:
    """Let later garbage collections pass over what is loaded by now; otherwise each looks at all of it, 0.3 s long."""
    global _frozen_modules
    gc.collect()
    gc.freeze()
    _frozen_modules = len(sys.modules)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all of tests/mpi as `mpi`, and skip what has this mark where there is no mpirun."""
    is_in_mpi = functools.cache(lambda path: MPI in path.parents)
    for item in items:
        if is_in_mpi(item.path):
            item.add_marker(pytest.mark.mpi)
        if MPIRUN is None and item.get_closest_marker("mpi"):
            item.add_marker(pytest.mark.skip(reason=f"no mpirun beside {sys.executable}: pip install 'mgcaffe[mpi]'"))
