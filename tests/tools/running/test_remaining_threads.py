"""What becomes of threads that users leave running; tests/mpi/test_user_exits.py has whole jobs."""

import sys
import threading

import pytest

from mgcaffe.tools.running.remaining_threads import end_without_threads


@pytest.fixture
def left_running(monkeypatch):
    """`left_running(daemon)` starts a thread that runs until the test's end."""
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)
    done = threading.Event()
    threads = []

    def start(daemon):
        thread = threading.Thread(target=done.wait, name="upload", daemon=daemon)
        thread.start()
        threads.append(thread)

    yield start
    done.set()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("daemon", [True, False])
def test_only_a_thread_that_python_would_wait_for_is_named_and_left(left_running, capsys, daemon):
    left_running(daemon)
    codes = []
    end_without_threads(75, patience_s=0.05, leave=codes.append).join()
    said = capsys.readouterr().err
    if daemon:
        assert codes == [] and said == ""
    else:
        assert codes == [75] and said.startswith("warning: thread 'upload'") and said.count("\n") == 1


def test_a_thread_that_ends_in_time_is_not_mentioned(left_running, capsys):
    short = threading.Timer(0.05, lambda: None)
    short.start()
    codes = []
    end_without_threads(0, patience_s=0.5, leave=codes.append).join()
    assert codes == [] and capsys.readouterr().err == ""
