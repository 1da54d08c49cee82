"""Fields that no choice of the solver reads."""

import pytest

from mgcaffe.prototxt import parse_solver
from mgcaffe.solvers.setup.unused_fields import unused_fields


def unused(text):
    source = parse_solver(text, file="s.prototxt")
    return unused_fields(source.param, source)


@pytest.mark.parametrize(
    ("text", "field", "reason"),
    [
        ('lr_policy: "fixed" gamma: 0.1', "gamma", "lr_policy 'fixed' does not read it"),
        ('lr_policy: "step" gamma: 0.1 stepsize: 3 stepvalue: 4', "stepvalue", "lr_policy 'step' does not"),
        ('lr_policy: "inv" gamma: 1 power: 1 plateau_winsize: 4', "plateau_winsize", "lr_policy 'inv' does not"),
        ('lr_policy: "multifixed" stagelr: 1 stageiter: 1 base_lr: 1', "base_lr", "'multifixed' does not"),
        ('lr_policy: "fixed" warmup_start_lr: 0.1', "warmup_start_lr", "only warmup_iter would"),
        ("rampup_lr: 0.1", "rampup_lr", "only rampup_interval would"),
        ('larc_policy: "clip"', "larc_policy", "only larc would"),
        ("larc_turbo: true", "larc_turbo", "only larc would"),
        ("local_gw_ratio: 1", "local_gw_ratio", "only local_lr_auto would"),
        ("max_momentum: 0.5", "max_momentum", "only momentum_policy 'poly' and 'opt'"),
        ('momentum_policy: "opt" momentum_power: 2', "momentum_power", "only momentum_policy 'poly'"),
        ("max_weight_decay: 1", "max_weight_decay", "only weight_decay_policy 'poly'"),
        ("rms_decay: 0.5", "rms_decay", "only solver type RMSProp"),
        ('type: "Nesterov" delta: 1', "delta", "AdaGrad"),
    ],
)
def test_each_is_warned_about_with_its_place_and_what_would_read_it(text, field, reason):
    (warning,) = unused(text)
    assert warning.startswith("s.prototxt:1:") and f" {field} has no effect: " in warning and reason in warning


@pytest.mark.parametrize(
    "text",
    [
        'lr_policy: "step" gamma: 0.1 stepsize: 3 max_iter: 9 momentum: 0.9',
        'lr_policy: "poly" power: 0.5 max_iter: 9 min_lr: 0.1',
        'lr_policy: "plateau" gamma: 0.1 plateau_winsize: 5',
        'lr_policy: "multifixed" stagelr: 1 stageiter: 1 base_lr: 1 warmup_iter: 3 warmup_start_lr: 0.1',
        'lr_policy: "fixed" gamma: 0 momentum2: 0.999 larc_eta: 0.001 max_iter: 100',
        'type: "Adam" momentum2: 0.9 delta: 0.1 momentum: 0.5',
        'larc: true larc_policy: "clip" larc_eta: 0.5 momentum_policy: "poly" max_momentum: 0.5 momentum_power: 2',
        'lr_policy: "no such policy" gamma: 1',
    ],
)
def test_fields_that_are_read_or_at_their_default_are_not(text):
    assert unused(text) == []
