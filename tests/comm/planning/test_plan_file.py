"""Plan files: written, read, edited by hand, and refused where they don't fit, with the first difference."""

import json

import pytest

from mgcaffe.comm.planning.cost import AffineCost
from mgcaffe.comm.planning.plan import Segment
from mgcaffe.comm.planning.plan_file import PlanBasis, plan_text, read_plan
from mgcaffe.comm.planning.schedules import make_plan
from mgcaffe.errors import CommError, DataError

SEGMENTS = [Segment("conv1", 0, 10), Segment("conv2", 10, 20), Segment("ip1", 30, 30), Segment("ip2", 60, 5)]
READY = [4.0, 3.0, 2.0, 1.0]
BASIS = PlanBasis(SEGMENTS, READY, AffineCost(1, 0.01))


def plan_of(schedule, segments=SEGMENTS, ready=READY):
    return make_plan(schedule, segments, ready, BASIS.cost, element_bytes=4, backward_end=4.5)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(plan_text(plan_of("wfbp"), BASIS))
    return path


def edit(path, change):
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


@pytest.mark.parametrize("schedule", ["wfbp", "single", "optimal"])
def test_a_plan_is_read_as_it_was_written(path, schedule):
    plan = plan_of(schedule)
    path.write_text(plan_text(plan, BASIS))
    again = read_plan(path, SEGMENTS, 4)
    assert again == plan and again.hash == plan.hash


def test_a_plan_file_may_ask_to_overlap_the_forward_pass(path):
    record = json.loads(path.read_text())
    assert record["overlap_forward"] is False and "order" not in record
    path.write_text(json.dumps(record | {"overlap_forward": True}))
    plan = read_plan(path, SEGMENTS, 4)
    assert plan.overlaps_forward and plan.schedule == "wfbp (edited)" and plan.hash != record["hash"]
    assert list(plan.order) == [0, 1, 3, 2]
    path.write_text(plan_text(plan, BASIS))
    assert read_plan(path, SEGMENTS, 4) == plan
    path.write_text(json.dumps(record | {"overlap_forward": True, "order": [0, 3, 2, 1]}))
    assert list(read_plan(path, SEGMENTS, 4).order) == [0, 3, 2, 1]
    path.write_text(json.dumps(record | {"overlap_forward": True, "order": [0, 1, 1, 2]}))
    with pytest.raises(CommError, match=r"order .* does not name each of 4 groups once"):
        read_plan(path, SEGMENTS, 4)


def test_every_layer_and_group_stands_in_a_line_of_its_own(path):
    lines = path.read_text().splitlines()
    assert sum('"name"' in line for line in lines) == 4
    assert sum('"from"' in line for line in lines) == 4


def test_groups_merged_by_hand_make_another_plan(path):
    text = path.read_text()
    lines = [line for line in text.splitlines() if '"from": "ip1"' not in line]
    path.write_text("\n".join(lines).replace('"from": "ip2", "down_to": "ip2"', '"from": "ip2", "down_to": "ip1"'))
    plan = read_plan(path, SEGMENTS, 4)
    assert [(group.first_segment, group.last_segment) for group in plan.groups] == [(2, 3), (1, 1), (0, 0)]
    assert plan.groups[0].count == 35 and plan.groups[0].bytes == 140
    assert plan.schedule == "wfbp (edited)"
    assert plan.hash != plan_of("wfbp").hash
    # Predictions are made anew: ready with ip1 at 2 s, then 1 + 1.4 s.
    assert (plan.groups[0].ready_at, plan.groups[0].end_at) == (2.0, pytest.approx(4.4))
    plan.check(SEGMENTS)


