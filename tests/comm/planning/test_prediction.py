import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgcaffe.comm.planning.cost import AffineCost
from mgcaffe.comm.planning.plan import ready_times
from mgcaffe.comm.planning.prediction import Channel, ComputingThread, GroupQueue, first_ready, predict_plan
from mgcaffe.comm.planning.schedules import SCHEDULES, make_plan

COST = AffineCost(2.0, 0.5)


def plan_of(schedule, sizes, backward_times, tail=0.0):
    ready = ready_times(backward_times)
    return make_plan(
        schedule, sizes, ready, COST, element_bytes=1, bucket_bytes=6, backward_end=sum(backward_times) + tail
    )


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 8)), min_size=1, max_size=8),
    st.sampled_from(sorted(SCHEDULES)),
    st.integers(0, 3),
)
def test_without_contention_it_is_the_planners_prediction(layers, schedule, tail):
    sizes, times = zip(*layers, strict=True)
    plan = plan_of(schedule, list(sizes), [float(time) for time in times], tail)
    predicted = predict_plan(plan, [float(time) for time in times], tail, Channel(False, COST, COST))
    assert predicted.end == pytest.approx(plan.end)
    assert predicted.backward_end == pytest.approx(plan.backward_end)
    for mine, theirs in zip(predicted.groups, plan.groups, strict=True):
        assert (mine.ready_at, mine.start_at, mine.end_at) == pytest.approx(
            (theirs.ready_at, theirs.start_at, theirs.end_at)
        )


def test_communication_beside_backward_slows_it_and_is_done_faster_afterwards():
    # Layer 1 is ready at 4; its group takes 8 beside backward, which gets on at half speed: 4 of 10 by 12, when
    # layer 0's remaining 6 run alone until 18; its group, afterwards, takes 3.
    plan = plan_of("wfbp", [1, 1], [10.0, 4.0])
    predicted = predict_plan(plan, [10.0, 4.0], 0.0, Channel(True, AffineCost(8, 0), AffineCost(3, 0), 0.5))
    assert [(group.ready_at, group.start_at, group.end_at) for group in predicted.groups] == [(4, 4, 12), (18, 18, 21)]
    assert predicted.backward_end == 18 and predicted.exposed == 3 and predicted.blocking


def test_a_group_that_outlasts_backward_does_the_rest_at_the_speed_of_waiting():
    # Ready at 4; by the end of backward at 4 + 2 / 0.5 = 8, half of its 8 is done; the other half takes 3 / 2.
    plan = plan_of("wfbp", [1, 1], [2.0, 4.0])
    predicted = predict_plan(plan, [2.0, 4.0], 0.0, Channel(False, AffineCost(8, 0), AffineCost(3, 0), 0.5))
    assert predicted.backward_end == 8
    assert [group.end_at for group in predicted.groups] == [9.5, 12.5]


def test_a_single_all_reduce_meets_no_contention():
    plan = plan_of("single", [3, 1], [2.0, 4.0], tail=1.0)
    predicted = predict_plan(plan, [2.0, 4.0], 1.0, Channel(False, AffineCost(8, 0), AffineCost(3, 0), 0.9))
    # It becomes ready at 6, and the tail of 1 goes on at a tenth of the speed beside it.
    assert predicted.groups[0].ready_at == 6
    assert predicted.backward_end > 7


def test_a_pause_gets_a_group_on_at_the_speed_beside_computation_and_takes_no_longer_for_it():
    # Of 8 s, 2 pass beside computation and 2 in each pause; the last quarter is waited for, a quarter of 4 s.
    queue = GroupQueue(plan_of("single", [1], [1.0]).groups, first_ready)
    thread = ComputingThread(Channel(False, AffineCost(8, 0), AffineCost(4, 0), 0.5), queue)
    queue.submit(0, thread.now)
    thread.compute(1.0)
    thread.pause(2.0)
    thread.pause(2.0)
    assert (thread.now, queue.work_left) == pytest.approx((6.0, 0.25))
    thread.wait_for(0)
    assert thread.now == pytest.approx(7.0)
    thread.pause(3.0)
    assert thread.now == pytest.approx(10.0)
