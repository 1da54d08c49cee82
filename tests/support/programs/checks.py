"""Checks of comm over real MPI, run under mpirun by test_communicator.py; each prints one line a rank."""

from __future__ import annotations

import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy

from mgcaffe.comm.exchange.merged_all_reduce import MergedAllReduce
from mgcaffe.comm.exchange.sums.base import TransferSettings
from mgcaffe.comm.exchange.sums.make import make_sum
from mgcaffe.comm.planning.cost import AffineCost
from mgcaffe.comm.planning.plan import Segment, ready_times
from mgcaffe.comm.planning.schedules import SCHEDULES, make_plan
from mgcaffe.comm.transport import messages
from mgcaffe.comm.transport.clock import measure_offsets
from mgcaffe.comm.transport.communicator import Waiting
from mgcaffe.comm.transport.connect import check_place, connect
from mgcaffe.comm.transport.environment import detect
from mgcaffe.comm.transport.handshake import handshake
from mgcaffe.comm.transport.mpi import MpiCommunicator
from mgcaffe.comm.tuning.calibration import agree_times, measure_allreduce, measure_allreduce_costs
from mgcaffe.errors import CommError, RankDisagreement

SIGNALS = (signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
signalled: list[int] = []
for number in SIGNALS:
    signal.signal(number, lambda received, frame: signalled.append(received))
ranks = connect()
assert isinstance(ranks, MpiCommunicator)
rank, size = ranks.rank, ranks.size
checks: list[Callable[[], None]] = []


def check(function: Callable[[], None]) -> Callable[[], None]:
    checks.append(function)
    return function


@check
def rank_and_size_are_the_launchers() -> None:
    launch = detect()
    assert (launch.rank, launch.size) == (rank, size)
    assert (launch.local_rank, launch.local_size) == (ranks.local_rank, ranks.local_size) == (rank, size)


@check
def signals_that_are_handled_before_mpi_is_loaded_stay_so() -> None:
    for number in SIGNALS:
        signal.raise_signal(number)
    assert signalled == list(SIGNALS)


@check
def a_library_that_sees_another_size_is_refused() -> None:
    try:
        check_place(detect(), 0, 1, "Some MPI 1.0")
    except CommError as error:
        assert f"says rank {rank} of {size}" in str(error) and "Some MPI 1.0" in str(error)
    else:
        raise AssertionError("no error")


@check
def allreduce_sums_any_count_and_type() -> None:
    for way in (ranks, ranks.duplicate(), ranks.duplicate(Waiting(blocking=True))):
        for kind in ("float32", "float64", "int64"):
            for count in (0, 1, 2, 3, 5, 1000, 100_003):
                buffer = (numpy.arange(count) % 97 + rank).astype(kind)
                way.allreduce(buffer)
                expected = (numpy.arange(count) % 97) * size + size * (size - 1) // 2
                assert numpy.array_equal(buffer, expected.astype(kind)), (kind, count)


@check
def who_has_waited_for_long_sleeps_by_that() -> None:
    @dataclass(frozen=True)
    class Noted(Waiting):
        def pause(self, waited: float) -> float:
            seen.append(waited)
            return super().pause(waited)

    seen: list[float] = []
    other = ranks.duplicate(Noted())
    if rank == 0:
        time.sleep(0.1)
    other.allreduce(numpy.ones(1))
    if rank != 0:
        assert seen == sorted(seen) and seen[-1] > 0.05, seen


@check
def a_library_for_one_thread_at_a_time_works_under_a_lock() -> None:
    for waiting in (Waiting(), Waiting(blocking=True)):
        other = ranks.duplicate(waiting)
        other._serialized = True
        buffer = numpy.full(1000, float(rank))
        other.allreduce(buffer)
        assert (buffer == size * (size - 1) / 2).all()
        assert other.allgather(rank) == list(range(size))


@check
def allreduce_takes_maximum_and_minimum() -> None:
    buffer = numpy.array([float(rank), -float(rank)])
    ranks.allreduce(buffer, "max")
    assert buffer.tolist() == [size - 1, 0]
    buffer = numpy.array([float(rank), -float(rank)])
    ranks.allreduce(buffer, "min")
    assert buffer.tolist() == [0, 1 - size]


@check
def sums_are_equal_to_the_bit_on_all_ranks() -> None:
    for count in (1, 7, 1000, 65_537):
        buffer = numpy.random.default_rng(rank).normal(size=count).astype(numpy.float32)
        ranks.allreduce(buffer)
        assert len({each for each in ranks.allgather(buffer.tobytes())}) == 1


@check
def broadcast_takes_the_roots_buffer() -> None:
    for root in range(size):
        buffer = numpy.full(10, float(rank))
        ranks.broadcast(buffer, root)
        assert buffer.tolist() == [float(root)] * 10


@check
def objects_of_different_sizes_are_gathered() -> None:
    value = {"rank": rank, "text": "x" * 1000 * rank}
    everyones = ranks.allgather(value)
    assert [each["rank"] for each in everyones] == list(range(size))
    assert [len(each["text"]) for each in everyones] == [1000 * each for each in range(size)]
    gathered = ranks.gather(rank)
    assert gathered == (list(range(size)) if rank == 0 else None)
    assert ranks.broadcast_object({"from": rank} if rank == 1 else None, root=1) == {"from": 1}
    ranks.barrier()


@check
def a_meeting_gives_up_on_a_rank_that_does_not_come() -> None:
    mine = ranks.duplicate()
    if rank == 0:
        assert mine.meet(b"hello", 0.1) is None
    ranks.barrier()


@check
def a_meeting_exchanges_messages() -> None:
    assert ranks.duplicate().meet(b"m" * rank, 5.0) == [b"m" * each for each in range(size)]


@check
def messages_of_any_size_reach_a_server_and_its_answers_come_back() -> None:
    other = ranks.duplicate()
    for serialized in (False, True):
        other._serialized = serialized
        for count in (0, 1, 100_003):
            if rank == 0:
                answers = []
                for _ in range(size - 1):
                    found = other.probe()
                    assert found is not None
                    message = other.receive_any(found.source, found.tag)
                    assert message is not None and message.source == found.source == message.tag
                    assert message.content.size == found.bytes == 4 * count * message.source
                    answers.append(other.start_send(message.content.view("float32") * 2, message.source, 9))
                for answer in answers:
                    answer.wait()
            else:
                buffer = numpy.full(count * rank, float(rank), numpy.float32)
                other.send(buffer, 0, rank)
                other.receive(buffer, 0, 9)
                assert (buffer == 2 * rank).all() and (buffer.size == count * rank)
            other.barrier()


@check
def messages_in_pieces_arrive_whole_and_in_order() -> None:
    sizes, messages.PIECE = [0, 5, 1024, 4096, 5000], 1024
    try:
        other, contents = ranks.duplicate(), [numpy.arange(each, dtype=numpy.uint8) for each in sizes]
        if rank == 0:
            for sending in [other.start_send(each, 1) for each in [*contents, *contents]]:
                sending.wait()
        elif rank == 1:
            for content in contents:
                came = numpy.empty_like(content)
                other.receive(came, 0)
                assert numpy.array_equal(came, content)
            for content in contents:
                message = other.receive_any()
                assert message is not None and numpy.array_equal(message.content, content)
    finally:
        messages.PIECE = 1 << 30


@check
def a_message_of_another_size_is_an_error() -> None:
    other = ranks.duplicate()
    if rank == 0:
        other.start_send(numpy.zeros(3), 1, 7)
    elif rank == 1:
        try:
            other.receive(numpy.zeros(2), 0, 7)
        except CommError as error:
            assert "expects 16 bytes of rank 0 with tag 7, and 24 came" in str(error)
        else:
            raise AssertionError("no error")
        other.receive(numpy.zeros(3), 0, 7)


@check
def a_closed_communicator_is_an_error() -> None:
    other = ranks.duplicate()
    other.close()
    try:
        other.barrier()
    except CommError as error:
        assert "closed" in str(error)
    else:
        raise AssertionError("no error")


@check
def a_handshake_over_different_facts_fails_alike_on_all_ranks() -> None:
    handshake(ranks, {"net": "a", "world size": str(size)})
    try:
        handshake(ranks, {"net": f"a\n{rank == size - 1}"})
    except RankDisagreement as error:
        assert len(set(ranks.allgather(str(error)))) == 1
    else:
        raise AssertionError("no error")


@check
def the_slowest_ranks_times_are_taken() -> None:
    times = [0.25 * (rank + 1), 1.0 - 0.125 * rank]
    assert agree_times(ranks, times) == [0.25 * size, 1.0]


@check
def calibration_gives_all_ranks_the_same_rising_curve() -> None:
    flat = numpy.ones(300_000, dtype=numpy.float32)
    curve = measure_allreduce(ranks.duplicate(), flat, budget_s=30.0)
    assert len(set(ranks.allgather(tuple(curve.points)))) == 1
    sizes, seconds = zip(*curve.points, strict=True)
    assert sizes[0] == 1024 and sizes[-1] == 1_200_000 and list(seconds) == sorted(seconds)
    assert not flat.any()


@check
def every_way_of_waiting_is_measured_alike_on_all_ranks() -> None:
    costs = measure_allreduce_costs(ranks, numpy.ones(50_000, dtype=numpy.float32), budget_s=30.0)
    curves = (costs.polled, costs.busy_polled, costs.blocking)
    assert len(set(ranks.allgather(tuple(tuple(curve.points) for curve in curves)))) == 1
    assert {curve.points[-1][0] for curve in curves} == {200_000}


@check
def changing_the_call_between_two_iterations_changes_no_sum() -> None:
    other = ranks.duplicate()
    for blocking in (True, False, True):
        other.set_waiting(Waiting(blocking=blocking))
        buffer = numpy.full(1000, float(rank))
        other.allreduce(buffer)
        assert (buffer == size * (size - 1) / 2).all()


def _reduce_with(
    schedule: str, waiting: Waiting | None = None, background: bool = True, blocking: bool = False
) -> bytes:
    counts = [5, 0, 1000, 3, 70_001, 12]
    offsets = numpy.cumsum([0, *counts]).tolist()
    segments = [Segment(f"layer {i}", offsets[i], counts[i]) for i in range(len(counts))]
    flat = numpy.random.default_rng(100 + rank).normal(size=offsets[-1]).astype(numpy.float32)
    if not background:
        ranks.allreduce(flat)
        flat /= size
        return flat.tobytes()
    plan = make_plan(
        schedule,
        segments,
        ready_times([1e-3] * len(counts)),
        AffineCost(5e-4, 1e-8),
        element_bytes=4,
        bucket_bytes=4000,
    )
    sync = MergedAllReduce(ranks, replace(plan, blocking=blocking), waiting=waiting)
    sync.start(flat, segments)
    sync.begin_iteration()
    for index in reversed(range(len(segments))):
        sync.gradients_ready(index)
    report = sync.wait()
    sync.close()
    assert len(report.groups) == len(plan.groups)
    return flat.tobytes()


@check
def all_schedules_give_equal_bits_on_all_ranks() -> None:
    results = {schedule: _reduce_with(schedule) for schedule in SCHEDULES}
    results["blocking"] = _reduce_with("wfbp", Waiting(blocking=True))
    results["plan that asks for blocking calls"] = _reduce_with("optimal", blocking=True)
    results["no background"] = _reduce_with("", background=False)
    for name, result in results.items():
        assert len(set(ranks.allgather(result))) == 1, name
    if size == 2:
        assert len(set(results.values())) == 1
    values = [numpy.frombuffer(result, numpy.float32) for result in results.values()]
    for value in values:
        numpy.testing.assert_allclose(value, values[0], rtol=1e-5, atol=1e-6)


@check
def parts_of_the_ranks_and_parts_of_buffers() -> None:
    for way in (ranks.duplicate(), ranks.duplicate(Waiting(blocking=True))):
        buffer = numpy.full(1000, float(rank))
        way.reduce(buffer, root=size - 1)
        assert rank < size - 1 or (buffer == size * (size - 1) / 2).all()
        half = way.split(rank % 2)
        assert half is not None and (half.size, half.rank) == (size // 2, rank // 2)
        assert half.allgather(rank) == list(range(rank % 2, size, 2))
        assert (way.split(0 if rank == 1 else None) is None) == (rank != 1)
        counts = [3 + each for each in range(size)]  # rank r receives 3 + r elements of everybody
        send = numpy.concatenate([numpy.full(3 + to, 10 * rank + to, numpy.uint16) for to in range(size)])
        receive = numpy.empty(size * (3 + rank), numpy.uint16)
        way.alltoallv(send, counts, receive, [3 + rank] * size)
        assert receive.tolist() == [10 * peer + rank for peer in range(size) for _ in range(3 + rank)]
        everything = numpy.empty(sum(counts), numpy.uint16)
        way.allgatherv(numpy.full(3 + rank, rank, numpy.uint16), everything, counts)
        assert everything.tolist() == [peer for peer in range(size) for _ in range(3 + peer)]


@check
def gradients_travel_in_16_bits_and_by_hosts() -> None:
    own = numpy.random.default_rng(rank).normal(size=50_000).astype(numpy.float32)
    exact = numpy.sum(ranks.allgather(own), axis=0, dtype=float)
    hosts = tuple(f"host{each // 2}" for each in range(size))
    for kind, precision in (("float32", 1e-6), ("float16", 2.0**-10), ("bfloat16", 2.0**-7)):
        for hierarchical in (False, True):
            flat = own.copy()
            make_sum(ranks.duplicate(), TransferSettings(kind, hierarchical, hosts))(0, flat)
            assert len(set(ranks.allgather(flat.tobytes()))) == 1, kind
            assert numpy.linalg.norm(flat - exact) <= precision * numpy.linalg.norm(exact), kind


@check
def clocks_of_one_host_agree_within_their_uncertainty() -> None:
    for offset in measure_offsets(ranks):
        assert abs(offset.seconds) <= offset.uncertainty < 0.5


@check
def main_thread_and_reducer_call_mpi_at_the_same_time() -> None:
    flat = numpy.full(2_000_000, float(rank), dtype=numpy.float32)
    segments = [Segment(f"layer {i}", i * 100_000, 100_000) for i in range(20)]
    plan = make_plan("wfbp", segments, ready_times([0.0] * 20), AffineCost(1e-4, 1e-9), element_bytes=4)
    sync = MergedAllReduce(ranks, plan)
    sync.start(flat, segments)
    for _ in range(3):
        flat[:] = rank
        sync.begin_iteration()
        for index in reversed(range(20)):
            sync.gradients_ready(index)
            divisor = numpy.array([1.0])
            ranks.allreduce(divisor)
            assert divisor[0] == size
        sync.wait()
        assert (flat == (size - 1) / 2).all()
    sync.close()


@check
def ranks_with_different_plans_are_told() -> None:
    segments = [Segment("a", 0, 2), Segment("b", 2, 2)]
    plan = make_plan("single" if rank == 0 else "wfbp", segments, [1.0, 0.5], AffineCost(1, 1), element_bytes=4)
    sync = MergedAllReduce(ranks, plan)
    try:
        sync.start(numpy.zeros(4, dtype=numpy.float32), segments)
    except RankDisagreement as error:
        assert "different plans" in str(error)
    else:
        raise AssertionError("no error")
    finally:
        sync.close()


for function in checks:
    try:
        function()
        said = "ok"
    except Exception as error:
        traceback.print_exc()
        said = f"{type(error).__name__}: {error}".replace("\n", " ")
    # One write a line: the ranks share one pipe.
    sys.stdout.write(f"CHECK\t{function.__name__}\t{rank}\t{said}\n")
    sys.stdout.flush()
