import json
from dataclasses import replace

import pytest

from mgcaffe.comm.planning.cost import AffineCost
from mgcaffe.comm.planning.plan import Plan, Segment, ready_times
from mgcaffe.comm.planning.schedules import make_plan
from mgcaffe.errors import CommError

SEGMENTS = [Segment("conv1", 0, 10), Segment("conv2", 16, 20), Segment("fc", 48, 30)]


def plan_of(schedule: str, segments=SEGMENTS) -> Plan:
    return make_plan(schedule, segments, [3.0, 2.0, 1.0][-len(segments) :], AffineCost(1, 0.01), element_bytes=4)


def test_ready_times_add_up_from_the_last_layer():
    assert ready_times([4, 3, 1]) == [8, 4, 1]
    assert ready_times([]) == []


def test_a_plan_predicts_what_is_exposed():
    plan = plan_of("single")
    (group,) = plan.groups
    assert (group.first_segment, group.last_segment, group.offset, group.count, group.bytes) == (0, 2, 0, 78, 312)
    assert (group.ready_at, group.start_at) == (3.0, 3.0)
    assert plan.end == group.end_at == pytest.approx(3.0 + 1 + 3.12)
    assert plan.exposed == pytest.approx(4.12) and plan.busy == pytest.approx(4.12)


def test_groups_wait_for_the_channel():
    plan = plan_of("wfbp")
    assert [(group.first_segment, group.start_at) for group in plan.groups] == [
        (2, 1.0),
        (1, pytest.approx(1 + 2.2)),
        (0, pytest.approx(1 + 2.2 + 1.8)),
    ]


def test_a_longer_backward_pass_hides_more():
    plan = make_plan("single", SEGMENTS, [3, 2, 1], AffineCost(1, 0), element_bytes=4, backward_end=3.5)
    assert plan.exposed == pytest.approx(0.5)


@pytest.mark.parametrize("backward_end", [None, 0.1])
def test_the_backward_pass_ends_no_sooner_than_the_lowest_gradient_is_ready(backward_end):
    plan = make_plan(
        "single", SEGMENTS, [0.3, 0.2, 0.1], AffineCost(1, 0), element_bytes=4, backward_end=backward_end
    )  # fmt: skip
    assert plan.backward_end == 0.3 and plan.exposed == pytest.approx(1)


def test_json_gives_the_same_plan_back():
    plan = plan_of("wfbp")
    assert Plan.from_json(plan.to_json()) == plan
    record = json.loads(plan.to_json())
    assert record["hash"] == plan.hash
    places = ["first_layer", "last_layer", "offset", "count", "bytes", "ready_at", "start_at", "end_at"]
    assert list(record["groups"][0]) == places  # as snapshots hold them


def test_the_hash_tells_merges_but_not_predictions():
    wfbp = plan_of("wfbp")
    slower = make_plan("wfbp", SEGMENTS, [9, 2, 1], AffineCost(2, 1), element_bytes=4)
    assert wfbp.hash == slower.hash != plan_of("single").hash


@pytest.mark.parametrize("schedule", ["single", "wfbp"])
def test_a_fitting_plan_passes(schedule):
    plan_of(schedule).check(SEGMENTS)


def edited(**changes) -> Plan:
    record = json.loads(plan_of("wfbp").to_json())
    record["groups"] = [{**group, **changes} if group["first_layer"] == 1 else group for group in record["groups"]]
    return Plan.from_json(record)


def test_a_plan_for_another_net_is_an_error():
    with pytest.raises(CommError, match="for 3 layers, the net has 2"):
        plan_of("single").check(SEGMENTS[:2])
    with pytest.raises(CommError, match="'conv1' to 'fc' covers elements 0 to 78, the net has these layers at 0 to 79"):
        plan_of("single").check([*SEGMENTS[:2], Segment("fc", 49, 30)])


def test_a_plan_edited_badly_is_an_error():
    with pytest.raises(CommError, match="out of order"):
        edited(first_layer=2, last_layer=2).check(SEGMENTS)
    with pytest.raises(CommError, match="covers elements 17 to 37"):
        edited(offset=17).check(SEGMENTS)
    with pytest.raises(CommError, match=r"order \[0, 0, 2\] does not name each of 3 groups once"):
        replace(plan_of("wfbp"), sending=(0, 0, 2)).check(SEGMENTS)


@pytest.mark.parametrize(("group", "name"), [(0, "fc"), (1, "conv2"), (2, "conv1")])
def test_a_plan_that_leaves_out_a_layer_is_an_error(group, name):
    record = json.loads(plan_of("wfbp").to_json())
    del record["groups"][group]
    with pytest.raises(CommError, match=f"leaves out layer '{name}'"):
        Plan.from_json(record).check(SEGMENTS)


@pytest.mark.parametrize("value", ["", "[]", "{}", '{"schedule": "x", "layers": 1, "backward_end": 0, "groups": [{}]}'])
def test_what_is_no_plan_is_an_error(value):
    with pytest.raises(CommError, match="not a plan"):
        Plan.from_json(value)
