"""Connections between ranks without MPI: who may connect, what comes early or is large, and who is gone."""

import contextlib
import os
import threading

import numpy
import pytest

from mgcaffe.comm.transport import connections
from mgcaffe.comm.transport.connections import Connections
from mgcaffe.comm.transport.listener import Address, Listener
from mgcaffe.comm.transport.message_queue import MessageQueue
from mgcaffe.comm.transport.peer_connection import HEAD
from mgcaffe.errors import CommError, PeerFailure
from tests.support.gloo import run_gloo_ranks
from tests.support.strangers import strangers_at

LARGE = 12_000_000
"""Bytes that no kernel's buffer takes at once."""
GROUP = b"8 bytes."


@pytest.fixture
def two():
    """The connections of two ranks."""
    listeners = [Listener(["127.0.0.1"]), Listener(["127.0.0.1"])]
    addresses = [each.address for each in listeners]
    made = {}
    first = threading.Thread(target=lambda: made.update({0: Connections(0, listeners[0], addresses, 5.0)}))
    first.start()
    made[1] = Connections(1, listeners[1], addresses, 5.0)
    first.join()
    yield made[0], made[1]
    for each in made.values():
        each.close()


def send(connections, to, content):
    head = HEAD.pack(len(content), GROUP, 1 - to, 9)
    return connections.send(to, head, numpy.frombuffer(content, numpy.uint8))


def test_what_comes_before_a_rank_has_made_the_group_is_kept_in_order(two):
    queue, other = MessageQueue(0, 5.0), MessageQueue(0, 5.0)
    two[0].join(b"another.", other)
    two[0].start()
    for content in (b"one", b"", b"three"):
        send(two[1], 0, content)
    two[1].send(0, HEAD.pack(0, b"another.", 1, 5), numpy.empty(0, numpy.uint8))
    assert other.find(None, None, 5.0).tag == 5  # the others have come before it
    two[0].join(GROUP, queue)
    send(two[1], 0, b"four")
    assert [queue.take(1, 9)[0].tobytes() for _ in range(4)] == [b"one", b"", b"three", b"four"]


def test_nothing_is_read_before_the_start_and_messages_that_wait_are_given_up_with_the_connection(two):
    sendings = [send(two[1], 0, bytes(LARGE)) for _ in range(2)]
    assert not any(each.done.wait(0.05) for each in sendings)
    two[1].close()
    assert all(each.done.is_set() and each.is_lost for each in sendings)
    assert send(two[1], 0, b"late").is_lost


def test_a_rank_that_cannot_be_reached_or_never_comes_is_named():
    own, unused = Listener(["127.0.0.1"]), Listener(["127.0.0.1"])
    unused.close()
    with pytest.raises(PeerFailure, match=r"rank 1 cannot connect to rank 0 at .* refused\n.*GLOO_SOCKET_IF") as caught:
        Connections(1, own, [unused.address, own.address], 5.0)
    assert caught.value.failed == {0}
    own = Listener(["127.0.0.1"])
    with pytest.raises(PeerFailure, match="rank 1 has not connected for messages") as caught:
        Connections(0, own, [own.address, Address(("",), 0, b""), Address(("",), 0, b"")], 0.05)
    assert caught.value.failed == {1}


def test_a_rank_that_does_not_answer_is_named():
    own, silent = Listener(["127.0.0.1"]), Listener(["127.0.0.1"])
    with (
        contextlib.closing(silent),
        pytest.raises(PeerFailure, match=r"rank 1 cannot connect to rank 0 at 127\.0\.0\.1 port \d+: timed out"),
    ):
        Connections(1, own, [silent.address, own.address], 0.05)


def test_ranks_start_and_send_each_other_messages_whoever_else_connects(monkeypatch):
    def work(ranks):
        others = sorted({0, 1, 2} - {ranks.rank})
        for other in others:
            ranks.send(numpy.array([ranks.rank]), other)
        return [ranks.receive_any(other).content.view(numpy.int64).tolist() for other in others]

    with strangers_at(monkeypatch) as came:
        assert run_gloo_ranks(3, work) == [[[1], [2]], [[0], [2]], [[0], [1]]]
        assert came.listeners == 3


def test_ranks_may_send_each_other_large_messages_before_either_receives():
    def work(ranks):
        sent = numpy.full(LARGE, ranks.rank, numpy.uint8)
        sent[-1] = 7
        ranks.send(sent, 1 - ranks.rank)
        came = numpy.empty(LARGE, numpy.uint8)
        ranks.receive(came, 1 - ranks.rank)
        return int(came[0]), int(came[-2]), int(came[-1])

    assert run_gloo_ranks(2, work) == [(1, 1, 7), (0, 0, 7)]


def test_a_rank_that_makes_no_calls_holds_up_no_sender():
    sent = threading.Event()

    def work(ranks):
        if ranks.rank == 1:
            assert sent.wait(10)
            return [(each.size, int(each[-1])) for each in (ranks.receive_any(0).content for _ in range(3))]
        if ranks.rank == 2:
            return ranks.receive_any().content.tolist()
        sendings = [ranks.start_send(numpy.full(LARGE, number, numpy.uint8), 1) for number in range(3)]
        ranks.send(numpy.array([3], numpy.uint8), 2)
        assert not sendings[-1].is_done()
        sent.set()
        for each in sendings:
            each.wait()
            assert each.is_done()
        return None

    assert run_gloo_ranks(3, work)[1:] == [[(LARGE, number) for number in range(3)], [3]]