def test_layers_may_be_numbers_which_those_of_one_name_need(tmp_path):
    twins = [Segment("ip", 0, 10), Segment("ip", 10, 20)]
    basis = PlanBasis(twins, [2.0, 1.0], BASIS.cost)
    plan = plan_of("wfbp", twins, [2.0, 1.0])
    path = tmp_path / "plan.json"
    path.write_text(plan_text(plan, basis))
    assert json.loads(path.read_text())["groups"][0]["from"] == 1
    assert read_plan(path, twins, 4) == plan
    edit(path, lambda record: record["groups"][0].update({"from": "ip"}))
    with pytest.raises(CommError, match="2 layers are called 'ip'; give their numbers"):
        read_plan(path, twins, 4)


@pytest.mark.parametrize(
    ("segments", "words"),
    [
        ([*SEGMENTS[:2], Segment("ip1", 30, 31)], "layer 2 is 'ip1' with 30 elements there, 'ip1' with 31 in the net"),
        ([Segment("conv0", 0, 10)], "layer 0 is 'conv1' with 10 elements there, 'conv0' with 10 in the net"),
        (SEGMENTS[:3], "layer 3 is 'ip2' there, but the net ends before it"),
        ([*SEGMENTS, Segment("ip3", 65, 1)], "there is no layer 4, which is 'ip3' in the net"),
    ],
)
def test_a_plan_of_another_net_names_the_first_difference(path, segments, words):
    with pytest.raises(CommError) as caught:
        read_plan(path, segments, 4)
    assert words in str(caught.value) and str(path) in str(caught.value)
    assert "engine plan" in str(caught.value)
    assert caught.value.exit_code == 65


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda record: record["groups"].pop(1), "group 1 begins with layer 'conv2', but 'ip1' comes next going down"),
        (lambda record: record["groups"].pop(), "layer 'conv1' is in no group"),
        (
            lambda record: record["groups"].append(record["groups"][-1]),
            "group 4 begins with layer 'conv1', but no further group comes next",
        ),
        (
            lambda record: record["groups"][1].update({"from": "ip1", "down_to": "ip2"}),
            "group 1 goes from 'ip1' up to 'ip2'",
        ),
        (lambda record: record["groups"][0].update({"from": "ip9"}), "group 0: there is no layer 'ip9'"),
        (lambda record: record.pop("layers"), "this is no plan: 'layers' is missing"),
        (lambda record: record.update(groups=[3]), "this is no plan: groups[0] should be an object, not 3"),
        (lambda record: record["layers"][1].update(elements=10**400), "layers[1].elements should be a whole number"),
        (lambda record: record["layers"][1].update(ready_s=float("nan")), "layers[1].ready_s should be a number"),
        (lambda record: record["groups"][0].update({"from": float("inf")}), "groups[0].from should be a whole number"),
        (lambda record: record.update(blocking="no"), "blocking should be true or false"),
        (lambda record: record["cost"].update(a=float("inf")), "cost.a should be a number"),
        (lambda record: record.update(cost={"kind": "free"}), "unknown kind of all-reduce cost 'free'"),
    ],
)
def test_a_plan_edited_badly_is_an_error(path, change, words):
    edit(path, change)
    with pytest.raises(CommError) as caught:
        read_plan(path, SEGMENTS, 4)
    assert words in str(caught.value)


def test_what_is_no_json_says_where(path):
    path.write_text('{\n "schedule": \n')
    with pytest.raises(CommError, match=r"plan\.json:3:1: "):
        read_plan(path, SEGMENTS, 4)
    path.write_text(json.dumps({"schedule": "wfbp", "layers": [{"name": "a"}]}, indent=1))
    with pytest.raises(CommError, match=r"plan\.json:4:3: plan file: this is no plan: 'elements' is missing in layers"):
        read_plan(path, SEGMENTS, 4)
    path.write_text(2000 * "[" + 2000 * "]")
    with pytest.raises(CommError, match="nested too deeply"):
        read_plan(path, SEGMENTS, 4)
    with pytest.raises(DataError, match="cannot read a plan: No such file"):
        read_plan(path.with_name("absent"), SEGMENTS, 4)
