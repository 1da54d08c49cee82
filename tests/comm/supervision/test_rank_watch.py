"""Who is noticed to fail, over connections of this host; ranks are threads."""

import re
import socket
import threading
import time
from types import SimpleNamespace

import pytest

from mgcaffe.comm import run_ranks
from mgcaffe.comm.supervision import rank_watch, troubles
from mgcaffe.comm.supervision.rank_watch import RankWatch
from mgcaffe.comm.transport import listener
from mgcaffe.comm.transport.host_addresses import LOOPBACK, addresses_for_other_hosts, addresses_of_gloo
from mgcaffe.comm.transport.listener import Listener
from mgcaffe.errors import EXIT_PEER_FAILED, CommError, PeerFailure
from mgcaffe.pytorch.failures import PEER_TIMEOUT_S
from tests.support.strangers import strangers_at

PATIENCE_S = 20.0
TICK_S = 0.1
"""How often ranks tell each other of themselves here; whatever else takes time is as in a run."""


def on_ranks(act, size=3, timeout_s=8.0, warn=None, leave=None):
    """Run `act(watch, rank)` on threads; return what each returned."""
    ended = threading.Barrier(size)

    def rank(communicator):
        watch = RankWatch(communicator, timeout_s, warn or print, leave or (lambda code: None))
        assert watch.unwatched == []
        try:
            return act(watch, communicator.rank)
        finally:
            ended.wait()
            watch.leave()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rank_watch, "TICK_S", TICK_S)
        return run_ranks(size, rank)


def cause(watch):
    with pytest.raises(PeerFailure) as failure:
        watch.await_cause(PATIENCE_S)
    return str(failure.value), failure.value.failed


def break_off(watch):
    """Do what the kernel does for a process that was killed."""
    watch._closing.set()
    watch._thread.join()
    for connection in watch._connections:
        connection.close()


def test_nobody_gives_up_while_all_live():
    def act(watch, rank):
        time.sleep(2 * TICK_S)
        watch.check()

    on_ranks(act)


@pytest.mark.parametrize("failing", [0, 2])
def test_a_rank_that_ends_by_an_exception_is_named_on_all_others_at_once(failing):
    def act(watch, rank):
        if rank == failing:
            return watch.note_end("ValueError: no", follows=False)
        return cause(watch)

    results = on_ranks(act)
    for rank in {0, 1, 2} - {failing}:
        expected = f"rank {rank} cannot go on: rank {failing} ended with ValueError: no"
        assert results[rank] == (expected, frozenset({failing}))


@pytest.mark.parametrize("failing", [0, 2])
def test_a_rank_whose_connection_is_closed_is_named_and_not_the_one_that_ends_because_of_it(failing):
    def act(watch, rank):
        if rank == failing:
            return break_off(watch)
        if rank == 1:
            watch.note_end("PeerFailure: another rank", follows=True)
        return cause(watch)

    results = on_ranks(act)
    for rank in {0, 1, 2} - {failing}:
        text, failed = results[rank]
        assert f"rank {failing} of 3 on " in text and "killed, crashed" in text and failed == {failing}


def test_a_rank_that_is_silent_is_named():
    def act(watch, rank):
        if rank == 1:
            watch._closing.set()  # its thread, as if it were stopped
            return None
        return cause(watch)

    first, _, third = on_ranks(act, timeout_s=2.0)
    for text, _ in (first, third):
        assert "rank 1 of 3 on " in text and "has not answered for " in text and "peer_timeout" in text


def test_an_exception_after_which_another_pass_begins_is_forgotten():
    def act(watch, rank):
        if rank == 1:
            watch.note_raised("RuntimeError: out of memory in its forward pass")
            watch.note_raised("")
        time.sleep(2 * TICK_S)
        watch.check()

    on_ranks(act, 2)


def test_who_is_waited_for_is_said_once_by_the_lowest_rank(monkeypatch):
    monkeypatch.setattr(rank_watch, "_WARN_S", 2 * TICK_S)
    said, heard = [], threading.Event()

    def warn(text):
        said.append(text)
        heard.set()

    def act(watch, rank):
        if rank == 2:
            assert heard.wait(PATIENCE_S)  # computes
            time.sleep(5 * TICK_S)
        watch.begin_wait()
        watch.check()
        if rank != 2:
            time.sleep(5 * TICK_S)

    on_ranks(act, warn=warn)
    (text,) = said
    assert re.match(r"rank 0 has waited for \d s to average gradients with rank 2 of 3 on ", text)


