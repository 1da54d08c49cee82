import itertools

import pytest

from mgcaffe.comm.planning.cost import AffineCost
from mgcaffe.comm.planning.forward_overlap import Overlap
from mgcaffe.comm.planning.plan import Segment
from mgcaffe.comm.planning.prediction import Channel
from mgcaffe.comm.planning.timings import ForwardTimes, Timings
from mgcaffe.comm.tuning.candidates import (
    MAX_FURTHER,
    MAX_OVERLAPPED,
    PlanningInput,
    find_candidates,
    find_further,
)

LAYERS = 40
SEGMENTS = [Segment(f"layer {i}", 1000 * i, 1000) for i in range(LAYERS)]
TIMINGS = Timings([1e-3] * LAYERS, 2e-3)
WHOLE = Timings([1e-3] * LAYERS, 2e-3, ForwardTimes([5e-4 * i for i in range(LAYERS)], 2e-2, 2e-2, 1e-3, 1e-3))


def found(channels, timings=TIMINGS, segments=SEGMENTS):
    return find_candidates(PlanningInput(segments, timings, channels, 4))


def channels(cost, slowdown=0.0):
    return [Channel(blocking, cost, cost, slowdown) for blocking in (False, True)]


def test_no_plan_is_tried_twice_and_the_best_predicted_comes_first():
    candidates = found(channels(AffineCost(2e-3, 1e-7)))
    hashes = [candidate.plan.hash for candidate in candidates]
    assert len(set(hashes)) == len(hashes)
    predicted = [candidate.predicted for candidate in candidates]
    assert predicted == sorted(predicted)
    assert candidates[0].label == "optimal"


def test_a_single_all_reduce_is_tried_in_every_way_whatever_is_predicted_of_it():
    singles = [each for each in found(channels(AffineCost(1e-6, 1e-6))) if len(each.plan.groups) == 1]
    assert sorted(each.plan.blocking for each in singles) == [False, True]


def test_plans_that_are_far_behind_are_not_tried():
    labels = [each.label for each in found(channels(AffineCost(5e-3, 1e-9)))]
    assert "wfbp" not in labels


def test_where_all_schedules_agree_one_candidate_a_way_is_left():
    candidates = found(channels(AffineCost(1e-3, 1e-9)), Timings([1e-3], 0.0), SEGMENTS[:1])
    assert [(each.label, each.plan.blocking) for each in candidates] == [("single", False), ("single", True)]


def test_buckets_of_equal_size_are_tried_where_their_prediction_is_near_the_best():
    near = {each.label: len(each.plan.groups) for each in found(channels(AffineCost(5e-4, 2e-7)))}
    assert near["buckets of 0.038 MiB"] == 4 and near["buckets of 0.019 MiB"] == 8
    assert not any("buckets" in each.label for each in found(channels(AffineCost(2e-2, 1e-9))))


def test_contention_makes_the_single_all_reduce_the_best_predicted():
    assert len(found(channels(AffineCost(2e-4, 1e-8), 0.95))[0].plan.groups) == 1
    assert len(found(channels(AffineCost(2e-4, 1e-8), 0.0))[0].plan.groups) > 1


def test_the_backward_pass_has_a_tail():
    assert TIMINGS.total == pytest.approx(0.042)


def test_more_plans_are_those_that_beat_all_known_ones_and_are_unlike_them():
    cheap, dear = channels(AffineCost(1e-5, 1e-7)), channels(AffineCost(4e-3, 1e-7))
    known = [each.on(dear, TIMINGS) for each in found(cheap)]
    more = find_further(known, PlanningInput(SEGMENTS, TIMINGS, dear, 4))
    assert 1 <= len(more) <= MAX_FURTHER
    assert all(each.predicted < min(other.predicted for other in known) for each in more)
    assert len({(len(each.plan.groups), each.plan.blocking) for each in more}) == len(more)
    assert not {each.plan.hash for each in more} & {each.plan.hash for each in known}
    assert find_further(found(dear), PlanningInput(SEGMENTS, TIMINGS, dear, 4)) == []


def test_a_candidate_is_predicted_anew_on_the_channel_of_its_own_way():
    (first, *_) = found(channels(AffineCost(1e-3, 1e-7)))
    slow = Channel(not first.plan.blocking, AffineCost(1.0, 0.0), AffineCost(1.0, 0.0))
    same, later = (Channel(first.plan.blocking, cost, cost) for cost in (AffineCost(1e-3, 1e-7), AffineCost(0.1, 0.0)))
    assert first.on([slow, same], TIMINGS).predicted == first.predicted
    assert first.on([slow, later], TIMINGS).predicted >= 0.1 * len(first.plan.groups)


def overlapped(cost, overlap=Overlap.TRY):
    candidates = find_candidates(PlanningInput(SEGMENTS, WHOLE, channels(cost), 4, overlap=overlap))
    return candidates, [each for each in candidates if each.plan.overlaps_forward]


def test_where_communication_takes_longer_the_next_forward_pass_is_tried_beside_it():
    candidates, beside = overlapped(AffineCost(1e-4, 5e-7))
    assert 1 <= len(beside) <= MAX_OVERLAPPED
    assert candidates[0] is beside[0] and candidates[0].label.endswith(", overlap_forward")
    plain = [each for each in candidates if not each.plan.overlaps_forward]
    never, _ = overlapped(AffineCost(1e-4, 5e-7), Overlap.NEVER)
    assert [each.plan.hash for each in plain] == [each.plan.hash for each in never]
    assert beside[0].predicted < 0.95 * plain[0].predicted


@pytest.mark.parametrize("start_up", [1e-5, 1e-4, 1e-3])
def test_plans_that_overlap_have_groups_of_unlike_sizes(start_up):
    """A start-up cost that is mistaken makes all plans of small groups look good: one of them is tried, not three."""
    cost = AffineCost(start_up, 5e-7)
    polled = [Channel(False, cost, cost)]
    candidates = find_candidates(PlanningInput(SEGMENTS, WHOLE, polled, 4, overlap=Overlap.TRY))
    counts = [len(each.plan.groups) for each in candidates if each.plan.overlaps_forward]
    assert len(counts) == MAX_OVERLAPPED
    assert all(2 * few <= many for few, many in itertools.pairwise(sorted(counts)))


def test_where_there_is_nothing_to_gain_the_forward_pass_is_left_alone():
    _, beside = overlapped(AffineCost(1e-5, 1e-9))
    assert beside == []


def test_a_user_may_ask_for_nothing_else():
    candidates, beside = overlapped(AffineCost(1e-4, 5e-7), Overlap.ALWAYS)
    assert candidates == beside and len(candidates) > 1


def test_a_single_group_is_sent_when_it_is_ready():
    _, beside = overlapped(AffineCost(1e-2, 5e-7), Overlap.ALWAYS)
    (single,) = [each for each in beside if each.label.startswith("single") and not each.plan.blocking]
    # Its update is made before the forward pass instead of after the backward pass: nothing is hidden.
    plain = next(each for each in found(channels(AffineCost(1e-2, 5e-7)), WHOLE) if each.label == "single")
    assert single.predicted == pytest.approx(plain.predicted, abs=1.1e-3)
