"""The learning-rate policies against closed forms written down here, and their refusals."""

import math

import pytest

from mgcaffe.errors import SolverError
from mgcaffe.prototxt import SolverParameter, parse_solver
from mgcaffe.solvers.policies import POLICIES, LearningRatePolicy


def policy(**fields):
    return LearningRatePolicy(SolverParameter(base_lr=0.5, **fields))


def test_there_are_the_seven_policies_of_caffe():
    assert sorted(POLICIES) == ["exp", "fixed", "inv", "multistep", "poly", "sigmoid", "step"]


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
    expected = [0, 0, 0, 1, 1, 3, 3, 3, 4, 4]
    assert [steps.current_step(iteration) for iteration in range(10)] == expected
    assert [steps.rate(iteration) for iteration in range(10)] == [0.5 * 0.5**step for step in expected]


def test_multistep_waits_for_a_stepvalue_before_it_looks_at_the_next():
    steps = policy(lr_policy="multistep", gamma=0.5, stepvalue=[10, 5])
    assert [steps.current_step(iteration) for iteration in (5, 9, 10)] == [0, 0, 2]


def test_the_current_step_of_a_snapshot_counts_steps_only_where_there_are_some():
    assert policy(lr_policy="step", gamma=0.5, stepsize=4).current_step(9) == 2
    assert policy(lr_policy="exp", gamma=0.5).current_step(9) == 0


def test_poly_stays_at_its_last_rate_after_max_iter():
    assert policy(lr_policy="poly", power=0.5, max_iter=10).rate(12) == 0.0


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
        ({"lr_policy": "poly"}, "max_iter is 0"),
        ({"lr_policy": "exp", "gamma": -1}, "gamma is -1"),
    ],
)
def test_fields_out_of_range_are_refused(fields, message):
    with pytest.raises(SolverError, match=message):
        policy(**fields)


def test_fields_that_count_as_zero_because_they_are_unset_are_known():
    assert policy(lr_policy="inv", gamma=0.5).unset_fields() == ["power"]
    assert policy(lr_policy="multistep", gamma=0.5).unset_fields() == ["stepvalue"]
    assert LearningRatePolicy(SolverParameter(lr_policy="fixed")).unset_fields() == ["base_lr"]
    assert policy(lr_policy="poly", max_iter=3, power=1).unset_fields() == []
