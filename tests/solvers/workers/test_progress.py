"""Workers run freely below the limit, wait at it, and end when they are asked to or when one of them fails."""

import threading
import time

import pytest

from mgcaffe.solvers.workers.progress import WorkerProgress

PATIENCE_S = 10.0


class Runner:
    """A thread that goes through a worker's iterations, which take no time; stands still while `gate` is closed."""

    def __init__(self, progress, number):
        self.iterations = 0
        self.gate = threading.Event()
        self.gate.set()
        self._progress, self._number = progress, number
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        while self._progress.begin(self._number):
            self.gate.wait(PATIENCE_S)
            self.iterations += 1
            self._progress.completed(self._number)

    def ends(self):
        self.thread.join(PATIENCE_S)
        return not self.thread.is_alive()


@pytest.fixture
def progress():
    made = WorkerProgress(3)
    made.start(0)
    yield made
    made.end()


@pytest.fixture
def runners(progress):
    return [Runner(progress, number) for number in (1, 2)]


def test_workers_go_up_to_the_limit_and_no_further(progress, runners):
    progress.allow(4)
    progress.wait_for_others(4)
    time.sleep(0.02)
    assert [each.iterations for each in runners] == [4, 4]
    progress.allow(6)
    progress.wait_for_others(6)
    assert [each.iterations for each in runners] == [6, 6]


def test_a_halt_brings_all_to_the_one_that_is_furthest(progress, runners):
    runners[1].gate.clear()
    progress.allow(5)
    while progress._completed[1] < 5:
        time.sleep(1e-3)
    assert progress.halt() == 5
    runners[1].gate.set()
    progress.wait_for_others(5)
    assert [each.iterations for each in runners] == [5, 5]


def test_an_iteration_that_worker_0_has_begun_counts_in_a_halt(progress, runners):
    assert progress.begin(0)
    assert progress.halt() == 1
    progress.wait_for_others(1)
    assert [each.iterations for each in runners] == [1, 1]


def test_paused_workers_stand_between_two_iterations(progress, runners):
    progress.allow(10**9)
    while min(each.iterations for each in runners) < 3:
        time.sleep(1e-3)
    with progress.paused():
        before = [each.iterations for each in runners]
        assert progress._begun[1:] == progress._completed[1:] == before
        time.sleep(0.02)
        assert [each.iterations for each in runners] == before
    while min(each.iterations for each in runners) <= max(before):
        time.sleep(1e-3)


def test_all_end_when_one_fails_and_worker_0_is_told_why(progress, runners):
    progress.allow(10)
    progress.wait_for_others(10)
    progress.fail(KeyError("first"))
    progress.fail(KeyError("second"))
    assert all(each.ends() for each in runners)
    for call in (progress.check, lambda: progress.wait_for_others(99), lambda: progress.paused().__enter__()):
        with pytest.raises(KeyError, match="first"):
            call()


def test_a_failure_ends_the_waiting_of_worker_0(progress):
    threading.Timer(0.05, progress.fail, [KeyError("late")]).start()
    with pytest.raises(KeyError, match="late"):
        progress.wait_for_others(1)


def test_waiting_is_reported_as_long_as_others_get_on(monkeypatch):
    monkeypatch.setattr("mgcaffe.solvers.workers.progress._LOOK_EVERY_S", 0.01)
    seen = []
    progress = WorkerProgress(2, seen.append)
    progress.start(0)
    runner = Runner(progress, 1)
    runner.gate.clear()
    progress.allow(2)
    threading.Timer(0.1, runner.gate.set).start()
    progress.wait_for_others(2)
    assert 1 <= len(seen) <= 3  # not once for each look
    assert seen[0] == "waiting for the other workers to end iteration 2"
    progress.end()
    assert runner.ends()


def test_one_worker_alone_waits_for_nobody():
    progress = WorkerProgress(1)
    progress.start(7)
    assert progress.begin(0)
    progress.wait_for_others(8)
    with progress.paused():
        assert progress.halt() == 8
