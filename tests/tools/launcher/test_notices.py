"""What the launcher learns of ranks on other hosts from what mpirun and they say."""

import contextlib
import fcntl
import os
import threading
import time
from dataclasses import replace

import pytest

from mgcaffe.comm.supervision.status import RUNNING, Place
from mgcaffe.comm.supervision.verdict import attached_record
from mgcaffe.tools.launcher.ending import Ending, judge
from mgcaffe.tools.launcher.notices import RecordFilter, Relay, cause_named

pytestmark = pytest.mark.slow

NOTICE = """--------------------------------------------------------------------------
prterun noticed that process rank {} with PID 4711 on node {} exited on
signal 9 (Killed).
--------------------------------------------------------------------------
"""
PLACES = {
    rank: Place(rank, 4, 10 + rank, "a", RUNNING, 0, False, iteration, 1, "waiting")
    for rank, iteration in ((0, 30), (1, 31))
}
RECORDS = [Place(rank, 4, 4711, "b", RUNNING, 0, False, 29, 1, "backward, layer 'ip1'") for rank in (3, 2)]


def test_the_rank_that_a_signal_ended_elsewhere_is_named_with_what_a_survivor_knows():
    said = f"Iteration 20\n{NOTICE.format(2, 'b')}"
    assert cause_named(said, RECORDS, PLACES, 4).splitlines() == [
        "rank 2 of 4 on b (process 4711) was killed by signal 9 (SIGKILL)",
        "  iteration: 29",
        "  doing:     backward, layer 'ip1'",
        "  the other ranks end with it",
    ]


def test_without_a_survivor_it_is_said_what_is_not_known():
    lines = cause_named(NOTICE.format(2, "b"), RECORDS[:1], PLACES, 4).splitlines()
    assert lines[0] == "rank 2 of 4 on b (process 4711) was killed by signal 9 (SIGKILL)"
    assert lines[1] == "  iteration: 31, as far as this host's ranks are"
    assert "no rank of b outlived it" in lines[2]
    assert cause_named(NOTICE.format(2, "b"), [], {}, 4).splitlines()[1] == "  iteration: before the first"


def test_a_rank_of_this_host_is_described_by_its_record():
    assert cause_named(NOTICE.format(1, "a"), RECORDS, PLACES, 4).splitlines()[:3] == [
        "rank 1 of 4 on a (process 11) was killed by signal 9 (SIGKILL)",
        "  iteration: 31",
        "  doing:     waiting",
    ]


def test_without_mpiruns_notice_the_first_survivors_record_counts():
    assert cause_named("Iteration 20\n", RECORDS, PLACES, 4).startswith(
        "rank 3 of 4 on b (process 4711) exited without an error message: killed"
    )
    assert cause_named("Iteration 20\nerror: something else\n", [], PLACES, 4) == ""


def test_who_was_named_counts_more_than_a_rank_here_that_lost_its_connection():
    lost = [PLACES[0]]
    assert judge(14, lost, PLACES, None, is_mpirun=True, named="rank 2") == Ending(69, "rank 2")
    assert "rank 0 of 4" in judge(14, lost, PLACES, None, is_mpirun=True).block


@pytest.mark.parametrize(
    "tag", ["[1,3]<stderr>: ", "[Sun Nov 22 04:06:25 2026][1,3]<stderr>: ", "[1,3][b:4711]<stderr>: "]
)
def test_what_mpirun_puts_before_each_line_does_not_hide_the_rank(tag):
    tagged = "".join(f"{tag}{line}\n" for line in NOTICE.format(3, "b").splitlines())
    assert "was killed by signal 9" in cause_named(tagged, RECORDS, PLACES, 4)


@pytest.mark.parametrize("piece", [1, 7, 1 << 16])
def test_attached_records_are_taken_out_of_what_is_passed_on(piece):
    first, second = map(attached_record, RECORDS)
    data = f"one\nerror: block\n  the end{first}\ntwo\x1enone\n\x1e[1]\n{second}\n\x1ethree".encode()
    records = RecordFilter()
    text = b"".join(records.feed(data[start : start + piece]) for start in range(0, len(data), piece))
    assert text + records.flush() == b"one\nerror: block\n  the end\ntwo\x1enone\n\x1e[1]\n\n\x1ethree"
    assert records.records == RECORDS


def test_a_record_that_does_not_end_is_passed_on():
    records = RecordFilter()
    assert records.feed(b"\x1e" + b"x" * (1 << 12)) == b"\x1e" + b"x" * (1 << 12)


