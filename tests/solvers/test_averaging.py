"""How gradients come to their plan: tried while training goes on, read from a file, emulated, or not measured."""

import json

import pytest
import torch
from solverkit import train_ranks

from mgcaffe.comm.candidates import MOST_OVERLAPPED
from mgcaffe.comm.trials import FIRST_ROUNDS, MOST_SECOND_ROUNDS
from mgcaffe.errors import CommError, UsageError
from mgcaffe.solvers.events import Noted, PlanChosen, Warned

TRIALS = 3 + (4 + 2 * MOST_OVERLAPPED) * (FIRST_ROUNDS + MOST_SECOND_ROUNDS)
"""Calibration, and all rounds of four candidates (one and two groups, each in both ways of waiting), and of those that
overlap the forward pass, which take two iterations a turn."""


def train(size, folder, comm, *, iterations=TRIALS, restore=None):
    fields = f"comm_param {{ calibration_iterations: 3 {comm} }}"
    return train_ranks(size, folder, fields, iterations=iterations, restore=restore)


def test_auto_is_the_default_tries_plans_and_changes_no_bit(tmp_path):
    tried, fixed = train(2, tmp_path, ""), train(2, tmp_path, "schedule: SINGLE")
    for (weights, recorder, plan), (others, _, _) in zip(tried, fixed, strict=True):
        assert torch.equal(weights, others)
        (chosen,) = recorder.of(PlanChosen)
        assert chosen.schedule == "auto" and chosen.plan == plan
        assert plan.schedule == f"auto: {chosen.decision.trials[0].candidate.label}"
        assert len({trial.candidate.plan.hash for trial in chosen.decision.trials}) > 1
    assert tried[0][2] == tried[1][2]


def test_autos_plan_is_stored_and_used_again_without_measuring(tmp_path):
    stored = train(2, tmp_path, "")[0][2]
    state = f"{tmp_path}/net_iter_{TRIALS}.solverstate"
    for _, recorder, plan in train(2, tmp_path, "", iterations=10, restore=state):
        assert plan == stored
        assert not recorder.of(PlanChosen)


def test_a_plan_that_is_still_being_looked_for_is_not_stored(tmp_path):
    assert [plan for _, _, plan in train(2, tmp_path, "", iterations=5)] == [None, None]
    state = f"{tmp_path}/net_iter_5.solverstate"
    for _, recorder, _ in train(2, tmp_path, "", restore=state):
        assert recorder.of(PlanChosen)


def test_another_schedule_does_not_take_autos_plan(tmp_path):
    train(2, tmp_path, "")
    state = f"{tmp_path}/net_iter_{TRIALS}.solverstate"
    for _, recorder, plan in train(2, tmp_path, "schedule: WFBP", iterations=4, restore=state):
        assert recorder.of(PlanChosen) and plan.schedule == "wfbp"


def test_one_rank_plans_nothing(tmp_path):
    ((_, recorder, plan),) = train(1, tmp_path, f'cost_file: "{tmp_path}/costs.json"', iterations=5)
    assert plan is None and not recorder.of(PlanChosen)
    assert not (tmp_path / "costs.json").exists()


def test_costs_are_written_once_and_then_read(tmp_path):
    comm = f'schedule: OPTIMAL cost_file: "{tmp_path}/costs.json"'
    first = train(2, tmp_path, comm, iterations=4)
    assert "measured and written to" in first[0][1].of(Noted)[0].text
    assert len(json.loads((tmp_path / "costs.json").read_text())["all_reduce_costs"]) == 1
    before = (tmp_path / "costs.json").read_bytes()
    for _, recorder, _ in train(2, tmp_path, comm, iterations=4):
        assert "the wire is not measured" in recorder.of(Noted)[0].text
        assert recorder.of(PlanChosen)[0].cost == first[0][1].of(PlanChosen)[0].cost
    assert (tmp_path / "costs.json").read_bytes() == before


def test_costs_of_another_job_are_not_used_and_the_difference_told(tmp_path):
    comm = f'schedule: OPTIMAL cost_file: "{tmp_path}/costs.json"'
    train(2, tmp_path, comm, iterations=4)
    _, recorder, _ = train(4, tmp_path, comm, iterations=4)[0]
    assert "ranks 2 there, 4 here" in recorder.of(Noted)[0].text
    assert len(json.loads((tmp_path / "costs.json").read_text())["all_reduce_costs"]) == 2


