import numpy
import pytest

from mgcaffe.comm.transport.threaded import run_ranks
from mgcaffe.errors import CommError, PeerFailure


def test_collective_calls_do_what_they_promise():
    def work(ranks):
        buffer = numpy.full(3, float(ranks.rank), dtype=numpy.float32)
        ranks.allreduce(buffer)
        largest = numpy.array([ranks.rank])
        ranks.allreduce(largest, "max")
        roots = numpy.array([ranks.rank])
        ranks.broadcast(roots, root=2)
        ranks.barrier()
        return (
            buffer.tolist(),
            largest[0],
            roots[0],
            ranks.gather(ranks.rank),
            ranks.allgather(ranks.rank),
            ranks.broadcast_object(ranks.rank, root=1),
        )

    results = run_ranks(3, work)
    for rank, result in enumerate(results):
        assert result == ([3.0] * 3, 2, 2, [0, 1, 2] if rank == 0 else None, [0, 1, 2], 1)


def test_duplicates_are_separate_channels():
    def work(ranks):
        other = ranks.duplicate()
        calls = [ranks, other] if ranks.rank == 0 else [other, ranks]
        first = numpy.array([1.0])
        if ranks.rank == 0:
            import threading

            thread = threading.Thread(target=calls[0].allreduce, args=(first,))
            thread.start()
            calls[1].barrier()
            thread.join()
        else:
            calls[0].barrier()
            calls[1].allreduce(first)
        return first[0]

    assert run_ranks(2, work) == [2.0, 2.0]


def test_a_rank_that_raises_frees_the_others():
    def work(ranks):
        if ranks.rank == 1:
            raise ValueError("broken")
        ranks.barrier()

    with pytest.raises(ValueError, match="broken"):
        run_ranks(3, work)


def test_a_rank_that_never_comes_is_a_peer_failure():
    def work(ranks):
        if ranks.rank == 0:
            ranks.barrier()

    with pytest.raises(PeerFailure, match="rank 0 waited without success"):
        run_ranks(2, work, timeout_s=0.2)


def test_different_buffers_are_an_error():
    with pytest.raises(CommError, match="different buffers"):
        run_ranks(2, lambda ranks: ranks.allreduce(numpy.zeros(3 + ranks.rank)))


def test_a_meeting_gives_up():
    assert run_ranks(2, lambda ranks: ranks.meet(b"x", 0.1) if ranks.rank == 0 else None) == [None, None]
    assert run_ranks(2, lambda ranks: ranks.meet(b"x", 5.0)) == [[b"x", b"x"]] * 2


def test_a_rank_that_has_died_sends_nothing_and_waits_for_nobody():
    def work(ranks):
        if ranks.rank == 1:
            ranks.die()
            ranks.send(numpy.ones(1), to=0)
        ranks.barrier()
        return ranks.probe(patience_s=0.0)

    assert run_ranks(2, work, timeout_s=2.0) == [None, None]
