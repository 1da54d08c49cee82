"""Fixtures for the tests of the launcher: an mpirun that only says its version, and jobs of one process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mgcaffe.tools.launcher import command as launcher_command
from mgcaffe.tools.launcher import launcher
from tests.support.launcher import parse, rank_script


@pytest.fixture(autouse=True)
def _alone(no_job: None) -> None:
    """No test here is a part of a job."""


@pytest.fixture
def mpirun(tmp_path, monkeypatch):
    """`mpirun(version)` puts an mpirun on the PATH, and this Python elsewhere."""

    def make(version):
        path = tmp_path / "bin" / "mpirun"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\necho '{version}'\n")
        path.chmod(0o755)
        return str(path)

    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setattr(launcher_command.sysconfig, "get_path", lambda name: "/nowhere")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(launcher_command.shutil, "which", _which_in(tmp_path))
    return make


def _which_in(folder):
    from shutil import which

    def only_ours(name, path):
        found = which(name, path=path)
        return found if found and found.startswith(str(folder)) else None

    return only_ours


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """`run(body, words)` launches one process that runs `body`; gives the exit code and what was printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launcher, "start_logging", lambda speaks: None)
    monkeypatch.setattr(launcher, "log_line", lambda text: print(text, file=sys.stderr, flush=True))
    monkeypatch.setattr("mgcaffe.tools.launcher.restarts._MAX_DELAY_S", 0.1)

    def launch(body, *words):
        Path("rank.py").write_text(rank_script(body))
        code = launcher.launch(parse(*words), [sys.executable, "rank.py"])
        return code, capfd.readouterr().err

    return launch