def test_a_rank_that_is_gone_fails_those_who_need_it_unless_that_is_tolerated():
    gone = threading.Event()

    def work(ranks):
        strict = ranks.duplicate()
        if ranks.rank == 2:
            ranks.send(numpy.array([5.0]), 0)
            assert ranks.probe(0, 1) is not None  # rank 0 has it
            ranks.connections.close()
            gone.set()
        elif ranks.rank == 1:
            assert gone.wait(15)
            strict.send(numpy.array([6.0]), 0)
        else:
            ranks.tolerate({2})
            assert ranks.probe().source == 2
            ranks.send(numpy.empty(0), 2, tag=1)
            assert gone.wait(15)
            assert ranks.receive_any().content.view(numpy.float64) == 5.0  # what it has sent before counts
            with pytest.raises(PeerFailure, match=r"rank 2 is gone, or does not answer \(connection closed\)") as error:
                ranks.receive(numpy.empty(1), 2)
            assert error.value.failed == {2} and ranks.lost == {2} and strict.lost == frozenset()
            assert ranks.receive_any(patience_s=0.01) is None
            dropped = ranks.start_send(numpy.zeros(LARGE), 2)
            dropped.wait()
            assert dropped.is_done()
            assert strict.receive_any(1).content.view(numpy.float64) == 6.0
            for call in (strict.receive_any, lambda: strict.probe(patience_s=0), lambda: strict.send(numpy.ones(1), 2)):
                with pytest.raises(PeerFailure, match="rank 2 is gone"):
                    call()

    run_gloo_ranks(3, work)


def test_ranks_of_a_part_are_named_by_their_numbers_in_it():
    def work(ranks):
        part = ranks.split(0 if ranks.rank else None)
        if ranks.rank == 2:
            part.send(numpy.array([1.0]), 0, tag=4)
            part.probe(0, 5)
            part.connections.close()
        elif ranks.rank == 1:
            message = part.receive_any()
            part.send(numpy.empty(0), 1, tag=5)
            with pytest.raises(PeerFailure) as caught:
                part.receive_any()
            return message.source, message.tag, caught.value.failed
        return None

    assert run_gloo_ranks(3, work)[1] == (1, 4, {1})


def test_a_closed_communicator_takes_no_messages():
    def work(ranks):
        other = ranks.duplicate()
        other.close()
        for call in (lambda: other.send(numpy.zeros(1), 1 - ranks.rank), lambda: other.probe(patience_s=0)):
            with pytest.raises(CommError, match="used after it was closed"):
                call()

    run_gloo_ranks(2, work)


def test_what_was_sent_to_a_closed_communicator_is_let_go_also_what_comes_later():
    def work(ranks):
        kept, other = ranks.connections, ranks.duplicate()
        ranks.barrier()
        before = len(kept._queues)
        if ranks.rank == 0:
            other.start_send(numpy.zeros(LARGE), 1, tag=1).wait()
            ranks.send(numpy.zeros(1), 1)
            ranks.receive(numpy.zeros(1), 1)  # rank 1 has closed it
            other.start_send(numpy.zeros(LARGE), 1, tag=2).wait()
            ranks.send(numpy.zeros(1), 1)
            return other.close()
        ranks.receive(numpy.zeros(1), 0)
        queue = other._messages._queue
        assert other.probe().tag == 1
        other.close()
        assert not queue._pending
        ranks.send(numpy.zeros(1), 0)
        ranks.receive(numpy.zeros(1), 0)
        return queue._pending, before - len(kept._queues), kept._early

    assert run_gloo_ranks(2, work)[1] == ([], 1, {})


def test_who_waits_for_a_message_of_a_communicator_that_is_closed_hears_of_it():
    def work(ranks):
        other, said = ranks.duplicate(), []

        def wait():
            with pytest.raises(CommError, match="closed") as caught:
                other.receive_any()
            said.append(caught.type)

        waiting = threading.Thread(target=wait)
        waiting.start()
        assert not waiting.join(0.05) and waiting.is_alive()
        other.close()
        waiting.join()
        return said

    assert run_gloo_ranks(2, work) == [[CommError]] * 2


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_process_leaves_the_connections_to_its_parent(two):
    process = os.fork()
    if not process:
        # Copies that stayed open would hide the parent's end from the other rank.
        are_let_go = all(each._socket.fileno() == -1 for each in two[0]._peers.values())
        connections._close(two[0]._peers, os.getppid())  # as at the end of Python
        os._exit(0 if are_let_go else 1)
    assert os.waitpid(process, 0)[1] == 0
    queue = MessageQueue(0, 5.0)
    two[0].join(GROUP, queue)
    two[0].start()
    send(two[1], 0, b"here")
    assert queue.take(1, 9)[0].tobytes() == b"here"
    assert not two[0].lost
