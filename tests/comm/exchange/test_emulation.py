import time

import numpy
import pytest

from mgcaffe.comm.exchange import emulation
from mgcaffe.comm.exchange.emulation import emulate, parse_link, sleep_until
from mgcaffe.comm.exchange.gradient_path import make_path
from mgcaffe.comm.exchange.sums.base import TransferSettings
from mgcaffe.comm.planning.cost import AffineCost
from mgcaffe.comm.transport.communicator import SingleCommunicator
from mgcaffe.comm.transport.threaded import run_ranks
from mgcaffe.comm.tuning.calibration import measure_allreduce
from mgcaffe.errors import UsageError

pytestmark = pytest.mark.usefixtures("both_transports")


def test_a_link_is_read():
    assert parse_link("a=9.08e-4, b=7.40e-10") == AffineCost(9.08e-4, 7.40e-10)


@pytest.mark.parametrize("text", ["", "a=1", "a=1,b=2,c=3", "a=x,b=1", "a=-1,b=0", "9e-4,7e-10"])
def test_what_is_no_link_is_refused(text):
    with pytest.raises(UsageError, match="not understood"):
        parse_link(text)


def test_an_all_reduce_takes_at_least_a_plus_b_times_bytes_and_sums_as_ever():
    def work(ranks):
        flat = numpy.full(1000, float(ranks.rank))
        path = emulate(make_path(ranks, flat), TransferSettings(link=AffineCost(0.01, 1e-6)))
        began = time.perf_counter()
        path.reduce(0, 500, path.mark(0, 500))
        seconds = time.perf_counter() - began
        path.finish()
        assert flat[:500].tolist() == [0.5] * 500 and (flat[500:] == ranks.rank).all()
        assert path.element_bytes == 8
        return seconds

    assert min(run_ranks(2, work)) >= 0.01 + 4000e-6


def test_sixteen_bits_count_as_two_bytes(monkeypatch):
    ends = []
    monkeypatch.setattr(emulation, "sleep_until", ends.append)
    path = emulate(
        make_path(SingleCommunicator(), numpy.zeros(10)), TransferSettings("bfloat16", link=AffineCost(0.0, 1e-3))
    )
    began = time.perf_counter()
    path.reduce(0, 10, path.mark(0, 10))
    assert began + 0.02 <= ends[0] <= time.perf_counter() + 0.02


def test_without_a_link_nothing_is_slept():
    path = make_path(SingleCommunicator(), numpy.zeros(4))
    assert emulate(path, TransferSettings()) is path


def test_what_is_measured_is_the_emulated_link():
    flat, transfer = numpy.zeros(1024, numpy.float32), TransferSettings(link=AffineCost(2e-3, 1e-6))
    curve = measure_allreduce(SingleCommunicator(), flat, transfer=transfer, budget_s=0.2)
    for size, seconds in curve.points:
        assert seconds >= 2e-3 + 1e-6 * size


def test_sleeping_ends_no_sooner_than_asked():
    deadline = time.perf_counter() + 0.003
    sleep_until(deadline)
    assert time.perf_counter() >= deadline
    sleep_until(deadline)
