"""The times of an iteration, by a clock that the test moves."""

import time

import pytest

from mgcaffe.solvers.exchange.iteration_clock import IterationClock


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
    assert times.needed == [0.0, 3.0, 1.0]  # no layer has read segment 1
    assert (times.first_forward, times.forward, times.total) == (3.0, 6.0, 10.0)
    assert times.until_backward == 6.0


def test_what_was_waited_for_before_counts_until_the_backward_pass_and_in_the_total(clock):
    watch = IterationClock(before=2.0)
    pass_by(clock, 1.0)
    watch.needs(0)
    watch.forward = watch.now()
    pass_by(clock, 4.0)
    times = watch.times(1)
    assert (times.needed, times.forward, times.until_backward, times.total) == ([1.0], 1.0, 3.0, 7.0)


def test_an_overlapped_iteration_ends_where_the_next_backward_pass_begins(clock):
    first = IterationClock(before=30.0)  # waited for by an earlier iteration
    pass_by(clock, 1.0)
    first.forward = first.now()
    pass_by(clock, 5.0)
    before = first.times(0)
    pass_by(clock, 100.0)  # a test
    second = IterationClock(before=2.0)
    pass_by(clock, 3.0)
    second.forward = second.now()
    pass_by(clock, 50.0)
    assert second.times(0).overlapped(before, forward=0.5) == (1.0 - 0.5) + 5.0 + 2.0 + 3.0
