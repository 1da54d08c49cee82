"""Whole jobs of the launcher, in which one process stands for the ranks."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mgcaffe.comm.supervision import record_folders, status
from mgcaffe.comm.supervision.processes import is_alive
from mgcaffe.errors import UsageError
from mgcaffe.tools.launcher import launcher
from tests.support.launcher import parse, rank_script

pytestmark = pytest.mark.slow


def test_exit_codes_are_passed_on(run):
    assert run("record.finish(status.ENDED, 65); sys.exit(65)", "-np", "1") == (65, "")
    assert run("record.finish(status.ENDED, 0)", "-np", "1") == (0, "")


@pytest.mark.mpi
def test_a_job_whose_mpirun_is_killed_leaves_nothing_of_it(run):
    body = """
    rank = os.environ["OMPI_COMM_WORLD_RANK"]
    Path(f"pid{rank}").write_text(str(os.getpid()))
    Path(rank).write_text(os.environ["PMIX_SERVER_TMPDIR"])
    from mpi4py import MPI
    Path(f"memory{rank}").write_text(" ".join(path.name for path in record_folders.job_folder().glob("sm_segment*")))
    MPI.COMM_WORLD.Barrier()
    record = record_folders.open_status(record_folders.job_folder(), int(rank), 2)
    MPI.COMM_WORLD.Barrier()
    if rank == "0": os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(10)
    os._exit(0)
    """
    if not Path(sys.executable).with_name("mpirun").exists():
        pytest.skip("there is no mpirun beside this Python")
    assert run(body, "-np", "2", "--mpirun_args=--oversubscribe")[0] == 69
    deadline = time.monotonic() + 1
    while any(is_alive(int(Path(f"pid{rank}").read_text())) for rank in "01"):
        assert time.monotonic() < deadline
    folders = {Path(Path(rank).read_text()) for rank in "01"}
    assert len(folders) == 1
    folder = folders.pop()
    assert [len(Path(f"memory{rank}").read_text().split()) > 0 for rank in "01"] == [True, True]
    assert folder.parent.name.startswith(f"mgcaffe-{os.getuid()}-") and not folder.parent.exists()


def test_what_a_killed_launcher_left_is_removed_at_the_start(run):
    left = record_folders.new_folder()
    (left / "launcher").write_text("4711 1")  # a process that is not that one
    run("record.finish(status.ENDED, 0)", "-np", "1")
    assert not left.exists()


def test_a_killed_rank_is_named_and_gives_69(run):
    code, said = run("os.kill(os.getpid(), signal.SIGKILL)", "-np", "1")
    assert code == 69
    assert f"error: rank 0 of 1 on {os.uname().nodename}" in said and "was killed by signal 9 (SIGKILL)" in said
    assert "iteration: 4" in said and "doing:     forward, layer 'a'" in said


def test_a_rank_that_was_sent_sigterm_is_not_taken_for_the_cause():
    """A busy launcher may see a killed rank and those that mpirun ended for it at once, in any order."""
    job = launcher._Job(parse("-np", "2"), ["mpirun"], 2, launcher._UserRequests("stop", "snapshot"))
    try:
        for rank in (0, 1):
            job._lose(status.Place(rank, 2, 10 + rank, "a", status.RUNNING, 0, rank == 0, 4, 1, "forward"))
        assert [place.rank for place in job._lost] == [1]
    finally:
        record_folders.remove_folder(job._folder)


def test_what_a_rank_left_to_be_said_is_printed_at_the_end_and_gives_the_code(run):
    body = '(record_folders.job_folder() / "end message").write_text("70\\nno progress for 4 s"); os._exit(70)'
    assert run(body, "-np", "1") == (70, "error: no progress for 4 s\n")


def test_a_launcher_among_ranks_is_a_usage_error(run, monkeypatch):
    monkeypatch.setenv(record_folders.FOLDER_VARIABLE, "/somewhere")
    with pytest.raises(UsageError, match="this process is one itself"):
        run("", "-np", "1")


def test_a_signal_between_two_jobs_is_announced_when_the_next_one_can_be_asked(run, monkeypatch):
    waits = launcher._UserRequests.sleep

    def sleep(requests, seconds):
        os.kill(os.getpid(), signal.SIGUSR2)
        waits(requests, seconds)

    monkeypatch.setattr(launcher._UserRequests, "sleep", sleep)
    body = """
    if Path("started").read_text() == "x": os.kill(os.getpid(), signal.SIGKILL)
    deadline = time.monotonic() + 30
    while "SIGUSR2" not in heard and time.monotonic() < deadline: time.sleep(0.01)
    record.finish(status.ENDED, 0 if heard == ["SIGUSR2"] else 1)
    sys.exit(0 if heard == ["SIGUSR2"] else 1)
    """
    code, said = run(body, "--max_restarts=1")
    assert code == 0, said
    lines = [line for line in said.splitlines() if line.startswith(("SIGUSR2", "Exit code"))]
    assert lines[0].startswith("Exit code 69: starting again")
    # The next job may still be starting at the first look.
    assert lines[-1] == "SIGUSR2: asking the ranks for a snapshot after this iteration"


def test_a_stop_between_two_jobs_asks_nobody(run, monkeypatch):
    monkeypatch.setattr(launcher._UserRequests, "sleep", lambda requests, seconds: os.kill(os.getpid(), signal.SIGTERM))
    code, said = run("os.kill(os.getpid(), signal.SIGKILL)", "--max_restarts=1")
    assert code == 75 and Path("started").read_text() == "x"
    assert [line for line in said.splitlines() if "SIGTERM" in line] == ["SIGTERM: not starting again"]


@pytest.mark.parametrize(
    ("number", "what"), [(signal.SIGTERM, "to stop"), (signal.SIGUSR2, "for a snapshot")], ids=["stop", "snapshot"]
)
def test_a_signal_after_the_ranks_end_is_not_said_to_have_been_handed_on(run, monkeypatch, number, what):
    watches = launcher._Job._watch

    def watch(job, seconds):
        if job._process.returncode is not None:
            os.kill(os.getpid(), number)
        watches(job, seconds)

    monkeypatch.setattr(launcher._Job, "_watch", watch)
    code, said = run("record.finish(status.ENDED, 0)", "-np", "1")
    assert code == 0
    assert said.splitlines() == [f"{number.name}: no rank is running that could be asked {what}"]


def test_a_signal_while_the_ranks_start_is_said_to_wait(run):
    body = """
    record.doing(status.encode(status.STARTING)); record.iteration(-1)
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(1)
    assert not heard
    record.iteration(0); record.doing(status.encode("forward"))
    deadline = time.monotonic() + 30
    while not heard and time.monotonic() < deadline: time.sleep(0.01)
    record.finish(status.ENDED, 75)
    sys.exit(75)
    """
    code, said = run(body, "-np", "1")
    assert code == 75
    assert said.splitlines() == [
        "SIGTERM: the ranks are asked to stop as soon as all of them are up",
        "SIGTERM: asking the ranks to stop after this iteration, with a snapshot",
    ]


def test_ranks_elsewhere_that_cannot_be_seen_get_a_signal_after_a_while(run, monkeypatch):
    monkeypatch.setattr(launcher, "are_elsewhere", lambda flags: True)
    monkeypatch.setattr(launcher, "_UNSEEN_READY_S", 0.5)
    body = """
    record.path.unlink()
    os.kill(os.getppid(), signal.SIGTERM)
    deadline = time.monotonic() + 10
    while not heard and time.monotonic() < deadline: time.sleep(0.01)
    sys.exit(75 if heard == ["SIGUSR1"] else 1)
    """
    code, said = run(body, "-np", "1")
    assert code == 75, said


@pytest.mark.parametrize("fails", [False, True])
def test_all_that_ranks_elsewhere_said_is_passed_on_also_where_the_launcher_fails(run, monkeypatch, capfd, fails):
    monkeypatch.setattr(launcher, "are_elsewhere", lambda flags: True)
    watches = launcher._Job._watch

    def watch(job, seconds):
        watches(job, seconds)
        if fails and Path("said").exists():
            raise RuntimeError("cannot watch")

    monkeypatch.setattr(launcher._Job, "_watch", watch)
    passed_on = launcher.Relay._pass_on
    monkeypatch.setattr(launcher.Relay, "_pass_on", lambda relay, data: (time.sleep(0.3), passed_on(relay, data)))
    body = """
    sys.stderr.write("line\\n" * 10000); sys.stderr.flush(); Path("said").touch()
    if FAILS: time.sleep(30)
    record.finish(status.ENDED, 0)
    """.replace("FAILS", str(fails))
    if fails:
        with pytest.raises(RuntimeError, match="cannot watch"):
            run(body, "-np", "1")
        said = capfd.readouterr().err
    else:
        _, said = run(body, "-np", "1")
    assert said == "line\n" * 10000


def test_the_last_block_waits_for_standard_error_that_does_not_block(monkeypatch):
    reading, writing = os.pipe()
    kept = os.dup(2)
    got = bytearray()
    try:
        os.dup2(writing, 2)
        os.set_blocking(2, False)
        os.close(writing)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(2, b"x" * (1 << 12))
        speaker = threading.Thread(target=launcher._say, args=("error: rank 1 exited",))
        speaker.start()
        speaker.join(0.2)
        assert speaker.is_alive()
        while not got.endswith(b"exited\n"):
            got += os.read(reading, 1 << 16)
        speaker.join()
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(reading)
    assert got.strip(b"x") == b"error: rank 1 exited\n"


_LAUNCH = """
import sys
from mgcaffe.tools.commands import train
from mgcaffe.tools.launcher import launcher
sys.exit(launcher.launch(train.parser().parse(sys.argv[1:]), [sys.executable, "rank.py"]))
"""


_WAITS = """
import threading
threading.Event().wait(0.01)
deadline = time.monotonic() + 30
while "SIGUSR1" not in heard and time.monotonic() < deadline: time.sleep(0.01)
Path("heard").write_text(" ".join(heard))
if "forever" in sys.argv[-1]: time.sleep(60)
record.finish(status.ENDED, 75)
sys.exit(75)
"""


@pytest.fixture
def start(tmp_path):
    """`start(words)` launches a process that waits for SIGUSR1; returns once it runs."""
    processes = []

    def launch(*words):
        (tmp_path / "rank.py").write_text(rank_script(_WAITS))
        process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCH, "-np", "1", *words],
            cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        processes.append(process)
        deadline = time.monotonic() + 30
        while not (tmp_path / "started").exists():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        return process

    yield launch
    for process in processes:
        process.kill()
        process.wait()


def test_signals_are_translated_and_the_code_is_passed_on(start, tmp_path):
    process = start("solver.prototxt")
    process.send_signal(signal.SIGHUP)
    time.sleep(0.6)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal sends it
    _, said = process.communicate(timeout=30)
    assert process.returncode == 75, said
    assert (tmp_path / "heard").read_text().split() == ["SIGUSR2", "SIGUSR1"]
    told = [line.partition("] ")[2] for line in said.splitlines()]
    assert told == [
        "SIGHUP: asking the ranks for a snapshot after this iteration",
        "SIGINT: asking the ranks to stop after this iteration, with a snapshot",
    ]


def test_standard_input_is_left_to_who_started_the_launcher(tmp_path):
    (tmp_path / "rank.py").write_text(rank_script("record.finish(status.ENDED, 65 if sys.stdin.read() else 0)"))
    command = [sys.executable, "-c", _LAUNCH, "-np", "1", "solver.prototxt"]
    result = subprocess.run(command, cwd=tmp_path, input=b"one\n", stderr=subprocess.PIPE, timeout=60)
    assert result.returncode == 0, result.stderr


def test_a_second_sigint_ends_the_job_at_once(start, tmp_path):
    process = start("forever")
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    while not (tmp_path / "heard").exists():
        assert time.monotonic() < began + 30
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 1 and "interrupted" in said


def test_sigquit_ends_the_job_at_once(start):
    process = start("forever")
    process.send_signal(signal.SIGQUIT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 1 and "interrupted" in said


def test_a_limit_of_no_bytes_ends_the_launcher_with_73():
    command = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "from mgcaffe.tools import main; sys.exit(main.main())"
    )
    result = subprocess.run(
        [sys.executable, "-c", command, "train", "--max_restarts=1", "x"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert result.returncode == 73, result.stderr
    first, advice = result.stderr.splitlines()
    assert re.fullmatch(r"error: cannot write the ranks' records in /\S+: File too large", first)
    assert "`ulimit -f`" in advice
