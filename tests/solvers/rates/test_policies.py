"""The learning-rate policies against closed forms written down here, and their refusals."""

import math
import re

import pytest

from mgcaffe.errors import SolverError
from mgcaffe.prototxt import SolverParameter, parse_solver
from mgcaffe.solvers.rates.policies import POLICIES, LearningRatePolicy


def policy(**fields):
    return LearningRatePolicy(SolverParameter(base_lr=0.5, **fields))


def test_there_are_the_seven_policies_of_caffe_and_two_of_its_forks():
    caffes = ["exp", "fixed", "inv", "multistep", "poly", "sigmoid", "step"]
    assert sorted(POLICIES) == sorted([*caffes, "multifixed", "plateau"])


@pytest.mark.parametrize("iteration", [0, 1, 9, 10, 11, 29, 30, 1000])
def test_rates_are_those_of_the_closed_forms(iteration):
    assert policy(lr_policy="fixed").rate(iteration) == 0.5
    step = policy(lr_policy="step", gamma=0.5, stepsize=10)
    assert step.rate(iteration) == pytest.approx(0.5 * 0.5 ** math.floor(iteration / 10), rel=1e-12)
    assert policy(lr_policy="exp", gamma=0.5).rate(iteration) == pytest.approx(0.5 * 0.5**iteration, rel=1e-12)
    inv = policy(lr_policy="inv", gamma=0.25, power=0.75)
    assert inv.rate(iteration) == pytest.approx(0.5 / (1 + 0.25 * iteration) ** 0.75, rel=1e-12)
    sigmoid = policy(lr_policy="sigmoid", gamma=-0.125, stepsize=10)
    assert sigmoid.rate(iteration) == pytest.approx(0.5 / (1 + math.exp(0.125 * (iteration - 10))), rel=1e-12)
    poly = policy(lr_policy="poly", power=0.5, max_iter=1000)
    assert poly.rate(iteration) == pytest.approx(0.5 * math.sqrt(1 - iteration / 1000), rel=1e-12)


def test_multistep_goes_down_at_each_stepvalue():
    steps = policy(lr_policy="multistep", gamma=0.5, stepvalue=[3, 5, 5, 8])
    expected = [0, 0, 0, 1, 1, 2, 3, 3, 4, 4]  # one an iteration at most, as in Caffe
    assert [steps.current_step(iteration) for iteration in range(11)] == [0, *expected]
    assert [steps.rate(iteration) for iteration in range(10)] == [0.5 * 0.5**step for step in expected]


def test_multistep_waits_for_a_stepvalue_before_it_looks_at_the_next():
    steps = policy(lr_policy="multistep", gamma=0.5, stepvalue=[10, 5])
    assert [steps.rate(iteration) for iteration in (5, 9, 10, 11, 12)] == [0.5, 0.5, 0.25, 0.125, 0.125]


def test_the_current_step_of_a_snapshot_counts_steps_only_where_there_are_some():
    steps = policy(lr_policy="step", gamma=0.5, stepsize=5)
    # Caffe's GetLearningRate, which counts them, was last called for the update before.
    assert [steps.current_step(iteration) for iteration in (0, 1, 5, 6, 10, 11)] == [0, 0, 0, 1, 1, 2]
    assert policy(lr_policy="exp", gamma=0.5).current_step(9) == 0


def test_multistep_says_when_it_takes_a_step_in_caffes_words():
    fields = {"lr_policy": "multistep", "gamma": 0.5, "stepvalue": [0, 3, 5, 5]}
    first, told = policy(**fields), {}
    for iteration in (0, 1, 2, 4, 5, 6):  # 3 was skipped, since its gradients were not finite
        told[iteration] = first.observe(iteration, 1.0)
    steps = {0: 1, 4: 2, 5: 3, 6: 4}
    expected = {each: f"MultiStep Status: Iteration {each}, step = {step}" for each, step in steps.items()}
    assert {iteration: text for iteration, text in told.items() if text} == expected
    # A run goes on at a step that a snapshot of Caffe's does not count yet, and one of ours from before did.
    for current_step in (1, 2):
        resumed = policy(**fields)
        assert resumed.resume(None, 3, current_step) is None
        assert resumed.observe(3, 1.0) == "MultiStep Status: Iteration 3, step = 2"
        assert resumed.rate(3) == 0.125
    assert policy(lr_policy="step", gamma=0.5, stepsize=1).observe(1, 1.0) is None


