import pytest

from mgcaffe.comm.exchange.comm_report import CommReport, GroupTimes
from mgcaffe.comm.planning.cost import AffineCost, AllReduceCost
from mgcaffe.comm.planning.prediction import MIN_RELATIVE_SPEED, Channel
from mgcaffe.comm.planning.schedules import make_plan
from mgcaffe.comm.transport.communicator import SingleCommunicator
from mgcaffe.comm.transport.threaded import run_ranks
from mgcaffe.comm.tuning.cost_correction import corrected_cost
from mgcaffe.comm.tuning.observations import Observations

pytestmark = pytest.mark.usefixtures("both_transports")

CURVE = AllReduceCost([(1 << shift, 1e-4 + 1e-9 * (1 << shift)) for shift in range(10, 23)])
PLAN = make_plan("wfbp", [1 << 18, 1 << 18, 1 << 18], [3.0, 2.0, 1.0], AffineCost(1, 1), element_bytes=4)
SIZE = 1 << 20


def report(times, backward_end, *, one_by_one=True):
    """A report of groups of SIZE bytes that ran from start to end."""
    groups = [GroupTimes(SIZE, start, start, end, number) for number, (start, end) in enumerate(times)]
    return CommReport(groups=groups, backward_end=backward_end, one_by_one=one_by_one)


def channel(slowdown=0.0, blocking=False):
    return Channel(blocking, CURVE, CURVE, slowdown)


def test_groups_beside_and_after_the_backward_pass_correct_their_own_curve():
    seen = Observations(1.0)
    seconds = CURVE(SIZE)
    for _ in range(3):
        # The second group runs across the end of the backward pass and says nothing of either curve.
        times = [(0.5, 0.5 + 1.5 * seconds), (0.99, 1.01), (1.01, 1.01 + 2 * seconds)]
        seen.add(PLAN, 1.0, report(times, 1.0))
    (found,) = seen.refine(SingleCommunicator(), [channel()])
    assert found.beside(SIZE) == pytest.approx(1.5 * seconds)
    assert found.alone(SIZE) == pytest.approx(2 * seconds)
    assert found.beside(2048) == pytest.approx(1.5 * CURVE(2048))


def test_groups_that_shared_the_link_correct_no_curve_and_slow_the_backward_pass():
    seen = Observations(1.0)
    for _ in range(3):
        seen.add(PLAN, 1.1, report([(0.1, 0.3), (0.4, 0.6), (1.2, 1.3)], 1.1, one_by_one=False))
    (found,) = seen.refine(SingleCommunicator(), [channel()])
    assert found.beside is CURVE and found.alone is CURVE
    assert found.slowdown == pytest.approx(0.1 / 0.4)


def test_the_ratio_is_interpolated_between_octaves_and_goes_on_beyond_them():
    seen = [(1 << 12, 2 * CURVE(1 << 12)), (1 << 16, 4 * CURVE(1 << 16)), (1 << 24, 4 * CURVE(1 << 24))]
    found = corrected_cost(CURVE, seen)
    for size, factor in ((1 << 10, 2), (1 << 12, 2), (1 << 14, 3), (1 << 16, 4), (1 << 22, 4), (1 << 24, 4)):
        assert found(size) == pytest.approx(factor * CURVE(size)), size
    assert corrected_cost(CURVE, []) is CURVE
    line = AffineCost(1e-3, 1e-9)
    assert corrected_cost(line, seen) is line


def test_the_slowdown_is_what_hidden_communication_added():
    seen = Observations(1.0)
    for _ in range(2):
        seen.add(PLAN, 1.1, report([(0.1, 0.3), (0.4, 0.6), (1.2, 1.3)], 1.1))
    (found,) = seen.refine(SingleCommunicator(), [channel(slowdown=0.9)])
    assert found.slowdown == pytest.approx(0.1 / 0.4)
    nearly_nothing = Observations(1.0)
    nearly_nothing.add(PLAN, 1.1, report([(1.099, 1.2), (1.2, 1.3), (1.3, 1.4)], 1.1))
    assert nearly_nothing.refine(SingleCommunicator(), [channel(slowdown=0.9)])[0].slowdown == 0.9
    slow = Observations(1.0)
    slow.add(PLAN, 5.0, report([(0.1, 0.3), (0.4, 0.6), (5.2, 5.3)], 5.0))
    assert slow.refine(SingleCommunicator(), [channel()])[0].slowdown == 1.0 - MIN_RELATIVE_SPEED


