"""What the tests of tools share: the `engine` command with a small net, and a process that is left as it was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.engine_command import Engine, process_as_before


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """The command, in a folder with the small net and its solver."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    engine = Engine(tmp_path)
    engine.write("net.prototxt", engine.net)
    engine.write("solver.prototxt", engine.solver)
    return engine


@pytest.fixture(autouse=True)
def _process_as_before():
    with process_as_before():
        yield


@pytest.fixture
def no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the variables that make this process a part of an MPI or Slurm job."""
    for name in (*os.environ,):
        if name.startswith(("OMPI_", "PMIX_", "SLURM_", "PMI_", "MGCAFFE_")):
            monkeypatch.delenv(name)
