"""One iteration's groups: sent when complete and in order, waited for one by one or all at once."""

import numpy
import pytest

from mgcaffe.comm.exchange.iteration import Iteration
from mgcaffe.comm.exchange.reducer import Reducer
from mgcaffe.comm.planning.plan import Group, Plan, Segment
from mgcaffe.comm.transport.communicator import SingleCommunicator
from mgcaffe.errors import CommError

SEGMENTS = [Segment("low", 0, 2), Segment("middle", 2, 2), Segment("high", 4, 2)]


def plan(sending=()):
    """One group for each segment; group 0 is the highest."""
    groups = tuple(Group(at, at, 2 * at, 2, 8, 0.0, 0.0, 0.0) for at in (2, 1, 0))
    return Plan("wfbp", 3, groups, 1.0, overlaps_forward=bool(sending), sending=sending)


@pytest.fixture
def submitted():
    return []


@pytest.fixture
def reducer(submitted):
    reducer = Reducer(SingleCommunicator(), numpy.zeros(6, numpy.float32))
    submit = reducer.submit
    reducer.submit = lambda group, *place: submitted.append(group) or submit(group, *place)
    yield reducer
    reducer.close()


def begun(reducer, sending=(), *, is_held=False, clock=lambda: 0.0):
    return Iteration(plan(sending), SEGMENTS, reducer, clock, is_held=is_held)


def test_a_group_waits_for_those_that_are_sent_before_it(reducer, submitted):
    iteration = begun(reducer, (0, 2, 1))
    seen = []
    for segment in (2, 1, 0):
        iteration.gradients_ready(segment)
        seen.append(list(submitted))
    assert seen == [[0], [0], [0, 2, 1]]
    iteration.end_backward(None)
    assert [group.group for group in iteration.complete().groups] == [0, 2, 1]


def test_held_groups_are_sent_when_the_backward_pass_ends(reducer, submitted):
    iteration = begun(reducer, is_held=True)
    for segment in (2, 1, 0):
        iteration.gradients_ready(segment)
    assert submitted == []
    iteration.backward_done()
    assert submitted == [0, 1, 2]
    iteration.end_backward(None)
    iteration.complete()


def test_a_segments_group_is_given_away_once_and_with_those_sent_before_it(reducer):
    iteration, given = begun(reducer), []
    for segment in (2, 1, 0):
        iteration.gradients_ready(segment)
    iteration.end_backward(lambda offset, count: given.append(offset))
    for segment, expected in ((1, [4, 2]), (2, [4, 2]), (0, [4, 2, 0])):
        iteration.wait_for_segment(segment)
        assert given == expected
    assert len(iteration.complete().groups) == 3 and len(given) == 3


def test_what_is_expected_next_is_named(reducer):
    iteration = begun(reducer)
    with pytest.raises(CommError, match="too early; next is layer 'high', number 2 of 3"):
        iteration.end_backward(None)
    with pytest.raises(CommError, match="layer 'low' came out of order"):
        iteration.gradients_ready(0)
    for segment in (2, 1, 0):
        iteration.gradients_ready(segment)
    with pytest.raises(CommError, match="all layers have come already"):
        iteration.gradients_ready(-1)


def test_without_groups_there_is_nothing_to_wait_for(reducer):
    iteration = Iteration(Plan("single", 0, (), 0.0), [], reducer, lambda: 0.0, is_held=False)
    assert not iteration.backward_done()
    iteration.end_backward(None)
    report = iteration.complete()
    assert (report.groups, report.waits, report.exposed_s) == ([], [], 0.0)