def test_a_way_of_waiting_that_was_not_tried_stays_as_it_was():
    seen = Observations(1.0)
    seen.add(PLAN, 1.0, report([(0.1, 0.2), (0.2, 0.3), (0.3, 0.4)], 1.0))
    blocking = channel(blocking=True)
    polled, same = seen.refine(SingleCommunicator(), [channel(), blocking])
    assert same is blocking
    assert polled.alone is CURVE  # no group ran after the backward pass


def test_all_ranks_come_to_the_same_costs_with_the_shortest_time_of_any():
    def rank(ranks):
        seen = Observations(1.0)
        late = 0.01 * (ranks.size - 1 - ranks.rank)  # rank 0 comes first and waits longest
        across = 1.0 if ranks.rank else 0.35  # on rank 0 the last group ends after the backward pass
        times = [(0.1, 0.12 + late), (0.2, 0.22 + late), (0.3, 0.4)]
        seen.add(PLAN, across, report(times, across))
        (found,) = seen.refine(ranks, [channel()])
        return found.beside.points, found.slowdown

    first, *others = run_ranks(3, rank)
    assert all(other == first for other in others)
    assert dict(first[0])[float(SIZE)] == pytest.approx(0.02)


def test_a_start_up_cost_that_was_missed_is_added_and_a_missed_rate_is_multiplied():
    sizes = [1 << shift for shift in (12, 14, 16, 20)]
    slower = corrected_cost(CURVE, [(size, 3e-3 + CURVE(size)) for size in sizes])
    assert slower(1 << 22) == pytest.approx(3e-3 + CURVE(1 << 22), rel=1e-6)
    narrower = corrected_cost(CURVE, [(size, 2.5 * CURVE(size)) for size in sizes])
    assert narrower(1 << 22) == pytest.approx(2.5 * CURVE(1 << 22), rel=1e-6)
    faster = corrected_cost(CURVE, [(size, max(1e-5, 2 * CURVE(size) - 2e-4)) for size in sizes])
    assert all(faster(size) == pytest.approx(max(1e-5, 2 * CURVE(size) - 2e-4)) for size in sizes[2:])
    constant = corrected_cost(CURVE, [(1 << 12, 4e-4), (1 << 16, 2e-4)])
    assert constant(1 << 12) == constant(1 << 16) == pytest.approx(2e-4)


def test_of_one_octave_what_takes_more_than_twice_as_long_is_a_delay():
    late = corrected_cost(CURVE, [(1 << 12, 0.04)])
    assert late(1 << 12) == pytest.approx(0.04)
    assert late(1 << 22) == pytest.approx(0.04 - 2 * CURVE(1 << 12) + 2 * CURVE(1 << 22))
    early = corrected_cost(CURVE, [(1 << 12, 0.8 * CURVE(1 << 12))])
    assert early(1 << 22) == pytest.approx(0.8 * CURVE(1 << 22))


def test_a_delay_of_large_groups_is_not_held_to_be_one_of_much_smaller_ones():
    late = corrected_cost(CURVE, [(size, 0.03 + CURVE(size)) for size in (1 << 21, 1 << 22)])
    for size in (1 << 20, 1 << 21, 1 << 22):
        assert late(size) == pytest.approx(0.03 + CURVE(size), rel=1e-3)
    for size in (1 << 10, 1 << 16, 1 << 19):
        assert late(size) == pytest.approx((1 + 0.03 / CURVE(1 << 20)) * CURVE(size), rel=1e-3)


def test_groups_are_distinguished_by_their_numbers_whatever_order_they_were_sent_in():
    plan = make_plan("wfbp", [1 << 14, 1 << 18], [2.0, 1.0], AffineCost(1, 1), element_bytes=4)
    small, large = (group.bytes for group in sorted(plan.groups, key=lambda group: group.bytes))
    seen = Observations(1.0)
    for order in (1, -1, -1):
        groups = [
            GroupTimes(group.bytes, 1.1, 1.1, 1.1 + CURVE(group.bytes), number)
            for number, group in list(enumerate(plan.groups))[::order]
        ]
        seen.add(plan, 1.0, CommReport(groups=groups, backward_end=1.0))
    (found,) = seen.refine(SingleCommunicator(), [channel()])
    assert found.alone(small) == pytest.approx(CURVE(small)) and found.alone(large) == pytest.approx(CURVE(large))