def test_a_relay_keeps_records_back(capfd):
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream:
        relay = Relay(stream)
        os.write(writing, f"error: block{attached_record(RECORDS[0])}\nmore\n\x1eabc".encode())
        os.close(writing)
        assert relay.text(10) == "error: block\nmore\n\x1eabc"
    assert relay.records == RECORDS[:1]
    assert capfd.readouterr().err == "error: block\nmore\n\x1eabc"


def test_a_code_that_ranks_elsewhere_ended_with_counts_more_than_who_was_named():
    for code in (65, 70, 71, 73, 76):
        assert judge(code, [PLACES[0]], PLACES, None, is_mpirun=True, named="rank 2") == Ending(code)
        assert judge(code, [], {}, None, is_mpirun=True, named="rank 2") == Ending(code)
        assert judge(code, [], {}, None, is_mpirun=True) == Ending(code)
    for code in (69, 75):
        assert judge(code, [], {}, None, is_mpirun=True) == Ending(code)
        assert judge(code, [], {}, None, is_mpirun=True, named="rank 2") == Ending(69, "rank 2")


def test_a_rank_here_that_ended_silently_with_such_a_code_is_named_where_all_ranks_are_here():
    here = {rank: replace(place, size=2) for rank, place in PLACES.items()}
    ending = judge(65, [here[1]], here, None, is_mpirun=True)
    assert ending.code == 69 and "rank 1 of 2" in ending.block


@pytest.mark.parametrize("code", [2, 126, 127, 181, 183, 213, 250, 255])
def test_what_mpirun_returns_where_it_cannot_start_the_ranks_is_said_so(code):
    ending = judge(code, [], {}, None, is_mpirun=True)
    assert ending == Ending(1, f"mpirun could not start the ranks (its exit code is {code})")


def test_output_is_passed_on_as_it_is_and_its_end_kept(capfd):
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream:
        relay = Relay(stream)
        os.write(writing, b"\xff one\r\n" * 3)
        assert relay.text(0.5) == "\ufffd one\n" * 3
        os.write(writing, b"x" * (1 << 16))
        os.close(writing)
        text = relay.text(10)
    assert text == "\ufffd one\n" * 3 + "x" * (1 << 16)
    assert capfd.readouterr().err.endswith("one\r\n" + "x" * (1 << 16))


LINES = b"".join(b"line %d\n" % number for number in range(20000))


@contextlib.contextmanager
def read_within(seconds, lines=LINES):
    """A pipe in standard error's place, all of which is read in so many seconds; at the end, gives what was read."""
    kept = os.dup(2)
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 1 << 12)
    os.dup2(writing, 2)
    os.close(writing)
    got = bytearray()

    def read():
        while data := os.read(reading, 1 << 11):
            got.extend(data)
            time.sleep(seconds * len(data) / len(lines))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield got
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        reader.join()
        os.close(reading)


def _feed(lines=LINES):
    """A stream that gives the lines as fast as they are taken."""
    reading, writing = os.pipe()

    def write():
        with os.fdopen(writing, "wb") as stream:
            stream.write(lines)

    threading.Thread(target=write).start()
    return os.fdopen(reading, "rb")


def test_standard_error_that_does_not_block_loses_nothing():
    with read_within(0.2) as got, _feed() as stream:
        os.set_blocking(2, False)
        text = Relay(stream).text(5)
    assert text == LINES.decode()
    assert got == LINES


def test_a_slow_reader_of_standard_error_gets_everything():
    with read_within(1.5) as got, _feed() as stream:
        began = time.monotonic()
        text = Relay(stream).text(0.1)
        assert time.monotonic() - began > 1
    assert text == LINES.decode()
    assert got == LINES


@pytest.mark.slow
def test_a_reader_that_takes_a_line_now_and_then_is_waited_for_longer():
    few = LINES[: 1 << 14]
    with read_within(3, few) as got, _feed(few) as stream:
        assert Relay(stream).text(0.2) == few.decode()
    assert got == few


def test_a_stream_that_someone_holds_open_is_not_waited_for(capfd):
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream:
        relay = Relay(stream)
        os.write(writing, b"one\n")
        began = time.monotonic()
        assert relay.text(0.2) == "one\n"
        assert time.monotonic() - began < 2
        os.close(writing)


def test_only_the_end_of_a_long_output_is_kept(monkeypatch, capfd):
    monkeypatch.setattr("mgcaffe.tools.launcher.notices._MAX_KEPT", 10)
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream:
        relay = Relay(stream)
        os.write(writing, b"0123456789abcde")
        os.close(writing)
        assert relay.text(10) == "56789abcde"
    assert capfd.readouterr().err == "0123456789abcde"
