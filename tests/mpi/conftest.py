"""Fixtures for tests that run under mpirun."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent


def _load_launch() -> ModuleType:
    """Import launch.py, which no package leads to (pytest runs with importmode importlib)."""
    name = "mgcaffe_tests_mpi_launch"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, HERE / "launch.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def launch() -> ModuleType:
    """The module launch.py: `run_mpi`, `MpiResult`, `parse_checks`."""
    module = _load_launch()
    if not module.MPIRUN.exists():
        pytest.skip(f"no mpirun beside {sys.executable}: pip install 'mgcaffe[mpi]'")
    return module


@pytest.fixture(scope="session")
def run_mpi(launch: ModuleType) -> Callable:
    """`run_mpi(arguments, n=2, timeout=60.0, environment=..., cwd=...) -> MpiResult`."""
    return launch.run_mpi
