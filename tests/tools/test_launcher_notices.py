"""What the launcher learns of ranks on other hosts from what mpirun and they say."""

import os

from mgcaffe.comm.status import RUNNING, Place
from mgcaffe.tools.launcher_ending import Ending, judge
from mgcaffe.tools.launcher_notices import Relay, cause_named

NOTICE = """--------------------------------------------------------------------------
prterun noticed that process rank {} with PID 4711 on node {} exited on
signal 9 (Killed).
--------------------------------------------------------------------------
"""
BLOCK = """error: rank {} of 4 on {} (process 4711) is gone without a word: killed, crashed, or ended by a library
  iteration: 29
  doing:     backward, layer 'ip1'
  the other ranks end with it
"""
PLACES = {
    rank: Place(rank, 4, 10 + rank, "a", RUNNING, 0, False, iteration, 1, "waiting")
    for rank, iteration in ((0, 30), (1, 31))
}


def test_the_rank_that_a_signal_ended_elsewhere_is_named_with_what_a_survivor_knows():
    said = f"Iteration 20\n{BLOCK.format(3, 'b')}{BLOCK.format(2, 'b')}more\n{NOTICE.format(2, 'b')}"
    assert cause_named(said, PLACES, 4).splitlines() == [
        "rank 2 of 4 on b (process 4711) was killed by signal 9 (SIGKILL)",
        "  iteration: 29",
        "  doing:     backward, layer 'ip1'",
        "  the other ranks end with it",
    ]


def test_without_a_survivor_it_is_said_what_is_not_known():
    lines = cause_named(NOTICE.format(2, "b"), PLACES, 4).splitlines()
    assert lines[0] == "rank 2 of 4 on b (process 4711) was killed by signal 9 (SIGKILL)"
    assert lines[1] == "  iteration: 31, as far as this host's ranks are"
    assert "no rank of b outlived it" in lines[2]
    assert cause_named(NOTICE.format(2, "b"), {}, 4).splitlines()[1] == "  iteration: before the first"


def test_a_rank_of_this_host_is_described_by_its_record():
    said = BLOCK.format(3, "b") + NOTICE.format(1, "a")
    assert cause_named(said, PLACES, 4).splitlines()[:3] == [
        "rank 1 of 4 on a (process 11) was killed by signal 9 (SIGKILL)",
        "  iteration: 31",
        "  doing:     waiting",
    ]


def test_without_mpiruns_notice_the_first_survivors_word_counts():
    said = BLOCK.format(3, "b") + BLOCK.format(2, "c")
    assert cause_named(said, PLACES, 4).startswith("rank 3 of 4 on b (process 4711) is gone: killed")
    assert cause_named("Iteration 20\nerror: something else\n", PLACES, 4) == ""


def test_who_was_named_counts_more_than_a_rank_here_that_lost_its_connection():
    lost = [PLACES[0]]
    assert judge(14, lost, PLACES, None, is_mpirun=True, named="rank 2") == Ending(69, "rank 2")
    assert "rank 0 of 4" in judge(14, lost, PLACES, None, is_mpirun=True).block


def test_output_is_passed_on_as_it_is_and_its_end_kept(capfd):
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream:
        relay = Relay(stream)
        os.write(writing, b"\xff one\r\n" * 3)
        assert relay.text(0.01).count("one\n") <= 3
        os.write(writing, b"x" * (1 << 16))
        os.close(writing)
        text = relay.text(10)
    assert text.startswith("\ufffd one\n") and text.endswith("x" * (1 << 16))
    os.write(2, b"")
    assert capfd.readouterr().err.endswith("x" * (1 << 16))


def test_only_the_end_of_a_long_output_is_kept(monkeypatch, capfd):
    monkeypatch.setattr("mgcaffe.tools.launcher_notices._MOST_KEPT", 10)
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream:
        relay = Relay(stream)
        os.write(writing, b"0123456789abcde")
        os.close(writing)
        assert relay.text(10) == "56789abcde"
    assert capfd.readouterr().err == "0123456789abcde"
