"""No field of a solver is ignored in silence."""

import pytest

from mgcaffe.errors import SolverError
from mgcaffe.prototxt import SolverParameter, parse_solver
from mgcaffe.solvers.checks import check_fields


def check(text):
    source = parse_solver(text, file="s.prototxt")
    return check_fields(source.param, source)


def test_an_ordinary_solver_passes_without_warnings():
    assert check('net: "a" base_lr: 0.1 lr_policy: "fixed" max_iter: 3 display: 10 solver_mode: CPU') == []


@pytest.mark.parametrize(
    "text",
    [
        "larc: true",
        "min_lr: 0.1",
        "rampup_interval: 3",
        'momentum_policy: "poly"',
        "warmup_iter: 5",
        "stagelr: 1",
    ],
)
def test_fields_that_would_change_the_training_are_refused(text):
    name = text.split(":")[0]
    with pytest.raises(SolverError, match=rf"s\.prototxt:2:1: {name} is not supported"):
        check(f"max_iter: 1\n{text}")


def test_their_neutral_values_pass():
    assert check('max_iter: 1 larc: false min_lr: 0 momentum_policy: "fixed" warmup_iter: 0') == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('eval_type: "detection"', "eval_type has no effect"),
        ("store_blobs_in_old_format: true", "store_blobs_in_old_format has no effect"),
        ("debug_info: true", "debug_info is not supported"),
    ],
)
def test_fields_without_effect_are_warned_about(text, what):
    (warning,) = check(f"max_iter: 1 {text}")
    assert what in warning


def test_a_missing_max_iter_is_warned_about():
    assert "nothing will be trained" in check("base_lr: 1")[0]


@pytest.mark.parametrize(
    "text", ["iter_size: 0", "average_loss: 0", "display: -1", "snapshot: -1", "test_interval: -5"]
)
def test_numbers_out_of_range_are_refused(text):
    with pytest.raises(SolverError, match="must be at least"):
        check(text)


def test_every_field_of_the_schema_is_followed_refused_or_warned_about():
    followed = set(
        """net net_param train_net test_net train_net_param test_net_param train_state test_state test_iter
        test_interval test_compute_loss test_initialization base_lr display average_loss max_iter iter_size
        lr_policy gamma power momentum weight_decay regularization_type stepsize stepvalue clip_gradients
        snapshot snapshot_prefix snapshot_diff snapshot_format solver_mode device_id random_seed type
        solver_type debug_info snapshot_after_train layer_wise_reduce weights comm_param
        delta momentum2 rms_decay""".split()
    )
    subordinate = set(  # read only together with a field that is refused
        """plateau_winsize rampup_lr max_momentum momentum_power larc_policy larc_eta larc_turbo
        weight_decay_power max_weight_decay warmup_start_lr local_gw_ratio""".split()
    )
    from mgcaffe.solvers import checks

    known = followed | subordinate | set(checks._CHANGES_TRAINING) | set(checks._WITHOUT_EFFECT)
    assert {field.name for field in SolverParameter.DESCRIPTOR.fields} == known