@pytest.mark.parametrize("how", ["by an exception", "in order"])
def test_a_call_that_never_gives_up_is_ended_with_the_process(monkeypatch, capsys, how):
    monkeypatch.setattr(rank_watch, "_LEAVE_S", 0.5)
    monkeypatch.setattr(troubles, "LEFT_S", 0.5)
    left = threading.Event()
    codes = []

    def leave(code):
        codes.append(code)
        left.set()

    def act(watch, rank):
        if rank == 1:
            return watch.leave() if how == "in order" else watch.note_end("ValueError: no", follows=False)
        watch.begin_wait()
        assert left.wait(PATIENCE_S)
        return watch.end_wait()

    on_ranks(act, 2, leave=leave)
    assert set(codes) == {EXIT_PEER_FAILED}
    said = capsys.readouterr().err
    assert said.startswith("error: rank 0 cannot go on: rank 1 ")
    assert ("has ended" if how == "in order" else "ended with ValueError: no") in said


def test_nobody_waits_for_ten_seconds_for_a_rank_that_is_stopped_even_where_calls_never_give_up():
    steps = 3 * rank_watch.TICK_S  # until silence is noticed, until all know of it, until they look again
    assert PEER_TIMEOUT_S + rank_watch._LEAVE_S + steps < 10


def test_ranks_are_watched_whoever_else_connects_and_nobody_can_once_they_are(monkeypatch):
    with strangers_at(monkeypatch) as came:

        def act(watch, rank):
            if rank == 0:
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection(came.sockets[0].getpeername())
            if rank == 2:
                return watch.note_end("ValueError: no", follows=False)
            return cause(watch)

        first, second, _ = on_ranks(act)
        assert first[1] == second[1] == {2} and came.listeners == 1


def test_a_message_that_is_none_ends_the_connection():
    def act(watch, rank):
        if rank == 1:
            next(iter(watch._connections))._link.send(b"rubbish\n")
            return None
        return cause(watch)

    text, failed = on_ranks(act, 2)[0]
    assert "rank 1 of 2 on " in text and failed == {1}


def test_a_rank_that_cannot_connect_is_said_to_be_unwatched(monkeypatch):
    def refuse(*_):
        raise ConnectionRefusedError

    monkeypatch.setattr(rank_watch, "greet", refuse)

    def rank(communicator):
        watch = RankWatch(communicator, 8.0, print)
        watch.check()
        watch.leave()
        return watch.unwatched

    assert run_ranks(2, rank) == [[1], [1]]


def test_all_ranks_hear_of_it_where_rank_0_cannot_listen(monkeypatch):
    def fails(ranks):
        raise CommError("no address to listen at")

    monkeypatch.setattr(rank_watch, "_listen", fails)

    def rank(communicator):
        with pytest.raises(CommError, match="no address to listen at"):
            RankWatch(communicator, 8.0, print, lambda code: None)

    run_ranks(3, rank)


def test_the_next_address_is_tried_where_nobody_or_somebody_else_answers(monkeypatch):
    """On rank 1, by a name that is not known, then at a listener that hangs up, then at rank 0's."""
    others = Listener([LOOPBACK])
    tried = []

    def greet(address, rank, patience_s, host):
        tried.append(host)
        if len(tried) != 2:
            return listener.greet(address, rank, patience_s, host)
        connected = listener.greet(others.address, rank, patience_s)
        others.close()
        return connected

    monkeypatch.setattr(rank_watch, "greet", greet)
    monkeypatch.setattr(rank_watch, "_listen", lambda _: Listener([LOOPBACK], ["host.invalid", LOOPBACK, LOOPBACK]))
    on_ranks(lambda watch, rank: watch.check(), 2)
    assert tried == ["host.invalid", LOOPBACK, LOOPBACK]


@pytest.mark.parametrize(
    ("transport", "local_size", "interface", "hosts"),
    [
        ("mpi", 2, "", [LOOPBACK]),
        ("gloo", 2, "", [LOOPBACK]),
        ("gloo", 1, "", addresses_of_gloo()[:1]),
        ("gloo", 2, "lo", [LOOPBACK]),
        ("mpi", 1, "lo", [LOOPBACK]),
        ("mpi", 1, "", addresses_for_other_hosts()),
    ],
)
def test_rank_0_listens_only_where_the_others_are(monkeypatch, transport, local_size, interface, hosts):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", interface)
    made = rank_watch._listen(SimpleNamespace(transport=transport, local_size=local_size, size=2))
    assert list(made.address.hosts) == hosts
    made.close()