def test_poly_stays_at_its_last_rate_after_max_iter():
    assert policy(lr_policy="poly", power=0.5, max_iter=10).rate(12) == 0.0


def test_multifixed_takes_each_stages_rate_up_to_and_with_its_last_iteration():
    stages = policy(lr_policy="multifixed", stagelr=[0.5, 0.25, 0.125], stageiter=[2, 3, 6])
    assert [stages.rate(iteration) for iteration in range(9)] == [0.5] * 3 + [0.25] + [0.125] * 5
    assert stages.current_step(5) == 0


def test_poly_of_a_solver_that_only_tests_is_at_its_end():
    without = policy(lr_policy="poly", power=1, max_iter=0, min_lr=0.25)
    assert without.rate(0) == 0.25
    assert without.warnings[-1] == "lr_policy 'poly' with a max_iter of 0: the rate is 0.25 from the start"


def test_poly_ends_at_min_lr():
    poly = policy(lr_policy="poly", power=2, max_iter=10, min_lr=0.25)
    expected = [(0.5 - 0.25) * (1 - iteration / 10) ** 2 + 0.25 for iteration in range(11)]
    assert [poly.rate(iteration) for iteration in range(11)] == pytest.approx(expected, rel=1e-12)
    assert poly.rate(13) == 0.25


def test_no_policy_goes_below_min_lr():
    steps = policy(lr_policy="step", gamma=0.5, stepsize=1, min_lr=0.1875)
    assert [steps.rate(iteration) for iteration in range(4)] == [0.5, 0.25, 0.1875, 0.1875]
    warm = policy(lr_policy="fixed", rampup_interval=4, min_lr=0.0625)
    assert [warm.rate(iteration) for iteration in range(5)] == [0.0625, 0.0625, 0.125, 0.28125, 0.5]


def test_a_warm_up_comes_first_and_the_policy_counts_from_the_beginning():
    steps = policy(lr_policy="multistep", gamma=0.5, stepvalue=[2, 6], warmup_iter=4, warmup_start_lr=0.25)
    assert [steps.rate(iteration) for iteration in range(7)] == [0.25, 0.3125, 0.375, 0.4375, 0.25, 0.25, 0.125]


def test_plateau_goes_down_after_so_many_iterations_without_a_lower_loss():
    plateau = policy(lr_policy="plateau", gamma=0.5, plateau_winsize=[3, 2], max_iter=20)
    losses = [5, 4, 4, 4.5, 4, 6, 3, 3, 3, 9, 9]
    news, rates = [], []
    for iteration, loss in enumerate(losses):
        news.append(plateau.observe(iteration, loss))
        rates.append(plateau.rate(iteration))
    # The lowest loss comes at 1, so 1 + 3 is a step; then at 6, and 6 + 2 is the last step.
    assert rates == [0.5] * 4 + [0.25] * 4 + [0.125] * 3
    assert [index for index, text in enumerate(news) if text] == [4, 8]
    assert news[4] == "Plateau Status: Iteration 4, step = 1"
    assert plateau.current_step(0) == 2


def test_plateau_sees_nothing_of_a_warm_up():
    plateau = policy(lr_policy="plateau", gamma=0.5, plateau_winsize=[2], warmup_iter=3)
    for iteration, loss in enumerate([1, 1, 1, 5, 5]):
        assert plateau.observe(iteration, loss) is None
    assert plateau.state.lowest_loss == 5 and plateau.state.last_event == 3
    assert plateau.observe(5, 5)


def test_plateau_goes_on_from_its_state_and_says_when_there_is_none():
    first = policy(lr_policy="plateau", gamma=0.5, plateau_winsize=[3, 3])
    first.observe(0, 2.0)
    second = policy(lr_policy="plateau", gamma=0.5, plateau_winsize=[3, 3])
    assert second.resume(first.state, 1, 0) is None
    for each in (first, second):
        assert [bool(each.observe(iteration, 3.0)) for iteration in range(1, 6)] == [False, False, True, False, False]
    third = policy(lr_policy="plateau", gamma=0.5, plateau_winsize=[3, 3])
    assert "goes on from step 1, and looks for a plateau from iteration 40" in third.resume(None, 40, 1)
    assert third.rate(40) == 0.25 and third.observe(40, math.inf) is None
    assert policy(lr_policy="fixed").resume(None, 40, 1) is None and policy(lr_policy="fixed").state is None


