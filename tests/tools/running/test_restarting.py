"""From which snapshot a run goes on once the launcher has started it again."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace

import pytest

from mgcaffe.comm import SingleCommunicator
from mgcaffe.tools.running.restarting import snapshot_after_restart
from tests.support.solverkit import LEAST_SQUARES, data_layer, make_solver, solver_source, write_data

_HOUR = 3600


@pytest.fixture
def run(tmp_path):
    """Gives a function that trains, with snapshots of the iterations 2 and 4, and one that looks for one."""
    net, fields = data_layer(write_data(tmp_path), 5) + LEAST_SQUARES, "snapshot: 2"

    def train(more=""):
        with make_solver(net, f"{fields} {more}", tmp_path) as solver:
            solver.step(4)

    def look(restarted, snapshot=None):
        flags = SimpleNamespace(restarted=restarted, snapshot=snapshot)
        return snapshot_after_restart(flags, solver_source(net, fields, tmp_path), SingleCommunicator(), [])

    return train, look


def age(folder):
    """Let all snapshots in a folder be an hour old."""
    for path in folder.glob("net_iter_*"):
        os.utime(path, (time.time() - _HOUR,) * 2)


def test_it_goes_on_from_the_newest_one_that_the_run_itself_has_written(run, tmp_path):
    train, look = run
    assert look(time.time(), "given.solverstate") == "given.solverstate"
    train()
    newest = f"{tmp_path}/net_iter_4.solverstate"
    assert look(None, "given.solverstate") == "given.solverstate"  # the first start
    assert look(time.time() - _HOUR, "given.solverstate") == newest
    age(tmp_path)
    started = time.time() - _HOUR / 2
    assert look(started) is None
    assert look(started, "auto") == newest
    train("random_seed: 8")
    assert look(started) == newest


def test_one_of_the_same_bytes_as_an_earlier_runs_is_the_runs_own(run, tmp_path):
    """Its files stay as they are, and its manifest alone is new."""
    train, look = run
    train()
    age(tmp_path)
    train()
    assert look(time.time() - _HOUR / 2) == f"{tmp_path}/net_iter_4.solverstate"
