"""The communicator over gloo, with threads as ranks: what every communicator does, and what is gloo's alone."""

import subprocess
import sys
import threading
import time
import weakref
from datetime import timedelta

import numpy
import pytest
import torch.distributed as dist

from mgcaffe.comm.transport import gloo_group
from mgcaffe.comm.transport.communicator import Waiting
from mgcaffe.comm.transport.process_group import ProcessGroupCommunicator
from mgcaffe.comm.transport.rendezvous import StorePlace
from mgcaffe.errors import CommError, PeerFailure
from tests.support.gloo import run_gloo_ranks


@pytest.mark.parametrize("size", [2, 3])
def test_sums_of_any_count_and_type_are_equal_to_the_bit_on_all_ranks(size):
    def work(ranks):
        for kind in ("float32", "float64", "int64", "int32", "uint8"):
            for count in (0, 1, 5, 1000, 10_003):
                buffer = (numpy.arange(count) % 37 + ranks.rank).astype(kind)
                ranks.allreduce(buffer)
                expected = (numpy.arange(count) % 37) * size + size * (size - 1) // 2
                assert numpy.array_equal(buffer, expected.astype(kind)), (kind, count)
        values = numpy.random.default_rng(ranks.rank).normal(size=65_537).astype(numpy.float32)
        ranks.allreduce(values)
        return values.tobytes()

    assert len(set(run_gloo_ranks(size, work))) == 1


def test_other_calls():
    def work(ranks):
        rank, size = ranks.rank, ranks.size
        bounds = numpy.array([float(rank), -float(rank)])
        largest = bounds.copy()
        ranks.allreduce(largest, "max")
        ranks.allreduce(bounds, "min")
        assert (largest.tolist(), bounds.tolist()) == ([size - 1, 0], [0, 1 - size])
        for root in range(size):
            half = numpy.full(10, rank, numpy.uint16)  # a type that gloo does not know
            ranks.broadcast(half, root)
            assert half.tolist() == [root] * 10
        total = numpy.full(1000, float(rank))
        ranks.reduce(total, root=1)
        assert rank != 1 or (total == size * (size - 1) / 2).all()
        assert ranks.allgather("x" * 1000 * rank) == ["x" * 1000 * each for each in range(size)]
        assert ranks.gather(rank) == (list(range(size)) if rank == 0 else None)
        assert ranks.broadcast_object({"from": rank} if rank == 1 else None, root=1) == {"from": 1}
        ranks.barrier()
        counts = [3 * each for each in range(size)]  # rank 0 receives nothing
        sent = numpy.concatenate([numpy.full(3 * to, 10 * rank + to, numpy.uint16) for to in range(size)])
        came = numpy.empty(size * 3 * rank, numpy.uint16)
        ranks.alltoallv(sent, counts, came, [3 * rank] * size)
        assert came.tolist() == [10 * peer + rank for peer in range(size) for _ in range(3 * rank)]
        everything = numpy.empty(sum(counts), numpy.uint16)
        ranks.allgatherv(numpy.full(3 * rank, rank, numpy.uint16), everything, counts)
        assert everything.tolist() == [peer for peer in range(size) for _ in range(3 * peer)]
        assert (ranks.local_rank, ranks.local_size) == (rank, size)

    run_gloo_ranks(3, work)


def test_duplicates_and_parts_are_groups_of_their_own():
    def work(ranks):
        other = ranks.duplicate(Waiting(blocking=True))
        first = numpy.array([1.0])
        # One rank calls first on the one and then on the other, the other rank the other way round.
        calls = [lambda: ranks.allreduce(first), other.barrier]
        mine = calls if ranks.rank == 0 else calls[::-1]
        thread = threading.Thread(target=mine[0])
        thread.start()
        mine[1]()
        thread.join()
        assert first[0] == 3.0
        half = other.split(ranks.rank % 2)
        assert half.allgather(ranks.rank) == list(range(ranks.rank % 2, 3, 2))
        assert (half.local_rank, half.local_size) == (half.rank, half.size)
        assert (other.split(0 if ranks.rank == 1 else None) is None) == (ranks.rank != 1)

    run_gloo_ranks(3, work)


def test_several_all_reduces_may_travel_at_a_time():
    def work(ranks):
        for at_once in (1, 2, 1, 2):
            ranks.set_waiting(Waiting(at_once=at_once))
            buffers = [numpy.full(count, ranks.rank + count, numpy.float32) for count in (300_000, 1, 5000, 70_000)]
            for wait in [ranks.start_allreduce(buffer) for buffer in buffers]:
                wait()
            assert all((buffer == 3 * buffer.size + 3).all() for buffer in buffers)
        ranks.close()
        with pytest.raises(CommError, match="closed"):
            ranks.start_allreduce(buffers[0])

    run_gloo_ranks(3, work)


def test_a_meeting_gives_up_and_another_call_may_be_unfinished_meanwhile():
    def work(ranks):
        mine, other = ranks.duplicate(), ranks.duplicate()
        if ranks.rank == 0:
            assert mine.meet(b"hello", 0.05) is None
            other.barrier()
            late = threading.Thread(target=ranks.barrier)
            late.start()
        else:
            other.barrier()
            assert mine.meet(b"late", None) is None  # the other one has given up
        messages = other.meet(b"m" * ranks.rank, 5.0)
        ranks.barrier() if ranks.rank != 0 else late.join()
        return messages

    assert run_gloo_ranks(2, work) == [[b"", b"m"]] * 2


