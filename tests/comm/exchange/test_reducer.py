import threading

import numpy
import pytest

from mgcaffe.comm.exchange.reducer import Reducer
from mgcaffe.comm.transport.communicator import SingleCommunicator, Waiting
from mgcaffe.comm.transport.threaded import run_ranks
from mgcaffe.errors import CommError
from tests.support.communicators import Broken

pytestmark = pytest.mark.usefixtures("both_transports")


class Gate(SingleCommunicator):
    """Two ranks' worth of sums, each all-reduce waiting until the test lets it through."""

    size = 2

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Semaphore(0)
        self.opened = threading.Semaphore(0)
        self.polls_busily: list[bool] = []
        self.waiting: Waiting | None = None

    def allreduce(self, buffer, op="sum") -> None:
        self.entered.release()
        assert self.opened.acquire(timeout=10)
        buffer *= 2

    def set_busy_polling(self, enabled: bool) -> None:
        self.polls_busily.append(enabled)

    def set_waiting(self, waiting: Waiting) -> None:
        self.waiting = waiting

    def duplicate(self, waiting=None):
        self.waiting = waiting
        return self


def test_means_are_taken_in_place_and_only_of_the_slice():
    def work(ranks):
        flat = numpy.full(6, float(ranks.rank), dtype=numpy.float32)
        reducer = Reducer(ranks, flat)
        handle = reducer.submit(7, 1, 3)
        handle.wait()
        reducer.close()
        assert handle.is_done and handle.group == 7
        return flat.tolist()

    assert run_ranks(2, work) == [[0, 0.5, 0.5, 0.5, 0, 0], [1, 0.5, 0.5, 0.5, 1, 1]]


def test_tensors_are_reduced_in_place():
    torch = pytest.importorskip("torch")

    def work(ranks):
        flat = torch.full((4,), float(ranks.rank), dtype=torch.float64)
        reducer = Reducer(ranks, flat)
        reducer.submit(0, 0, 4).wait()
        reducer.close()
        return flat.tolist()

    assert run_ranks(4, work) == [[1.5] * 4] * 4


def test_the_record_holds_start_and_end_of_each_group():
    gate, now = Gate(), [10.0]
    reducer = Reducer(gate, numpy.ones(4), clock=lambda: now[0])
    handles = [reducer.submit(0, 0, 2), reducer.submit(1, 2, 2)]
    assert gate.entered.acquire(timeout=10)
    now[0] = 13.0
    gate.opened.release()
    assert gate.entered.acquire(timeout=10)
    now[0] = 14.0
    gate.opened.release()
    handles[1].wait()
    reducer.close()
    assert [(each.group, each.start, each.end) for each in handles] == [(0, 10.0, 13.0), (1, 13.0, 14.0)]


def test_each_handle_is_done_by_itself_and_waiting_for_one_waits_for_those_before_it():
    gate = Gate()
    reducer = Reducer(gate, numpy.ones(3))
    handles = [reducer.submit(group, group, 1) for group in range(3)]
    assert [handle.is_done for handle in handles] == [False, False, False]
    gate.opened.release(2)
    handles[1].wait()
    assert [handle.is_done for handle in handles] == [True, True, False]
    handles[0].wait()  # returns at once
    gate.opened.release()
    handles[2].wait()
    reducer.close()


def test_the_waiting_thread_is_woken_only_for_the_group_that_it_waits_for():
    gate = Gate()
    reducer = Reducer(gate, numpy.ones(4))
    wakings, notify_all = [], reducer._changed.notify_all
    reducer._changed.notify_all = lambda: (wakings.append(1), notify_all())
    handles = [reducer.submit(group, group, 1) for group in range(4)]
    threading.Timer(0.1, gate.opened.release, [4]).start()
    handles[3].wait()
    reducer.close()
    assert len(wakings) == 1


def test_the_thread_polls_without_a_pause_while_it_is_waited_for():
    gate = Gate()
    reducer = Reducer(gate, numpy.ones(2), waiting=Waiting(blocking=True))
    assert gate.waiting == Waiting(blocking=True)
    handle = reducer.submit(0, 0, 2)
    assert gate.polls_busily == []
    threading.Timer(0.1, gate.opened.release).start()
    handle.wait()
    assert gate.polls_busily == [True, False]
    reducer.close()


def test_an_error_of_the_thread_is_raised_where_it_is_waited_for():
    reducer = Reducer(Broken(), numpy.ones(2))
    handles = [reducer.submit(0, 0, 2), reducer.submit(1, 0, 2)]
    for handle in reversed(handles):
        with pytest.raises(CommError, match="the link broke"):
            handle.wait()
        assert handle.is_done  # never will be
    reducer.close()


def test_closing_ends_the_thread_and_can_be_repeated():
    before = threading.active_count()
    reducer = Reducer(SingleCommunicator(), numpy.ones(2))
    reducer.close()
    reducer.close()
    assert threading.active_count() == before
    with pytest.raises(CommError, match="after it was closed"):
        reducer.submit(0, 0, 2)


def test_a_type_that_mpi_lacks_is_refused_at_the_start():
    torch = pytest.importorskip("torch")
    with pytest.raises(CommError, match="bfloat16"):
        Reducer(SingleCommunicator(), torch.zeros(2, dtype=torch.bfloat16))


def test_a_gpu_buffer_travels_through_pinned_memory():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    flat = torch.arange(1000, dtype=torch.float32, device="cuda")
    gate = Gate()
    gate.opened.release(2)
    reducer = Reducer(gate, flat)
    flat *= 2
    reducer.submit(0, 0, 600)
    reducer.submit(1, 600, 400).wait()
    reducer.close()
    assert torch.equal(flat.cpu(), 2 * torch.arange(1000, dtype=torch.float32))


class Starting(Gate):
    """Its all-reduces go on by themselves once they are started."""

    def start_allreduce(self, buffer, op="sum"):
        self.entered.release()

        def wait():
            assert self.opened.acquire(timeout=10)
            buffer.__imul__(2)

        return wait


class Refusing(Starting):
    def start_allreduce(self, buffer, op="sum"):
        raise CommError("rank 1 is gone")


def test_sums_that_go_on_by_themselves_start_when_they_are_submitted():
    ranks = Starting()
    flat = numpy.ones(4, numpy.float32)
    reducer = Reducer(ranks, flat)
    handles = [reducer.submit(number, 2 * number, 2) for number in (0, 1)]
    assert ranks.entered.acquire(timeout=10) and ranks.entered.acquire(timeout=10)
    assert not handles[0].is_done
    ranks.opened.release(2)
    handles[1].wait()
    reducer.close()
    assert flat.tolist() == [1, 1, 1, 1]


def test_several_travel_at_a_time_only_where_sums_go_on_by_themselves():
    for ranks, at_once in ((Starting(), 2), (Gate(), 1)):
        reducer = Reducer(ranks, numpy.ones(2, numpy.float32))
        assert reducer.is_one_by_one
        reducer.set_waiting(Waiting(at_once=2))
        assert (ranks.waiting.at_once, reducer.is_one_by_one) == (at_once, at_once == 1)
        reducer.close()


def test_a_sum_that_cannot_start_raises_where_it_is_waited_for():
    reducer = Reducer(Refusing(), numpy.ones(4, numpy.float32))
    handle = reducer.submit(0, 0, 4)
    with pytest.raises(CommError, match="rank 1 is gone"):
        handle.wait()
    reducer.close()