def test_a_bad_cost_file_is_refused_before_training(tmp_path):
    (tmp_path / "costs.json").write_text("{}")
    with pytest.raises(CommError, match="no measured costs"):
        train(2, tmp_path, f'cost_file: "{tmp_path}/costs.json"')
    with pytest.raises(CommError, match="not writable") as error:
        train(2, tmp_path, f'cost_file: "{tmp_path}/absent/costs.json"')
    assert error.value.exit_code == 73


def test_an_emulated_link_is_said_to_be_one_and_is_what_is_measured(tmp_path):
    comm = 'schedule: OPTIMAL emulate_link: "a=3e-3,b=1e-6"'
    emulated, real = train(2, tmp_path, comm, iterations=4), train(2, tmp_path, "schedule: SINGLE", iterations=4)
    _, recorder, _ = emulated[0]
    assert recorder.of(Noted)[0].text.startswith("EMULATED LINK a=3e-3,b=1e-6")
    assert recorder.of(PlanChosen)[0].cost(204) >= 3e-3 + 204e-6
    assert torch.equal(emulated[0][0], real[0][0])
    with pytest.raises(UsageError, match="not understood"):
        train(1, tmp_path, 'emulate_link: "fast"')


def test_deterministic_measures_nothing(tmp_path):
    for _, recorder, plan in train(2, tmp_path, "deterministic: true", iterations=20):
        assert not recorder.of(PlanChosen)
        assert "deterministic is set" in recorder.of(Warned)[0].text
        assert plan.schedule == "single"


def test_deterministic_goes_on_with_a_plan_that_was_found_earlier(tmp_path):
    stored = train(2, tmp_path, "")[0][2]
    state = f"{tmp_path}/net_iter_{TRIALS}.solverstate"
    for _, _, plan in train(2, tmp_path, "deterministic: true", iterations=5, restore=state):
        assert plan == stored


SLOW_LINK = 'emulate_link: "a=2e-3,b=1e-6"'


@pytest.mark.parametrize(("wish", "overlaps"), [("", True), ("overlap_forward: true", True),
                                                ("overlap_forward: false", False)])  # fmt: skip
def test_auto_overlaps_the_forward_pass_on_a_slow_link_unless_it_is_told_not_to(tmp_path, wish, overlaps):
    """Communication takes ten times as long as an iteration's computing; what is chosen is the trials' affair."""
    tried, fixed = train(2, tmp_path, f"{SLOW_LINK} {wish}"), train(2, tmp_path, "schedule: SINGLE")
    for (weights, recorder, _), (others, _, _) in zip(tried, fixed, strict=True):
        assert torch.equal(weights, others)
        (chosen,) = recorder.of(PlanChosen)
        kinds = {trial.candidate.plan.overlaps_forward for trial in chosen.decision.trials}
        assert (True in kinds) == overlaps
        if wish:
            assert chosen.plan.overlaps_forward == overlaps


@pytest.mark.parametrize(("wish", "overlaps"), [("", True), ("overlap_forward: false", False)])
def test_a_stored_plan_overlaps_as_it_was_found_unless_the_solver_says_otherwise(tmp_path, wish, overlaps):
    stored = train(2, tmp_path, "overlap_forward: true")[0][2]
    assert stored.overlaps_forward
    state = f"{tmp_path}/net_iter_{TRIALS}.solverstate"
    for _, _, plan in train(2, tmp_path, wish, iterations=10, restore=state):
        assert plan.overlaps_forward == overlaps


def test_no_other_schedule_overlaps_unless_it_is_told_to(tmp_path):
    for wish, overlaps in (("", False), ("overlap_forward: true", True)):
        for _, _, plan in train(2, tmp_path, f"{SLOW_LINK} schedule: WFBP {wish}", iterations=10):
            assert plan.overlaps_forward == overlaps


def test_who_takes_single_steps_is_told_what_they_wait_for_between_them(tmp_path):
    """Each step ends with complete weights, so nothing is hidden by the next forward pass, and no trial may say so."""
    fields = f"comm_param {{ calibration_iterations: 3 {SLOW_LINK} }}"
    for _, recorder, _ in train_ranks(2, tmp_path, fields, iterations=TRIALS, at_once=1):
        (chosen,) = recorder.of(PlanChosen)
        medians = {True: [], False: []}
        for trial in chosen.decision.trials:
            medians[trial.candidate.plan.overlaps_forward].append(trial.median)
        # Every plan sleeps for its link; what was left out would be near nothing.
        assert min(medians[True]) > 0.5 * min(medians[False])
