import numpy
import pytest
import torch

from mgcaffe.comm.planning.cost import AllReduceCost
from mgcaffe.comm.transport.communicator import SingleCommunicator
from mgcaffe.comm.transport.threaded import run_ranks
from mgcaffe.comm.tuning import calibration
from mgcaffe.comm.tuning.calibration import agree_least_times, agree_times, calibration_sizes, measure_allreduce
from mgcaffe.errors import CommError

pytestmark = pytest.mark.usefixtures("both_transports")


class SimulatedLink(SingleCommunicator):
    """Whose all-reduce moves a clock by a + bM instead of taking time."""

    def __init__(self, a: float, b: float) -> None:
        super().__init__()
        self.now = 0.0
        self.a, self.b = a, b
        self.calls = 0

    def allreduce(self, buffer, op="sum") -> None:
        if op == "sum":
            self.now += self.a + self.b * buffer.nbytes
            self.calls += 1


def measure(link: SimulatedLink, elements: int, **options):
    return measure_allreduce(link, numpy.ones(elements, numpy.float32), clock=lambda: link.now, **options)


def test_sizes_are_powers_of_two_and_the_whole():
    assert calibration_sizes(5000) == [1024, 2048, 4096, 5000]
    assert calibration_sizes(4096) == [1024, 2048, 4096]
    assert calibration_sizes(100) == [100]


def test_the_links_line_is_found():
    curve = measure(SimulatedLink(1e-4, 1e-9), 1_000_000)
    assert curve.points[0][0] == 1024 and curve.points[-1][0] == 4_000_000
    assert curve.affine() == pytest.approx((1e-4, 1e-9, 1.0))


def test_a_slow_link_keeps_within_the_budget():
    link = SimulatedLink(1e-3, 1e-7)
    curve = measure(link, 25_000_000, budget_s=1.5)
    assert link.now < 2.0
    assert curve.points[-1][0] < 100_000_000
    assert curve(100_000_000) == pytest.approx(10.0, rel=0.02)


def test_the_gradient_buffer_is_left_zeroed():
    flat = numpy.ones(1000, numpy.float32)
    measure_allreduce(SingleCommunicator(), flat, budget_s=0.05)
    assert not flat.any()


def test_measuring_every_way_of_waiting_puts_the_gradients_back():
    for flat in (numpy.arange(300, dtype=numpy.float32), torch.arange(300.0)):
        before = [float(value) for value in flat]
        calibration.measure_allreduce_costs(SingleCommunicator(), flat, budget_s=0.05)
        assert [float(value) for value in flat] == before


def test_all_ranks_get_the_same_curve():
    def work(ranks):
        flat = numpy.zeros(20_000 // 4, numpy.float32)
        return tuple(measure_allreduce(ranks, flat, budget_s=0.3).points)

    assert len(set(run_ranks(3, work))) == 1


def test_an_empty_buffer_is_an_error():
    with pytest.raises(CommError, match="empty"):
        measure_allreduce(SingleCommunicator(), numpy.zeros(0, numpy.float32))


def test_times_are_the_longest_of_all_ranks():
    assert run_ranks(2, lambda ranks: agree_times(ranks, [1.0 + ranks.rank, 2.0 - ranks.rank])) == [[2.0, 2.0]] * 2
    assert agree_times(SingleCommunicator(), []) == []


def test_different_numbers_of_layers_are_an_error():
    with pytest.raises(CommError, match="different numbers of layers"):
        run_ranks(2, lambda ranks: agree_times(ranks, [1.0] * (1 + ranks.rank)))


def test_a_way_that_the_budget_cut_short_goes_on_as_the_others_do(monkeypatch):
    """Blocking calls that meet other work at first are not taken to cost proportionally more at every size."""
    whole = [(1024, 1e-4), (2048, 2e-4), (4096, 4e-4)]
    curves = iter([AllReduceCost(whole), AllReduceCost(whole), AllReduceCost([(1024, 5e-3)])])
    monkeypatch.setattr(calibration, "measure_allreduce", lambda *_, **__: next(curves))
    costs = calibration.measure_allreduce_costs(SingleCommunicator(), numpy.zeros(1024, numpy.float32))
    assert costs.polled.points == costs.busy_polled.points == whole
    assert costs.blocking.sizes.tolist() == [1024, 2048, 4096]
    assert costs.blocking.seconds.tolist() == pytest.approx([5e-3, 5.1e-3, 5.3e-3])


def test_every_way_of_waiting_is_measured():
    class Link(SingleCommunicator):
        def __init__(self, seen, waiting=None):
            super().__init__()
            self.seen, self.waiting, self.polls_busily = seen, waiting, False

        def duplicate(self, waiting=None):
            return Link(self.seen, waiting)

        def set_busy_polling(self, enabled):
            self.polls_busily = enabled

        def allreduce(self, buffer, op="sum"):
            if op == "sum":
                self.seen.add((self.waiting.blocking, self.polls_busily))

    link = Link(set())
    costs = calibration.measure_allreduce_costs(link, numpy.zeros(1024, numpy.float32), budget_s=0.05)
    assert link.seen == {(False, False), (False, True), (True, True)}
    assert costs.alone(True) == costs.beside(True) == costs.blocking
    assert costs.alone(False) == costs.busy_polled and costs.beside(False) == costs.polled


def test_the_least_times_of_all_ranks_are_those_without_waiting_for_a_late_peer():
    assert run_ranks(2, lambda ranks: agree_least_times(ranks, [1.0 + ranks.rank, 2.0])) == [[1.0, 2.0]] * 2
