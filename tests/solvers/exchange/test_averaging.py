"""How gradients come to their plan: tried while training goes on, read from a file, emulated, or not measured."""

import json
from dataclasses import dataclass

import pytest
import torch

from mgcaffe.comm import run_ranks
from mgcaffe.comm.planning.forward_overlap import overlapping
from mgcaffe.comm.tuning.candidates import MAX_OVERLAPPED
from mgcaffe.comm.tuning.trials import MAX_FIRST_ROUNDS, MAX_SECOND_ROUNDS
from mgcaffe.errors import CommError, UsageError
from mgcaffe.prototxt import NetParameter
from mgcaffe.solvers.events import Noted, PlanChosen, Warned
from mgcaffe.solvers.exchange.averaging import GradientAveraging
from tests.support.solverkit import CLASSIFIER, data_layer, make_solver, train_ranks, weights_of, write_data

pytestmark = pytest.mark.slow

TRIALS = 4 + (4 + 2 * MAX_OVERLAPPED) * (MAX_FIRST_ROUNDS + MAX_SECOND_ROUNDS)
"""Calibration, and all rounds of four candidates (one and two groups, each in both ways of waiting), and of those that
overlap the forward pass, which take two iterations a turn."""


def train(size, folder, comm, *, iterations=TRIALS, restore=None):
    fields = f"comm_param {{ calibration_iterations: 4 {comm} }}"
    return train_ranks(size, folder, fields, iterations=iterations, restore=restore)


