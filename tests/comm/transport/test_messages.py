"""Messages between two ranks, with threads as ranks, also over sockets; tests/mpi has the same over MPI."""

import numpy
import pytest

from mgcaffe.comm.transport import messages, threaded
from mgcaffe.comm.transport.communicator import SingleCommunicator
from mgcaffe.comm.transport.threaded import run_ranks
from mgcaffe.errors import CommError, PeerFailure

pytestmark = pytest.mark.usefixtures("both_transports")


def test_a_buffer_arrives_whatever_its_type():
    def work(ranks):
        for kind in ("float32", "float64", "int64", "uint8"):
            for count in (0, 1, 1000):
                sent = (numpy.arange(count) % 97).astype(kind)
                if ranks.rank == 0:
                    ranks.send(sent, 1, tag=3)
                else:
                    came = numpy.ones(count, kind)
                    ranks.receive(came, 0, tag=3)
                    assert numpy.array_equal(came, sent)

    run_ranks(2, work)


def test_a_server_takes_requests_of_any_size_from_anybody_and_answers():
    def work(ranks):
        if ranks.rank == 0:
            answers = []
            for _ in range(3):
                found = ranks.probe()
                message = ranks.receive_any(found.source, found.tag)
                assert (message.source, message.tag, message.content.size) == (found.source, found.tag, found.bytes)
                answers.append(ranks.start_send(message.content.view(numpy.float64) * 2, message.source, message.tag))
            for answer in answers:
                answer.wait()
                assert answer.is_done()
            return None
        mine = numpy.full(ranks.rank * 10, float(ranks.rank))
        ranks.send(mine, 0, tag=ranks.rank)
        ranks.receive(mine, 0, tag=ranks.rank)
        return mine.tolist()

    assert run_ranks(4, work)[1:] == [[2.0 * rank] * rank * 10 for rank in (1, 2, 3)]


def test_messages_are_told_apart_by_source_and_tag_and_otherwise_keep_their_order():
    def work(ranks):
        if ranks.rank != 0:
            sent = [ranks.start_send(numpy.array([number]), 0, tag=number % 2) for number in range(4)]
            for each in sent:
                each.wait()
            return None
        return [ranks.receive_any(source, tag).content[0] for source in (2, 1) for tag in (1, 0) for _ in range(2)]

    assert run_ranks(3, work)[0] == [1, 3, 0, 2] * 2


def test_duplicates_have_messages_of_their_own():
    def work(ranks):
        other = ranks.duplicate()
        if ranks.rank == 0:
            first = ranks.start_send(numpy.array([1.0]), 1)
            other.send(numpy.array([2.0]), 1)
            first.wait()
            return None
        assert ranks.probe(patience_s=5.0) is not None
        return [each.receive_any(0).content.view(numpy.float64)[0] for each in (other, ranks)]

    assert run_ranks(2, work)[1] == [2.0, 1.0]


@pytest.mark.parametrize("count", [3, 4, 8, 9])
def test_a_large_message_travels_in_pieces(monkeypatch, count):
    monkeypatch.setattr(messages, "PIECE", 4)
    sent = numpy.arange(count, dtype=numpy.uint8)
    assert [part.size for part in messages.pieces(sent)] == {3: [3], 4: [4, 0], 8: [4, 4, 0], 9: [4, 4, 1]}[count]

    def work(ranks):
        if ranks.rank == 0:
            ranks.send(sent, 1)
            ranks.send(sent, 1)
            return None
        came = numpy.zeros(count, numpy.uint8)
        ranks.receive(came, 0)
        return came, ranks.receive_any().content

    for came in run_ranks(2, work)[1]:
        assert numpy.array_equal(came, sent)


def test_a_message_of_another_size_is_an_error():
    def work(ranks):
        if ranks.rank == 0:
            ranks.send(numpy.zeros(3), 1, tag=7)
        else:
            ranks.receive(numpy.zeros(2), 0, tag=7)

    with pytest.raises(CommError, match="expects 16 bytes of rank 0 with tag 7, and 24 came"):
        run_ranks(2, work)


def test_who_waits_for_a_message_gives_up_after_a_while_or_when_another_rank_fails():
    assert (
        run_ranks(2, lambda ranks: (ranks.probe(patience_s=0.0), ranks.receive_any(patience_s=0.01)))
        == [(None, None)] * 2
    )

    def work(ranks):
        if ranks.rank == 0:
            raise ValueError("broken")
        with pytest.raises(PeerFailure, match=r"without success|rank 0 is gone"):
            ranks.receive_any()
        seen.append(ranks.rank)

    seen = []
    with pytest.raises(ValueError, match="broken"):
        run_ranks(2, work)
    assert seen == [1]
    with pytest.raises(PeerFailure, match="without success"):
        run_ranks(2, lambda ranks: ranks.receive_any() if ranks.rank == 0 else None, timeout_s=0.1)


def test_between_threads_a_message_that_nobody_receives_is_never_sent():
    with pytest.raises(PeerFailure, match="without success"):
        threaded.run_ranks(2, lambda ranks: ranks.send(numpy.zeros(1), 1) if ranks.rank == 0 else None, timeout_s=0.1)


def test_no_rank_sends_to_itself_or_to_one_that_does_not_exist():
    for other in (0, 2):
        with pytest.raises(CommError, match=f"rank 0 of 2 has no messages to or from rank {other}"):
            run_ranks(2, lambda ranks, other=other: ranks.send(numpy.zeros(1), other) if ranks.rank == 0 else None)
    ranks = SingleCommunicator()
    assert ranks.probe(patience_s=0.0) is ranks.receive_any(patience_s=0.0) is None
    for call in (ranks.send, ranks.start_send, ranks.receive):
        with pytest.raises(CommError, match="rank 0 of 1 has no messages to or from rank 0"):
            call(numpy.zeros(1), 0)
    for wait in (ranks.probe, ranks.receive_any):
        with pytest.raises(CommError, match="to or from any rank"):
            wait()
