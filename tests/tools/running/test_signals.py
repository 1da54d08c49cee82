"""What signals and the stop file request of the solver."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from mgcaffe.errors import UsageError
from mgcaffe.tools.running.signals import Requests, StopFile


class RecordingTarget:
    """A solver that records what is requested of it."""

    def __init__(self):
        self.heard = []

    def request_stop(self):
        self.heard.append("stop")

    def request_snapshot(self):
        self.heard.append("snapshot")


@pytest.fixture
def requests():
    # A shell that starts the tests in the background has them ignore SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    requests = Requests()
    yield requests
    requests.restore()
    signal.signal(signal.SIGINT, before)


def test_signals_ask_the_solver_to_stop_or_to_take_a_snapshot(requests):
    solver = RecordingTarget()
    requests.listen("stop", "snapshot")
    requests.attach(solver)
    for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGINT):
        signal.raise_signal(number)
    assert solver.heard == ["snapshot", "snapshot", "stop"] and requests.cause == "SIGINT"
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_effects_can_be_exchanged_or_left_out(requests):
    solver = RecordingTarget()
    requests.listen("snapshot", "none")
    requests.attach(solver)
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGHUP)
    assert solver.heard == ["snapshot", "snapshot"]


def test_the_signals_of_mpirun_and_slurm_may_come_more_than_once(requests):
    solver = RecordingTarget()
    requests.listen("none", "none")
    requests.attach(solver)
    for number in (signal.SIGUSR2, signal.SIGUSR1, signal.SIGUSR1, signal.SIGTERM):
        signal.raise_signal(number)
    assert solver.heard == ["snapshot", "stop", "stop", "stop"] and requests.cause == "SIGUSR1"


def test_sigterm_to_one_of_several_ranks_stops_and_is_logged_once_mpirun_would_have_killed(
    requests, caplog, monkeypatch
):
    now = 100.0
    monkeypatch.setattr("mgcaffe.tools.running.signals.time.monotonic", lambda: now)
    solver = RecordingTarget()
    requests.listen("stop", "snapshot", has_peers=True)
    requests.attach(solver)
    signal.raise_signal(signal.SIGTERM)
    requests.log_pending()
    assert solver.heard == ["stop"] and caplog.messages == []
    now += 2
    requests.log_pending()
    signal.raise_signal(signal.SIGTERM)
    requests.log_pending(include_delayed=True)
    assert caplog.messages == ["SIGTERM: stopping after this iteration"] * 2


def test_a_second_sigint_interrupts_a_run_that_was_started_with_sigint_ignored(requests):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests.listen("stop", "snapshot")
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_after_the_end_signals_change_nothing(requests):
    solver = RecordingTarget()
    requests.listen("stop", "snapshot")
    requests.attach(solver)
    signal.raise_signal(signal.SIGINT)
    requests.end()
    for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
        signal.raise_signal(number)
    assert solver.heard == ["stop"]


def test_a_file_that_is_too_large_is_an_error_and_no_signal(requests):
    before = signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        requests.listen("stop", "snapshot")
        assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN
        requests.restore()
        assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGXFSZ, before)


_QUIT = """
import signal
from mgcaffe.tools.running.signals import Requests
signal.signal(signal.SIGQUIT, signal.SIG_IGN)
def train():
    signal.raise_signal(signal.SIGQUIT)
    print("goes on")
Requests().listen("stop", "snapshot")
train()
"""


def test_sigquit_shows_the_stacks_and_ends_the_process():
    result = subprocess.run([sys.executable, "-c", _QUIT], capture_output=True, text=True, timeout=60)
    assert result.returncode == -signal.SIGQUIT and result.stdout == ""
    assert "most recent call first" in result.stderr and "in train" in result.stderr


def test_under_the_launcher_it_is_the_launcher_who_asks(requests, caplog):
    requests.listen("stop", "snapshot", launched=True)
    requests.attach(RecordingTarget())
    signal.raise_signal(signal.SIGUSR2)
    signal.raise_signal(signal.SIGUSR1)
    requests.log_pending()
    asks = "the launcher asks"
    assert caplog.messages == [f"{asks}: a snapshot follows this iteration", f"{asks}: stopping after this iteration"]


def test_requests_from_the_set_up_wait_for_the_solver_and_are_logged_then(requests, caplog):
    requests.listen("stop", "snapshot")
    signal.raise_signal(signal.SIGHUP)
    signal.raise_signal(signal.SIGINT)
    requests.log_pending()
    assert caplog.messages == []
    solver = RecordingTarget()
    requests.attach(solver)
    assert sorted(solver.heard) == ["snapshot", "stop"]
    requests.log_pending()
    assert caplog.messages == ["SIGHUP: a snapshot follows this iteration", "SIGINT: stopping after this iteration"]


def test_signals_are_given_back():
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGQUIT)
    before = [signal.getsignal(number) for number in numbers]
    requests = Requests()
    requests.listen("stop", "snapshot")
    requests.restore()
    assert [signal.getsignal(number) for number in numbers] == before


def test_a_stop_file_asks_once_and_is_removed(requests, tmp_path):
    solver = RecordingTarget()
    requests.attach(solver)
    path = tmp_path / "net.stop"
    stop_file = StopFile(path, requests)
    stop_file.look()
    assert solver.heard == []
    path.touch()
    stop_file.look()
    stop_file.look()
    assert solver.heard == ["stop"] and not path.exists() and str(path) in requests.cause


def test_a_stop_file_that_is_there_already_is_a_usage_error(requests, tmp_path):
    (tmp_path / "net.stop").touch()
    with pytest.raises(UsageError, match=r"net\.stop' exists already"):
        StopFile(tmp_path / "net.stop", requests)
    assert (tmp_path / "net.stop").exists()
