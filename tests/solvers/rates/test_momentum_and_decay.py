"""Momentum and weight decay over the iterations, against NVIDIA's formulas."""

import math

import pytest

from mgcaffe.errors import SolverError
from mgcaffe.prototxt import SolverParameter, parse_solver
from mgcaffe.solvers.rates.momentum_and_decay import MomentumAndDecay


def schedules(kind="SGD", **fields):
    return MomentumAndDecay(SolverParameter(**fields), kind)


def test_without_policies_the_numbers_are_the_fields():
    numbers = schedules(momentum=0.75, weight_decay=0.5).numbers(0.1, 7)
    assert (numbers.momentum, numbers.history_momentum, numbers.weight_decay) == (0.75, 0.75, 0.5)
    assert (numbers.rate, numbers.iteration) == (0.1, 7)


@pytest.mark.parametrize("iteration", [0, 1, 5, 10, 12])
def test_poly_moves_momentum_to_its_maximum(iteration):
    fields = {"momentum": 0.5, "max_momentum": 0.75, "momentum_power": 2, "max_iter": 10}
    numbers = schedules(momentum_policy="poly", **fields).numbers(0.1, iteration)
    assert numbers.momentum == pytest.approx(0.5 + 0.25 * min(1, iteration / 10) ** 2, rel=1e-12)


def test_opt_computes_momentum_from_the_rate():
    opt = schedules(momentum_policy="opt")
    assert opt.numbers(0.25, 3).momentum == pytest.approx((1 - 0.5 * math.sqrt(0.25)) ** 2)
    assert opt.numbers(0.0, 3).momentum == 1.0
    assert schedules(momentum_policy="opt", max_momentum=0.5).numbers(0.0, 3).momentum == 0.5


@pytest.mark.parametrize("iteration", [0, 3, 10, 99])
@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_poly_moves_weight_decay_to_its_maximum(kind, iteration):
    fields = {"weight_decay": 0.25, "max_weight_decay": 1, "weight_decay_power": 3, "max_iter": 10}
    numbers = schedules(kind, weight_decay_policy="poly", **fields).numbers(0.1, iteration)
    assert numbers.weight_decay == pytest.approx(0.25 + 0.75 * min(1, iteration / 10) ** 3, rel=1e-12)


def test_a_warm_up_corrects_sgds_momentum_alone():
    fields = {"base_lr": 0.5, "warmup_iter": 4, "warmup_start_lr": 0.25, "momentum": 0.5}
    numbers = schedules(**fields).numbers(0.375, 2)
    assert numbers.momentum == 0.5
    assert numbers.history_momentum == pytest.approx(0.5 * 0.375 / 0.3125)
    assert schedules("Nesterov", **fields).numbers(0.375, 2).momentum == 0.5


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ('momentum_policy: "pol"', "SGD", "unknown momentum_policy 'pol'. Did you mean 'poly'"),
        ('weight_decay_policy: "x"', "SGD", "unknown weight_decay_policy 'x'"),
        ('momentum_policy: "opt"', "Adam", "solver type Adam has no momentum policy"),
        ('max_momentum: 1 momentum_policy: "poly"', "SGD", "max_momentum is 1 and must be at least 0 and below 1"),
        ('momentum_power: -1 momentum_policy: "poly" max_iter: 1', "SGD", "momentum_power is -1"),
        ('max_iter: 0 momentum_policy: "poly"', "SGD", "max_iter is 0; with momentum_policy 'poly'"),
        ('max_iter: 0 weight_decay_policy: "poly"', "SGD", "max_iter is 0; with weight_decay_policy 'poly'"),
        ('max_weight_decay: -1 weight_decay_policy: "poly" max_iter: 1', "SGD", "max_weight_decay is -1"),
        ('decoupled_weight_decay: true regularization_type: "L1"', "SGD", "only L2 decay can be decoupled"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_place(text, kind, message):
    source = parse_solver(f"base_lr: 1\n{text}", file="s.prototxt")
    with pytest.raises(SolverError, match=rf"s\.prototxt:2:1: .*{message}"):
        MomentumAndDecay(source.param, kind, source)


def test_what_is_not_read_or_counts_as_zero_is_warned_about():
    (warning,) = schedules(momentum_policy="opt", momentum=0.9).warnings
    assert warning.startswith("momentum has no effect")
    (warning,) = schedules(weight_decay_policy="poly", max_iter=3).warnings
    assert "reads max_weight_decay, which is not set and counts as 0" in warning