def test_rates_that_outgrow_floats_do_not_raise():
    assert policy(lr_policy="sigmoid", gamma=-10, stepsize=1).rate(10**6) == 0.0
    assert policy(lr_policy="exp", gamma=10).rate(10**6) == math.inf
    assert policy(lr_policy="poly", power=-1, max_iter=10).rate(10) == math.inf


def test_an_unknown_policy_names_its_place_and_the_nearest_one():
    source = parse_solver('base_lr: 1\nlr_policy: "stp"\n', file="solver.prototxt")
    with pytest.raises(SolverError) as caught:
        LearningRatePolicy(source.param, source)
    assert "solver.prototxt:2:" in str(caught.value)
    assert "unknown lr_policy 'stp'. Did you mean 'step'?" in str(caught.value)
    assert "multistep" in str(caught.value)


def test_a_missing_policy_is_refused():
    with pytest.raises(SolverError, match="gives no lr_policy"):
        policy()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lr_policy": "step", "gamma": 0.1}, "stepsize is 0.*'step' it must be above 0"),
        ({"lr_policy": "step", "gamma": -0.5, "stepsize": 1}, "gamma is -0.5.*must not be negative"),
        ({"lr_policy": "sigmoid", "stepsize": -3}, "stepsize is -3"),
        ({"lr_policy": "poly"}, "'poly' needs max_iter, at which the rate ends"),
        ({"lr_policy": "poly", "max_iter": -1}, "max_iter is -1.*must not be negative"),
        ({"lr_policy": "exp", "gamma": -1}, "gamma is -1"),
        ({"lr_policy": "inv", "gamma": -1}, "gamma is -1"),
        ({"lr_policy": "multistep", "gamma": -1}, "gamma is -1"),
        ({"lr_policy": "fixed", "min_lr": -1}, "min_lr is -1 and must not be negative"),
        ({"lr_policy": "poly", "max_iter": 9, "min_lr": 0.75}, "min_lr is 0.75, above base_lr 0.5"),
        ({"lr_policy": "plateau", "gamma": 0.5}, "needs plateau_winsize"),
        ({"lr_policy": "plateau", "gamma": -0.5, "plateau_winsize": [1]}, "gamma is -0.5"),
        ({"lr_policy": "multifixed"}, "has 0 stagelr and 0 stageiter"),
        ({"lr_policy": "multifixed", "stagelr": [1], "stageiter": [1, 2]}, "has 1 stagelr and 2 stageiter"),
        ({"lr_policy": "fixed", "warmup_iter": -1}, "warmup_iter is -1"),
    ],
)
def test_fields_out_of_range_are_refused(fields, message):
    with pytest.raises(SolverError, match=message):
        policy(**fields)


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ('lr_policy: "plateau"\nplateau_winsize: 5\nplateau_winsize: 0', 3, "plateau_winsize is 0"),
        ('lr_policy: "multifixed"\nstageiter: 5 stageiter: 9\nstagelr: 1\nstagelr: -1', 4, "stagelr is -1"),
        ('lr_policy: "multifixed"\nstagelr: 1 stagelr: 2\nstageiter: 5\nstageiter: 5', 4, "must rise"),
        ('lr_policy: "fixed"\nmin_lr: -3', 2, "min_lr is -3"),
    ],
)
def test_the_entry_that_is_wrong_is_located(text, place, message):
    source = parse_solver(text, file="s.prototxt")
    with pytest.raises(SolverError, match=rf"s\.prototxt:{place}:\d+: .*{message}"):
        LearningRatePolicy(source.param, source)


def unset(policy):
    return [re.search(r"reads (\w+), which is not set and counts as 0", text)[1] for text in policy.warnings]


def test_fields_that_count_as_zero_because_they_are_unset_are_warned_about():
    assert unset(policy(lr_policy="inv", gamma=0.5)) == ["power"]
    assert unset(LearningRatePolicy(SolverParameter(lr_policy="fixed"))) == ["base_lr"]
    assert unset(policy(lr_policy="poly", max_iter=3, power=1)) == []
    assert unset(policy(lr_policy="plateau", plateau_winsize=[1])) == ["gamma"]
    stages = {"lr_policy": "multifixed", "stagelr": [1], "stageiter": [5]}
    assert unset(LearningRatePolicy(SolverParameter(**stages))) == []
    assert unset(LearningRatePolicy(SolverParameter(**stages, warmup_iter=3))) == ["base_lr"]


def test_a_multistep_without_steps_is_warned_about():
    (warning,) = policy(lr_policy="multistep", gamma=0.5).warnings
    assert warning == "lr_policy 'multistep' reads stepvalue, which is not set: the rate takes no step"