@dataclass
class Run:
    """What two ranks return of a training, and the snapshot that they end with."""

    ranks: list
    state: str


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Return a function that trains two ranks through all trials, once for each setting of the plan."""
    runs = {}

    def find(comm, more=""):
        if (comm, more) not in runs:
            folder = tmp_path_factory.mktemp("found")
            fields = f"{more} comm_param {{ calibration_iterations: 4 {comm} }}"
            ranks = train_ranks(2, folder, fields, iterations=TRIALS)
            runs[comm, more] = Run(ranks, f"{folder}/net_iter_{TRIALS}.solverstate")
        return runs[comm, more]

    return find


def test_auto_is_the_default_tries_plans_and_changes_no_bit(found):
    tried, fixed = found("").ranks, found("schedule: SINGLE").ranks
    for (weights, recorder, plan), (others, _, _) in zip(tried, fixed, strict=True):
        assert torch.equal(weights, others)
        chosen = recorder.of(PlanChosen)[-1]  # the first, unless the machine was so busy that it planned again
        assert chosen.schedule == "auto" and chosen.plan == plan
        assert plan.schedule == f"auto: {chosen.decision.trials[0].candidate.label}"
        assert len({trial.candidate.plan.hash for trial in chosen.decision.trials}) > 1
    assert tried[0][2] == tried[1][2]


def test_autos_plan_is_stored_and_used_again_without_measuring(tmp_path, found):
    first = found("")
    for _, recorder, plan in train(2, tmp_path, "", iterations=10, restore=first.state):
        assert plan == first.ranks[0][2]
        assert not recorder.of(PlanChosen)


def test_a_plan_that_is_still_being_looked_for_is_not_stored(tmp_path):
    assert [plan for _, _, plan in train(2, tmp_path, "", iterations=5)] == [None, None]
    state = f"{tmp_path}/net_iter_5.solverstate"
    for _, recorder, _ in train(2, tmp_path, "", restore=state):
        assert recorder.of(PlanChosen)


@pytest.mark.parametrize("measures", ["", "deterministic: true"])
def test_another_bucket_size_does_not_take_the_snapshots_buckets(tmp_path, measures):
    small, large = (f"schedule: THRESHOLD bucket_mb: {size} {measures}" for size in ("0.000001", "25"))
    _, _, stored = train(2, tmp_path, small, iterations=6)[0]
    assert len(stored.groups) == 2
    state = f"{tmp_path}/net_iter_6.solverstate"
    for _, recorder, plan in train(2, tmp_path, small, iterations=6, restore=state):
        assert plan == stored and not recorder.of(PlanChosen)
    for _, _, plan in train(2, tmp_path, large, iterations=6, restore=state):
        assert len(plan.groups) == 1


def test_another_schedule_does_not_take_autos_plan(tmp_path, found):
    for _, recorder, plan in train(2, tmp_path, "schedule: WFBP", iterations=4, restore=found("").state):
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
        assert "the all-reduce is not measured" in recorder.of(Noted)[0].text
        assert recorder.of(PlanChosen)[0].cost == first[0][1].of(PlanChosen)[0].cost
    assert (tmp_path / "costs.json").read_bytes() == before


@pytest.mark.parametrize("schedule", ["AUTO", "OPTIMAL", "MGWFBP"])
def test_a_snapshot_right_after_the_links_measurement_holds_the_gradients(tmp_path, schedule):
    """The all-reduce is measured on the gradient buffer, between the last update and the snapshot after training."""
    fields = f"snapshot_diff: true comm_param {{ calibration_iterations: 4 schedule: {schedule} }}"
    train_ranks(2, tmp_path, fields, iterations=4)
    measured = diffs_of(tmp_path / "net_iter_4.caffemodel")
    train_ranks(2, tmp_path, "snapshot_diff: true comm_param { schedule: SINGLE deterministic: true }", iterations=4)
    expected = diffs_of(tmp_path / "net_iter_4.caffemodel")
    assert all(any(values) for values in expected)
    assert measured == expected


def diffs_of(path):
    """The gradients in a caffemodel, one list a parameter."""
    net = NetParameter.FromString(path.read_bytes())
    return [list(blob.diff) for layer in net.layer for blob in layer.blobs]


def test_costs_of_another_job_are_not_used_and_the_difference_reported(tmp_path):
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


def test_deterministic_goes_on_with_a_plan_that_was_found_earlier(tmp_path, found):
    first = found("")
    for _, _, plan in train(2, tmp_path, "deterministic: true", iterations=5, restore=first.state):
        assert plan == first.ranks[0][2]


SLOW_LINK = 'emulate_link: "a=2e-3,b=1e-6"'


@pytest.mark.parametrize(
    ("asked", "kinds", "more"),
    [
        ("", {False, True}, ""),
        ("", {False, True}, "iter_size: 2"),
        ("overlap_forward: true", {True}, ""),
        ("overlap_forward: false", {False}, ""),
    ],
)
def test_auto_overlaps_the_forward_pass_as_it_is_asked_to_and_changes_no_bit(found, asked, kinds, more):
    tried = found(f"{SLOW_LINK} {asked}", more).ranks
    fixed = found("schedule: SINGLE", more).ranks
    for (weights, recorder, _), (others, _, _) in zip(tried, fixed, strict=True):
        assert torch.equal(weights, others)
        chosen = recorder.of(PlanChosen)[-1]  # the first, unless the machine was so busy that it planned again
        assert chosen.plan.overlaps_forward in kinds
        assert {trial.candidate.plan.overlaps_forward for trial in chosen.decision.trials} <= kinds
        # Whether a plan that overlaps is worth a trial depends on times; that they were taken does not.
        assert (chosen.decision.timings.forward is not None) == (True in kinds)


@pytest.mark.parametrize(("asked", "overlaps"), [("", True), ("overlap_forward: false", False)])
def test_a_stored_plan_overlaps_as_it_was_found_unless_the_solver_says_otherwise(tmp_path, found, asked, overlaps):
    first = found("overlap_forward: true")
    stored = first.ranks[0][2]
    assert stored.overlaps_forward
    for _, _, plan in train(2, tmp_path, asked, iterations=10, restore=first.state):
        assert plan.overlaps_forward == overlaps
        assert (plan == stored) == overlaps


def test_a_stored_plan_that_waits_is_given_an_order_where_overlap_is_asked_for(tmp_path, found):
    first = found("overlap_forward: false")
    for _, _, plan in train(2, tmp_path, "overlap_forward: true", iterations=10, restore=first.state):
        assert plan == overlapping(first.ranks[0][2])


def test_no_other_schedule_overlaps_unless_it_is_asked_to(tmp_path):
    for asked, overlaps in (("", False), ("overlap_forward: true", True)):
        for _, _, plan in train(2, tmp_path, f"{SLOW_LINK} schedule: WFBP {asked}", iterations=10):
            assert plan.overlaps_forward == overlaps


@pytest.mark.parametrize("at_once", [1, None])
def test_what_is_waited_for_between_single_steps_belongs_to_the_iteration(tmp_path, monkeypatch, at_once):
    """Each call of `step` ends with complete weights; nothing is hidden then, and no trial may find that it is."""
    taken = []
    pass_on = GradientAveraging.iteration_took

    def note(self, times):
        taken.append((self.plan_in_use, times.total))
        pass_on(self, times)

    monkeypatch.setattr(GradientAveraging, "iteration_took", note)
    fields = f"comm_param {{ calibration_iterations: 4 {SLOW_LINK} overlap_forward: true }}"
    train_ranks(2, tmp_path, fields, iterations=40, at_once=at_once)
    # Each group sleeps for 2 ms and more. The first iteration of a turn waits for nothing, the second for the first.
    turns = [total for plan, total in taken if plan.overlaps_forward]
    assert len(turns) > 20
    assert sum(total > 2e-3 for total in turns) >= len(turns) // 2 - 2


def test_a_rank_with_a_callback_holds_up_no_other(tmp_path):
    """It waits for all its gradients and takes no times; the others must not ask it for any."""
    net = data_layer(write_data(tmp_path, classes=3), 4) + CLASSIFIER

    def rank(communicator):
        fields = f"comm_param {{ calibration_iterations: 4 {SLOW_LINK} }}"
        with make_solver(net, fields, tmp_path, communicator=communicator, dtype=torch.float32) as solver:
            if communicator.rank == 1:
                solver.add_callback(lambda: None, lambda: None)
            solver.step(TRIALS)
            return weights_of(solver), solver._averaging.plan

    (weights, plan), (others, same) = run_ranks(2, rank)
    assert torch.equal(weights, others) and plan == same and not plan.overlaps_forward
