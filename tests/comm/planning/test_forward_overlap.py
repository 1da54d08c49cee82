"""Plans whose last groups travel beside the next forward pass, predicted."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgcaffe.comm.planning.cost import AffineCost
from mgcaffe.comm.planning.forward_overlap import overlapping, predict, waiting
from mgcaffe.comm.planning.plan import Plan, Segment, ready_times
from mgcaffe.comm.planning.prediction import Channel
from mgcaffe.comm.planning.schedules import make_plan
from mgcaffe.comm.planning.timings import ForwardTimes, Timings

ONE = [Segment(f"layer {i}", 100 * i, 100) for i in range(3)]  # 400 bytes each


def channel(cost, slowdown=0.0):
    return Channel(False, cost, cost, slowdown)


def timings(backward, needed, forward, update=0.0, rest=0.0, tail=0.0):
    return Timings(backward, tail, ForwardTimes(needed, forward, forward, update, rest))


def wfbp(segments, overlaps=True):
    times = ready_times([1.0] * len(segments))
    plan = make_plan("wfbp", segments, times, AffineCost(0, 0), element_bytes=4)
    return replace(plan, overlaps_forward=overlaps)


def period(plan, times):
    return plan.backward_end + plan.exposed + times.forward.total


def test_a_free_channel_is_not_waited_for():
    times = timings([1.0, 1.0, 1.0], [0.0, 1.0, 2.0], 3.0)
    plan = predict(wfbp(ONE), times, channel(AffineCost(1e-9, 0.0)))
    assert plan.exposed == pytest.approx(0.0, abs=1e-6) and plan.backward_end == pytest.approx(3.0)


def test_a_short_iteration_by_hand():
    """Three layers of 1 s each way, 2.5 s a group.

    The top group goes at 1 s, until 3.5, when all are ready: then the lowest, until 6, and the middle one, until 8.5.
    The forward pass begins at 3, waits for the lowest until 6, computes it until 7, waits for the middle one until 8.5,
    computes that and the top one until 10.5. Without overlap it would be 3 + max(8.5, 3) = 11.5.
    """
    times = timings([1.0, 1.0, 1.0], [0.0, 1.0, 2.0], 3.0)
    plan = predict(wfbp(ONE), times, channel(AffineCost(2.5, 0.0)))
    assert list(plan.order) == [0, 2, 1]
    assert [(g.ready_at, g.start_at, g.end_at) for g in plan.groups] == [(1, 1, 3.5), (2, 6, 8.5), (3, 3.5, 6)]
    assert period(plan, times) == pytest.approx(10.5)
    alone = predict(wfbp(ONE, False), times, channel(AffineCost(2.5, 0.0)))
    assert period(alone, times) == pytest.approx(11.5)


def test_updates_are_made_in_the_forward_pass_and_what_is_between_iterations_hides_communication():
    """As by hand above, but that the forward pass begins at 5, and 0.1 s of update go before each layer's computing.

    It waits until 6, updates the top and the lowest layer and computes the lowest until 7.2, waits until 8.5, updates
    the middle one, and is done at 10.6. Of these 5.3 s are what an iteration does besides its backward pass.
    """
    times = timings([1.0, 1.0, 1.0], [0.0, 1.0, 2.0], 3.0, update=0.3, rest=2.0)
    plan = predict(wfbp(ONE), times, channel(AffineCost(2.5, 0.0)))
    assert period(plan, times) == pytest.approx(10.6)
    assert plan.backward_end + plan.exposed == pytest.approx(5.3)


def test_contention_slows_the_forward_pass_as_well():
    times = timings([1.0, 1.0, 1.0], [0.0, 1.0, 2.0], 3.0)
    cost = AffineCost(0.5, 0.0)
    free, slow = (predict(wfbp(ONE), times, channel(cost, slowdown)) for slowdown in (0.0, 0.5))
    assert slow.backward_end > free.backward_end
    assert period(slow, times) > period(free, times)


def test_without_times_of_the_forward_pass_there_is_an_order_and_no_promise():
    plan = predict(wfbp(ONE), Timings([1.0, 1.0, 1.0]), channel(AffineCost(2.5, 0.0)))
    assert list(plan.order) == [0, 2, 1] and plan.waits is None and plan.exposed == pytest.approx(5.5)


def test_what_a_plan_was_predicted_with_gives_an_order():
    """Ready at 1, 2, 3, and 2.5 s each: as in the iteration by hand."""
    plan = predict(wfbp(ONE, False), Timings([1.0, 1.0, 1.0]), channel(AffineCost(2.5, 0.0)))
    changed = overlapping(plan)
    assert changed.overlaps_forward and list(changed.order) == [0, 2, 1] and changed.hash != plan.hash
    assert waiting(changed) == plan and overlapping(changed) is changed


def test_where_nothing_was_measured_the_first_ready_is_sent_first():
    assert list(overlapping(wfbp(ONE, False)).order) == [0, 1, 2]


def test_an_order_is_kept_and_costs_what_it_costs():
    times = timings([1.0, 1.0, 1.0], [0.0, 1.0, 2.0], 3.0)
    slow = channel(AffineCost(2.5, 0.0))
    best = predict(wfbp(ONE), times, slow)
    plan = predict(replace(wfbp(ONE), sending=(0, 1, 2)), times, slow)
    assert list(plan.order) == [0, 1, 2]
    # The lowest comes last, at 8.5, and three layers are computed after it.
    assert period(plan, times) == pytest.approx(11.5) and period(best, times) < 11.0
    assert predict(best, times, channel(AffineCost(0.1, 0.0))).order == best.order


def test_agreeing_on_the_loss_takes_time_in_which_groups_travel():
    quiet = timings([1.0, 1.0, 1.0], [0.0, 1.0, 2.0], 3.0)
    talking = replace(quiet, forward=replace(quiet.forward, agreement=1.0))
    for cost, longer in ((AffineCost(1e-9, 0.0), 1.0), (AffineCost(2.5, 0.0), 0.0)):
        plans = [predict(wfbp(ONE), times, channel(cost)) for times in (quiet, talking)]
        assert plans[1].exposed - plans[0].exposed == pytest.approx(longer, abs=1e-6)


def test_a_plan_that_does_not_overlap_is_predicted_as_ever():
    times = timings([1.0, 1.0, 1.0], [0.0, 1.0, 2.0], 3.0)
    plan = predict(wfbp(ONE, False), times, channel(AffineCost(2.0, 0.0)))
    assert plan.waits is None and plan.end == pytest.approx(7.0) and list(plan.order) == [0, 1, 2]


seconds = st.floats(0.0, 2.0)


@given(
    st.lists(st.tuples(st.integers(1, 1000), seconds, seconds), min_size=1, max_size=8),
    st.floats(0.0, 1.0),
    st.floats(0.0, 1e-3),
    st.sampled_from(["single", "wfbp", "optimal"]),
)
def test_it_never_takes_longer_than_waiting_nor_less_than_what_must_be_done(layers, a, b, schedule):
    segments, offset = [], 0
    for number, (count, _, _) in enumerate(layers):
        segments.append(Segment(f"layer {number}", offset, count))
        offset += count
    backward = [each for _, each, _ in layers]
    forward = [each for _, _, each in layers]
    needed = [sum(forward[:i]) for i in range(len(layers))]
    times = timings(backward, needed, sum(forward), rest=0.1)
    cost = AffineCost(a, b)
    made = make_plan(schedule, segments, ready_times(backward), cost, element_bytes=4)
    alone = predict(made, times, channel(cost))
    plan = predict(replace(made, overlaps_forward=True), times, channel(cost))
    lasts = period(plan, times)
    assert lasts <= period(alone, times) + 1e-6
    assert lasts >= max(plan.busy, sum(backward) + times.forward.total) - 1e-6
    assert sorted(plan.order) == list(range(len(plan.groups)))
    starts = [plan.groups[number].start_at for number in plan.order]
    ends = [plan.groups[number].end_at for number in plan.order]
    assert all(end <= start + 1e-9 for end, start in zip(ends, starts[1:], strict=False))
    assert all(group.start_at >= group.ready_at - 1e-9 for group in plan.groups)
    assert Plan.from_json(plan.to_json()) == plan