def test_a_closed_communicator_is_an_error_and_its_group_goes_once_all_ranks_have_closed_it():
    def work(ranks):
        other = ranks.duplicate()
        group = weakref.ref(other._group)
        other.close()
        other.close()
        with pytest.raises(CommError, match="used after it was closed"):
            other.barrier()
        del other
        assert group() is not None
        ranks.barrier()
        ranks.duplicate()
        return group() is None

    assert run_gloo_ranks(2, work) == [True, True]


def test_a_rank_that_never_comes_is_a_peer_failure_with_its_number():
    def work(ranks):
        if ranks.rank == 0:
            with pytest.raises(PeerFailure, match="rank 1 is gone, or does not answer") as caught:
                ranks.allreduce(numpy.zeros(3))
            assert caught.value.failed == {1} and caught.value.exit_code == 69
        else:
            time.sleep(0.6)

    run_gloo_ranks(2, work, timeout_s=0.3)


def test_a_host_that_is_known_by_a_loopback_address_is_explained():
    def fail(address):
        raise RuntimeError(f"Gloo connectFullMesh failed with [pair.cc:152] SO_ERROR: Connection refused, {address}")

    group = gloo_group.GlooGroup(StorePlace(dist.HashStore(), 0, 1), 20.0)
    with pytest.raises(PeerFailure, match="GLOO_SOCKET_IFNAME"):
        group.guarded(lambda: fail("remote=[127.0.1.1]:23973$1"))
    with pytest.raises(PeerFailure, match=r"10\.0\.0\.1") as caught:
        group.guarded(lambda: fail("remote=[10.0.0.1]:23973$1"))
    assert "GLOO_SOCKET_IFNAME" not in str(caught.value)
    group.drop()


def test_gloos_advice_to_read_other_logs_is_left_out():
    text = "[/pytorch/pair.cc:534] Connection closed by peer [10.0.0.1]:83. This is typically caused by a crash. GLHF!"

    def fail():
        raise RuntimeError(text)

    group = gloo_group.GlooGroup(StorePlace(dist.HashStore(), 0, 1), 20.0)
    with pytest.raises(PeerFailure, match=r"does not answer \(Connection closed by peer \[10\.0\.0\.1\]:83\)$"):
        group.guarded(fail)
    group.drop()


@pytest.mark.parametrize(
    "call",
    [
        lambda ranks: ranks.allreduce(numpy.zeros(3)),
        lambda ranks: ranks.allgatherv(numpy.zeros(3), numpy.zeros(6), [3, 3]),
        lambda ranks: ranks.allgather("x"),
        lambda ranks: ranks.alltoallv(numpy.zeros(6), [3, 3], numpy.zeros(6), [3, 3]),
    ],
    ids=["allreduce", "allgatherv", "allgather", "alltoallv"],
)
def test_calls_are_left_once_waiting_is_known_to_be_in_vain(monkeypatch, call):
    monkeypatch.setattr(gloo_group, "_SLICE", timedelta(seconds=0.02))
    left = threading.Event()

    def check():
        raise PeerFailure("rank 1 is stopped")

    def work(ranks):
        if ranks.rank == 0:
            ranks.place.alarm.set(check)
            with pytest.raises(PeerFailure, match="rank 1 is stopped"):
                call(ranks)
            left.set()
        else:
            assert left.wait(10)

    run_gloo_ranks(2, work)


def test_buffers_that_gloo_cannot_reduce_are_errors():
    def work(ranks):
        with pytest.raises(CommError, match="gloo cannot reduce buffers of type uint16"):
            ranks.allreduce(numpy.zeros(3, numpy.uint16))
        with pytest.raises(CommError, match="not contiguous"):
            ranks.allreduce(numpy.zeros((4, 4))[:, ::2])

    run_gloo_ranks(1, work)


def test_without_a_process_group_there_is_an_error():
    with pytest.raises(CommError, match="init_process_group"):
        ProcessGroupCommunicator()


def test_an_existing_group_lends_its_store_and_its_ranks(tmp_path):
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        one, two = ProcessGroupCommunicator(), ProcessGroupCommunicator(dist.group.WORLD)
        for ranks in (one, two):
            assert (ranks.rank, ranks.size, ranks.allgather("x")) == (0, 1, ["x"])
            assert ranks.meet(b"m", 1.0) == [b"m"]
    finally:
        dist.destroy_process_group()


_ENDING = """
import atexit, os, threading
count = lambda: len(os.listdir("/proc/self/task"))
atexit.register(lambda: print(count() - before))  # called last
import torch, torch.distributed as dist
from mgcaffe.comm.transport.gloo_group import GlooGroup
from mgcaffe.comm.transport.rendezvous import StorePlace
before = count()
group = GlooGroup(StorePlace(dist.HashStore(), 0, 1), 20.0)
group.run(lambda gloo: gloo.allreduce([torch.zeros(1000)]))
assert count() > before
"""


@pytest.mark.slow
def test_the_threads_of_gloo_have_ended_when_python_ends():
    result = subprocess.run([sys.executable, "-c", _ENDING], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (0, "0\n"), result.stderr
