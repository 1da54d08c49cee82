"""Peers that die, stop or stand still are seen, reported once by the lowest survivor, and end the job."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from mgcaffe.comm.supervision import record_folders, status
from mgcaffe.comm.supervision.job_end import JobEnd
from mgcaffe.comm.supervision.peers import Peers
from mgcaffe.comm.supervision.record_folders import read_places
from mgcaffe.comm.supervision.verdict import (
    END_MESSAGE,
    RECORD_SEPARATOR,
    attached_record,
    behind,
    describe_place,
    lost_block,
    name_signal,
    read_attached_record,
    stall_block,
)
from mgcaffe.comm.supervision.watch import JobWatch, PeerWatch

pytestmark = pytest.mark.slow

_PEER = (
    "import sys, time; from pathlib import Path; from mgcaffe.comm.supervision import record_folders, status\n"
    "record = record_folders.open_status(Path(sys.argv[1]), int(sys.argv[2]), 3); record.iteration(7)\n"
    "record.doing(status.encode(sys.argv[3]))\n"
    "if sys.argv[4] == 'ends': record.finish(status.ENDED, 0); sys.exit()\n"
    "if sys.argv[4] == 'terminated': record.terminated()\n"
    "time.sleep(60)"
)


@pytest.fixture
def peer(tmp_path):
    """`peer(rank, doing, how)` starts a process with a record, and waits until the record is there."""
    processes = []

    def start(rank, doing="forward, layer 'a'", how="lives"):
        process = subprocess.Popen([sys.executable, "-c", _PEER, str(tmp_path), str(rank), doing, how])
        processes.append(process)
        await_(lambda: read_places(tmp_path).get(rank) and read_places(tmp_path)[rank].beat)
        return process

    yield start
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()


def await_(condition, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def watch(tmp_path, monkeypatch):
    """`watch(rank)` watches as that rank, and gives what was said and the codes it left with."""
    monkeypatch.delenv(record_folders.FOLDER_VARIABLE, raising=False)
    watches = []

    def start(rank=0, **options):
        said, left = [], []
        record = record_folders.open_status(tmp_path, rank, 3)
        settings = {"tick_s": 0.02, "patience_s": 0.1, "leave": left.append, **options}
        watches.append(JobWatch(record, said.append, **settings).start())
        return record, said, left

    yield start
    for each in watches:
        each.close()


def test_a_death_is_seen_once_and_with_the_last_record(peer, tmp_path):
    peers = Peers(tmp_path, 3)
    process = peer(1)
    assert peers.wait(0.0) == [] and peers.running() == [1] and peers.stopped() == []
    process.send_signal(signal.SIGSTOP)
    await_(lambda: peers.stopped() == [1])
    process.kill()
    process.wait()
    (place,) = peers.wait(10.0)
    assert (place.rank, place.describe()) == (1, "iteration 7, forward, layer 'a'")
    assert peers.wait(0.0) == [] and peers.running() == []
    peers.close()


def test_a_peer_that_is_killed_is_reported_and_ends_this_rank(peer, watch):
    process = peer(1)
    _, said, left = watch()
    time.sleep(0.1)
    process.kill()
    process.wait()
    await_(lambda: left)
    assert left[0] == 69
    (text,) = said
    assert text.startswith(
        f"error: rank 1 of 3 on {os.uname().nodename} (process {process.pid}) exited without an error message"
    )
    assert "iteration: 7" in text and "doing:     forward, layer 'a'" in text


@pytest.mark.parametrize("is_shared", [False, True], ids=["own folder", "shared folder"])
def test_a_launcher_on_another_host_gets_the_record(peer, watch, tmp_path, monkeypatch, is_shared):
    monkeypatch.setenv(record_folders.FOLDER_VARIABLE, str(tmp_path))
    if is_shared:
        (tmp_path / "pid-namespace").write_text("elsewhere pid:[1]")
        (tmp_path / "launcher").write_text(str(os.getpid()))
    process = peer(1)
    _, said, left = watch()
    time.sleep(0.1)
    process.kill()
    process.wait()
    await_(lambda: left)
    text, _, record = said[0].partition(RECORD_SEPARATOR)
    assert text.endswith("the other ranks end with it")
    place = read_attached_record(record)
    assert (place.rank, place.iteration, place.doing) == (1, 7, "forward, layer 'a'")


def test_only_the_lowest_survivor_speaks(peer, watch):
    peer(0)
    process = peer(1)
    _, said, left = watch(2)
    time.sleep(0.1)
    process.kill()
    process.wait()
    await_(lambda: left)
    assert said == []


@pytest.mark.parametrize("how", ["ends", "terminated"])
def test_a_peer_that_ends_in_order_or_is_ended_is_no_cause(peer, watch, how):
    process = peer(1, how=how)
    _, said, left = watch()
    time.sleep(0.1)
    process.kill()
    process.wait()
    time.sleep(0.4)
    assert said == [] and left == []


def test_a_stopped_peer_is_warned_of_and_then_ends_the_job(peer, watch, tmp_path):
    process = peer(1)
    peer(2, "waiting for the other ranks' gradients")
    process.send_signal(signal.SIGSTOP)
    record, said, left = watch(stall_timeout_s=0.6)
    record.doing(status.encode("waiting for the other ranks' gradients"))
    await_(lambda: left)
    assert left[0] == 70
    warning, error = said
    assert warning.startswith("warning: no progress for") and error.startswith("error: no progress for")
    for text in said:
        assert f"rank 1 of 3 on {os.uname().nodename} (process {process.pid}) is stopped by a signal" in text
        assert "rank 2: iteration 7, waiting for the other ranks' gradients" in text


def test_progress_is_no_stall(watch):
    record, said, left = watch(stall_timeout_s=0.4)
    for _ in range(40):
        record.doing(status.encode("forward"))
        time.sleep(0.02)
    assert said == [] and left == []


def test_background_work_that_does_not_get_on_is_a_stall_whatever_training_does(watch):
    record, said, left = watch(stall_timeout_s=1.0)

    def trains():
        record.doing(status.encode("forward"))
        return left

    for beat in [*range(20), *[None] * 30, 20]:
        record.background_beat = beat
        trains()
        time.sleep(0.02)
    assert said == []
    await_(trains)
    assert left[0] == 70 and len(said) == 2
    assert re.match(r"warning: no synchronization of replicas for \d+ s\n  rank 0: forward", said[0])
    assert re.match(r"error: no synchronization of replicas for \d+ s, so the job ends \(--stall_timeout\)", said[1])


def test_without_a_timeout_nothing_is_a_stall(watch):
    _, said, left = watch()
    time.sleep(0.3)
    assert said == [] and left == []


def test_the_end_of_the_parent_is_the_end(watch):
    parent = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    _, said, left = watch(parent=parent.pid)
    time.sleep(0.1)
    assert left == []
    parent.kill()
    parent.wait()
    await_(lambda: left)
    assert left[0] == 69 and f"the process that started this rank (process {parent.pid}) is gone" in said[0]


def test_the_launcher_on_this_host_gets_the_end_message(watch, tmp_path, monkeypatch):
    monkeypatch.setenv(record_folders.FOLDER_VARIABLE, str(tmp_path))
    (tmp_path / "launcher").write_text(str(os.getpid()))
    _, said, left = watch(stall_timeout_s=0.2)
    await_(lambda: left)
    assert [text for text in said if text.startswith("error")] == []
    assert (tmp_path / END_MESSAGE).read_text().startswith("70\nno progress for")


def test_sigterm_is_noted_while_the_main_thread_does_something_else(watch):
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        record, _, _ = watch()
        signal.raise_signal(signal.SIGTERM)
        await_(lambda: record.read().terminated)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_rank_that_outlives_sigterm_is_a_cause_again_when_it_dies(watch):
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        record, _, left = watch()
        signal.raise_signal(signal.SIGTERM)
        await_(lambda: record.read().terminated)
        await_(lambda: not record.read().terminated)
        assert not left
    finally:
        signal.signal(signal.SIGTERM, before)


def test_tasks_are_called(watch):
    calls = []
    watch(tasks=[lambda: calls.append(1)])
    await_(lambda: len(calls) > 2)


def place(rank, iteration, doing, **changes):
    fields = {"size": 3, "pid": 10 + rank, "host": "a", "state": status.RUNNING, "code": 0, "terminated": False}
    return status.Place(rank=rank, iteration=iteration, beat=1, doing=doing, **{**fields, **changes})


def test_the_death_of_a_rank_that_is_tolerated_ends_nobody(tmp_path, monkeypatch):
    monkeypatch.delenv(record_folders.FOLDER_VARIABLE, raising=False)
    record, said = record_folders.open_status(tmp_path, 0, 3), []
    end = JobEnd(record, Peers(tmp_path, 3), said.append, lambda code: None, 0.1)
    watch = PeerWatch(record, end)
    record.tolerated = frozenset({1})
    watch.check([place(1, 7, "forward")], 0.0)
    assert not end.is_near and said == []
    watch.check([place(2, 7, "forward")], 0.0)
    assert end.is_near and "rank 2 of 3" in said[0]


def test_a_record_is_read_as_it_was_attached_and_not_where_it_is_damaged():
    known = place(1, 0, "forward", state=status.FAILED, code=65, terminated=True, started=7, role="trainer")
    text = attached_record(known).removeprefix(RECORD_SEPARATOR)
    assert read_attached_record(text) == known and describe_place(known)[0] == "  iteration: 0"
    assert read_attached_record(text[:-1]) is None and read_attached_record(text.replace("65", '"65"')) is None


def test_the_ranks_that_the_others_wait_for_are_suspected():
    waiting = "waiting for the other ranks' gradients"
    assert behind({0: place(0, 5, waiting), 1: place(1, 5, "forward"), 2: place(2, 5, waiting)}) == [1]
    assert behind({0: place(0, 5, waiting), 1: place(1, 4, waiting)}) == [1]
    assert behind({0: place(0, 5, "forward"), 1: place(1, 5, "forward")}) == []
    assert behind({0: place(0, 5, "forward")}) == [0]


def test_a_server_that_waits_for_requests_is_not_suspected():
    server = place(2, -1, "waiting for requests of the trainers", role="synchronization server")
    waiting = {rank: place(rank, 5 + rank, "waiting for the other trainers", role="trainer") for rank in (0, 1)}
    assert behind({**waiting, 2: server}) == [0]
    training = place(1, 5, "forward", role="trainer")
    assert behind({0: waiting[0], 1: training, 2: server}) == [1]
    text = stall_block({0: waiting[0], 1: training, 2: server}, [], 12.4, 3, False)
    assert "rank 1 of 3, trainer, on a (process 11) is behind the others" in text
    assert "\n  rank 2 (synchronization server): waiting for requests of the trainers" in text


def test_ranks_that_wait_for_those_of_other_hosts_are_not_suspected():
    waiting = "waiting for the other ranks' gradients"
    advice = "those here wait, so see there who is behind, and whether the hosts reach each other"
    text = stall_block({0: place(0, 5, waiting)}, [], 12.4, 2, False)
    assert text.splitlines() == [
        "no progress for 12 s",
        f"  rank 0: iteration 5, {waiting}",
        "  1 more rank runs on another host, whose record cannot be seen here",
        f"  {advice}",
    ]
    assert advice in stall_block({0: place(0, 5, waiting), 1: place(1, 6, waiting)}, [], 12.4, 4, False)
    assert "does not go on" in stall_block({0: place(0, 5, waiting)}, [], 12.4, 1, False)
    assert advice not in stall_block({0: place(0, 5, "forward"), 1: place(1, 5, waiting)}, [], 12.4, 4, False)
    assert advice not in stall_block({0: place(0, 5, waiting)}, [0], 12.4, 2, False)


def test_blocks_name_rank_host_iteration_and_doing():
    assert lost_block(place(1, -1, "setting up", state=status.FAILED, code=65)) == (
        "rank 1 of 3 on a (process 11) failed with exit code 65\n  iteration: before the first\n"
        "  doing:     setting up\n  the other ranks end with it"
    )
    server = place(2, -1, "waiting for requests of the trainers", role="synchronization server")
    assert lost_block(server, "was killed by signal 9 (SIGKILL)") == (
        "rank 2 of 3, synchronization server, on a (process 12) was killed by signal 9 (SIGKILL)\n"
        "  doing:     waiting for requests of the trainers\n  the other ranks end with it"
    )
    alone = lost_block(place(0, 5, "forward", size=1))
    assert alone.endswith("killed, crashed, or ended by a library\n  iteration: 5\n  doing:     forward")
    both = {0: place(0, 5, "waiting", size=2), 1: place(1, 5, "forward", size=2)}
    assert stall_block(both, [], 12.4, 2, True).splitlines() == [
        "no progress for 12 s, so the job ends (--stall_timeout)",
        "rank 1 of 2 on a (process 11) is behind the others",
        "  iteration: 5",
        "  doing:     forward",
        "  rank 0: iteration 5, waiting",
    ]
    assert "is behind" not in stall_block(both, [], 12.4, 2, True, "synchronization of replicas")
    assert name_signal(11) == "signal 11 (SIGSEGV)" and name_signal(63) == "signal 63"
    text = stall_block({0: place(0, 5, "forward")}, [], 12.4, 3, False)
    assert "rank 0 of 3 on a (process 10) does not go on" in text and "2 more ranks run on other hosts" in text
