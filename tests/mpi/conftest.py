"""Fixtures for tests that run under mpirun."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from tests.support import mpirun


@pytest.fixture(scope="session")
def launch() -> ModuleType:
    """The module mpirun.py: `run_mpi`, `start_mpi`, `parse_checks`."""
    return mpirun


@pytest.fixture(scope="session")
def run_mpi() -> Callable:
    """`run_mpi(arguments, n=2, timeout=60.0, environment=..., cwd=...) -> JobResult`."""
    return mpirun.run_mpi
