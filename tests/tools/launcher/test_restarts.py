"""When a job is started again, after how long, and how often."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mgcaffe.tools.launcher.restarts import Restarts


def test_a_job_that_died_is_started_again_with_its_own_flags(run):
    body = """
    if Path("started").read_text() == "xx": record.finish(status.ENDED, 0); sys.exit(0)
    os.kill(os.getpid(), signal.SIGKILL)
    """
    code, said = run(body, "--max_restarts=3", "--schedule=wfbp")
    assert code == 0
    assert "Exit code 69: starting again in 0.1 s" in said and "(restart 1 of 3)" in said
    assert Path("started").read_text() == "xx"
    command, restarted, *others = Path("words").read_text().split()
    assert (
        command == "train" and restarted.startswith("--restarted=") and others == ["--schedule=wfbp", "solver.prototxt"]
    )


def test_a_bad_prototxt_is_not_tried_again(run):
    code, said = run("record.finish(status.ENDED, 65); sys.exit(65)", "--max_restarts=3")
    assert code == 65 and Path("started").read_text() == "x"
    assert "would come again" in said


def test_restarts_are_limited_and_wait_longer_each_time():
    restarts = Restarts(8)
    delays = [restarts.delay_after(69) for _ in range(9)]
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60, None]
    assert "restart 8 of 8" in restarts.announce(69, 60)
    assert restarts.why_not(69) == "Exit code 69 after 8 of 8 restarts: giving up"


def test_a_clock_that_is_set_back_makes_no_snapshot_of_this_run_older_than_it(monkeypatch):
    wall, steady = [1000.0], [50.0]
    monkeypatch.setattr(time, "time", lambda: wall[0])
    monkeypatch.setattr(time, "monotonic", lambda: steady[0])
    restarts = Restarts(1)
    steady[0] += 20
    for now, since in [(1020.0, 1000.0), (920.0, 900.0), (5000.0, 1000.0)]:  # as it was, set back, set forward
        wall[0] = now
        assert restarts.words(["train"]) == [f"--restarted={since:.3f}", "train"]


@pytest.mark.parametrize("code", [0, 2, 65, 71, 73, 75, 76])
def test_what_would_come_again_is_not_started_again(code):
    restarts = Restarts(3)
    assert restarts.delay_after(code) is None
    assert bool(restarts.why_not(code)) == (code not in (0, 75))


@pytest.mark.parametrize("code", [1, 69, 70])
def test_what_may_pass_is_started_again(code):
    assert Restarts(1).delay_after(code) == 1
