"""The times of an iteration, by a clock that the test moves."""

import time

import pytest

from mgcaffe.solvers.iteration_clock import IterationClock


@pytest.fixture
def clock(monkeypatch):
    """Seconds, which stand still unless they are moved; and those waited for data."""
    seconds = {"now": 100.0, "data": 7.0}
    monkeypatch.setattr(time, "perf_counter", lambda: seconds["now"])
    return seconds


def pass_by(clock, seconds, data=0.0):
    clock["now"] += seconds + data
    clock["data"] += data


def test_it_stands_still_while_data_is_waited_for(clock):
    watch = IterationClock(lambda: clock["data"])
    pass_by(clock, 0.0, data=5.0)
    watch.needs(0)
    pass_by(clock, 1.0)
    watch.needs(2)
    watch.needs(0)  # its second layer
    pass_by(clock, 2.0)
    watch.first_forward = watch.now()
    pass_by(clock, 3.0, data=5.0)  # another micro-batch
    watch.forward = watch.now()
    pass_by(clock, 4.0)
    times = watch.times(3)
    assert times.needed == [0.0, 3.0, 1.0]  # nobody has read segment 1
    assert (times.first_forward, times.forward, times.total) == (3.0, 6.0, 10.0)


def test_what_was_waited_for_before_counts_in_the_total_alone(clock):
    watch = IterationClock(before=2.0)
    pass_by(clock, 1.0)
    watch.needs(0)
    assert watch.times(1).needed == [1.0] and watch.times(1).total == 3.0
