"""One computing thread for the tests and the processes that they start, unless the user says otherwise; marks.

The tests' tensors are small, and idle OpenMP threads take the cores that ranks and data threads need.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from mgcaffe.engine.checks import said_once
from tests.support.mpirun import MPIRUN
from tests.support.paths import ROOT

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell has jobs in the background ignore it, and commands that tests start would do so too.
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

MPI = ROOT / "tests" / "mpi"


@pytest.fixture(autouse=True)
def _nothing_said() -> None:
    """Let each test hear the warnings that are said once a process."""
    said_once.forget()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m mpi`, do not even import files that have no such tests."""
    if config.getoption("markexpr") != "mpi" or collection_path.suffix != ".py" or MPI in collection_path.parents:
        return None
    return True if "mark.mpi" not in collection_path.read_text(encoding="utf-8") else None


def pytest_collection_finish() -> None:
    """Spare each test what grows with all that collecting them has loaded.

    A garbage collection looks at every object there is, 0.3 s long, but not at those that are frozen. And pytest
    attaches its handlers, six times a test, to each logger that does not propagate, of which PyTorch has forty.
    """
    gc.collect()
    gc.freeze()
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("torch") and isinstance(logger, logging.Logger):
            logger.propagate = True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all of tests/mpi as `mpi`, and skip what has this mark where there is no mpirun."""
    for item in items:
        if MPI in item.path.parents:
            item.add_marker(pytest.mark.mpi)
        if MPIRUN is None and item.get_closest_marker("mpi"):
            item.add_marker(pytest.mark.skip(reason=f"no mpirun beside {sys.executable}: pip install 'mgcaffe[mpi]'"))
