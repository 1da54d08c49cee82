"""A pinned plan: used from the first iteration on by every rank, without measuring, and refused if it doesn't fit."""

import pytest
import torch

from mgcaffe.comm import AffineCost, PlanBasis, Segment, make_plan, plan_text
from mgcaffe.errors import CommError, DataError
from mgcaffe.solvers.events import PlanChosen, Warned
from tests.support.solverkit import train_ranks

# ip1: 4 x 6 + 6, ip2: 6 x 3 + 3
SEGMENTS = [Segment("ip1", 0, 30), Segment("ip2", 30, 21)]


def write_plan(path, schedule="wfbp", segments=SEGMENTS):
    basis = PlanBasis(segments, [2e-3, 1e-3], AffineCost(1e-4, 1e-9))
    plan = make_plan(schedule, segments, basis.ready, basis.cost, element_bytes=4)
    path.write_text(plan_text(plan, basis))
    return plan


def train(size, folder, fields, *, iterations=6, restore=None):
    return train_ranks(size, folder, fields, iterations=iterations, restore=restore)


@pytest.mark.parametrize("schedule", ["single", "wfbp"])
def test_a_pinned_plan_is_used_at_once_and_changes_no_bit(tmp_path, schedule):
    plan = write_plan(tmp_path / "plan.json", schedule)
    pinned = train(2, tmp_path, f'comm_param {{ plan_file: "{tmp_path}/plan.json" }}')
    planned = train(2, tmp_path, "comm_param { schedule: SINGLE }")
    for (weights, recorder, used), (others, _, _) in zip(pinned, planned, strict=True):
        assert torch.equal(weights, others)
        assert used.hash == plan.hash and used == plan
        (chosen,) = recorder.of(PlanChosen)
        assert (chosen.iteration, chosen.schedule, chosen.plan) == (0, schedule, plan)
        assert not recorder.of(Warned)


@pytest.mark.parametrize(("asked", "warns"), [("", True), ("overlap_forward: false", False)])
def test_a_pinned_plan_that_overlaps_the_forward_pass_says_where_it_cannot(tmp_path, asked, warns):
    write_plan(tmp_path / "plan.json")
    path = tmp_path / "plan.json"
    path.write_text(path.read_text().replace('"overlap_forward": false', '"overlap_forward": true'))
    clips = "clip_gradients: 0.5"
    pinned = train(2, tmp_path, f'{clips} comm_param {{ plan_file: "{path}" {asked} }}')
    for (weights, recorder, used), (others, _, _) in zip(pinned, train(2, tmp_path, clips), strict=True):
        assert torch.equal(weights, others)
        assert not used.overlaps_forward
        said = ["overlap_forward has no effect: clip_gradients needs all gradients before the first update"]
        assert [event.text for event in recorder.of(Warned)] == said * warns


def test_a_pinned_plan_outlives_a_snapshots_plan(tmp_path):
    train(2, tmp_path, "comm_param { schedule: SINGLE calibration_iterations: 2 }")
    plan = write_plan(tmp_path / "plan.json", "wfbp")
    fields = f'comm_param {{ plan_file: "{tmp_path}/plan.json" schedule: SINGLE }}'
    for _, _, used in train(2, tmp_path, fields, restore=f"{tmp_path}/net_iter_6.solverstate"):
        assert used == plan


@pytest.mark.parametrize("size", [1, 2])
def test_a_plan_that_does_not_fit_is_refused_also_by_one_rank(tmp_path, size):
    write_plan(tmp_path / "plan.json", segments=[Segment("ip1", 0, 30), Segment("ip2", 30, 22)])
    with pytest.raises(CommError, match="layer 1 is 'ip2' with 22 elements there, 'ip2' with 21 in the net"):
        train(size, tmp_path, f'comm_param {{ plan_file: "{tmp_path}/plan.json" }}')
    with pytest.raises(DataError, match="cannot read a plan"):
        train(size, tmp_path, 'comm_param { plan_file: "absent.json" }')
