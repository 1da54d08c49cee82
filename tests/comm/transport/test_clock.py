import random
import time

import pytest

from mgcaffe.comm.transport.clock import ClockOffset, measure_offsets, offset_between
from mgcaffe.comm.transport.communicator import SingleCommunicator
from mgcaffe.comm.transport.threaded import run_ranks

pytestmark = pytest.mark.usefixtures("both_transports")


def test_the_narrowest_bounds_of_all_meetings_hold():
    # In truth the other clock is 100 s ahead. Meetings take 1 s; ranks come up to 5 s apart.
    mine = [(10.0, 16.0), (20.0, 21.0), (30.0, 35.0)]
    theirs = [(115.0, 116.0), (120.2, 121.1), (130.0, 135.5)]
    offset = offset_between(mine, theirs)
    # 120.2 - 21.0 = 99.2 and 121.1 - 20.0 = 101.1 are the tightest.
    assert offset.seconds == pytest.approx((99.2 + 101.1) / 2)
    assert offset.uncertainty == pytest.approx((101.1 - 99.2) / 2)
    assert abs(offset.seconds - 100) <= offset.uncertainty


@pytest.mark.parametrize("size", [2, 4])
def test_offsets_of_the_ranks_clocks_are_found_within_their_uncertainty(size):
    ahead = [random.Random(rank).uniform(-1000, 1000) for rank in range(size)]

    def work(ranks):
        return measure_offsets(ranks, rounds=8, clock=lambda: time.perf_counter() + ahead[ranks.rank])

    results = run_ranks(size, work)
    assert all(each == results[0] for each in results)
    assert results[0][0] == ClockOffset(0.0, 0.0)
    for offset, true in zip(results[0], ahead, strict=True):
        assert abs(offset.seconds - (true - ahead[0])) <= offset.uncertainty + 1e-9
        assert offset.uncertainty < 1.0


def test_one_rank_has_the_clock():
    assert measure_offsets(SingleCommunicator(), rounds=2) == [ClockOffset(0.0, 0.0)]
