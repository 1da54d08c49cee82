"""When others can no longer count on a rank, second by second."""

import os
from dataclasses import asdict

import pytest

from mgcaffe.comm.supervision import troubles
from mgcaffe.comm.supervision.troubles import RankRecord, Seen, Trouble, behind, first_waiting
from mgcaffe.errors.checked_json import json_value


def record(**values):
    return RankRecord(**{"rank": 1, "size": 3, "host": "node7", "pid": 4711} | values)


def kind(seen, now, timeout_s=8.0):
    trouble = seen.trouble(now, timeout_s)
    return None if trouble is None else trouble.kind


def test_a_record_and_a_trouble_are_read_as_they_were_sent():
    known = record(rounds=3, waits=True, raised="a", ended="b", follows=True, left=True)
    assert RankRecord.of_json(json_value(asdict(known), "no record")) == known
    trouble = Trouble(troubles.GONE, 1, "rank 1 is gone")
    assert Trouble.of_json(json_value(asdict(trouble), "no trouble")) == trouble


def test_silence_counts_only_after_the_time_that_is_allowed_and_never_where_that_is_0():
    seen = Seen(record(), 100.0)
    assert kind(seen, 108.0) is None and kind(seen, 1000.0, 0.0) is None
    trouble = seen.trouble(109.0, 8.0)
    assert trouble.kind == troubles.SILENT
    assert trouble.text.startswith("rank 1 of 3 on node7 (process 4711) has not answered for 9 s: it is stopped")
    seen.hear(record(), 109.0)
    assert kind(seen, 110.0) is None


@pytest.mark.parametrize(
    ("left", "expected", "after_s"), [(False, troubles.GONE, troubles.GONE_S), (True, troubles.LEFT, troubles.LEFT_S)]
)
def test_a_closed_connection_counts_once_what_was_sent_has_had_time_to_arrive(left, expected, after_s):
    seen = Seen(record(left=left), 100.0)
    seen.close(101.0)
    assert kind(seen, 101.0 + after_s) is None
    assert kind(seen, 101.1 + after_s) == expected


def test_an_exception_counts_after_a_while_unless_the_rank_goes_on():
    seen = Seen(record(), 100.0)
    seen.hear(record(raised="ValueError: no in its forward pass"), 101.0)
    late = 101.1 + troubles.RAISED_S
    seen.hear(record(raised="ValueError: no in its forward pass"), late)
    assert "raised ValueError: no in its forward pass, and has computed nothing for 5 s" in seen.trouble(late, 8.0).text
    seen.hear(record(raised="ValueError: no in its forward pass", waits=True), late)
    assert kind(seen, late) is None
    seen.hear(record(), late)
    assert kind(seen, late) is None


def test_the_end_of_a_process_counts_at_once_and_what_follows_from_it_later():
    seen = Seen(record(), 100.0)
    seen.hear(record(ended="ValueError: no"), 101.0)
    assert seen.trouble(101.0, 8.0).text == "rank 1 ended with ValueError: no"
    seen.hear(record(ended="PeerFailure: x", follows=True), 102.0)
    assert kind(seen, 102.0 + troubles.FOLLOWED_S) is None
    assert kind(seen, 102.1 + troubles.FOLLOWED_S) == troubles.FOLLOWED


def test_a_process_that_is_stopped_on_this_host_is_said_to_be_so(monkeypatch):
    monkeypatch.setattr(troubles, "process_state", lambda pid: "T" if pid == os.getpid() else "")
    trouble = Seen(RankRecord(1, 3), 100.0).trouble(109.0, 8.0)
    assert trouble.text.endswith("is stopped by a signal (SIGSTOP or the like)")


def test_who_is_waited_for_has_communicated_less_often():
    records = [record(rank=0, rounds=5), record(rank=1, rounds=6, waits=True), record(rank=2, rounds=6, waits=True)]
    assert [each.rank for each in behind(records)] == [0] and first_waiting(records) == 1
    assert behind([record(rank=0, rounds=5), record(rank=1, rounds=6)]) == [] and first_waiting([]) == -1
