"""No field of a solver is ignored without a warning."""

import pytest

from mgcaffe.errors import SolverError
from mgcaffe.prototxt import SolverParameter, parse_solver
from mgcaffe.solvers.setup.checks import check_fields


def check(text):
    source = parse_solver(text, file="s.prototxt")
    return check_fields(source.param, source)


def test_an_ordinary_solver_passes_without_warnings():
    assert check('net: "a" base_lr: 0.1 lr_policy: "fixed" max_iter: 3 display: 10 solver_mode: CPU') == []


@pytest.mark.parametrize("text", ["disabled_update: true"])
def test_fields_that_would_change_the_training_are_refused(text):
    name = text.split(":")[0]
    with pytest.raises(SolverError, match=rf"s\.prototxt:2:1: {name} is not supported"):
        check(f"max_iter: 1\n{text}")


def test_their_neutral_values_pass():
    assert check("max_iter: 1 disabled_update: false") == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('eval_type: "detection"', "eval_type has no effect"),
        ("store_blobs_in_old_format: true", "store_blobs_in_old_format has no effect"),
        ("debug_info: true", "and display is 0"),
        ("test_interval: 100", "test_interval has no effect: without test_iter nothing is tested"),
        ("test_iter: 3 test_iter: 0", "s.prototxt:1:26: test_iter is 0: test net #1 is built, and tests run no batch"),
        ("momentum2: 0.5", "momentum2 has no effect: only solver type Adam would read it"),
    ],
)
def test_fields_without_effect_are_warned_about(text, what):
    (warning,) = check(f"max_iter: 1 {text}")
    assert what in warning


def test_a_missing_max_iter_is_warned_about():
    assert "nothing is trained, except by pycaffe's step" in check("base_lr: 1")[0]


@pytest.mark.parametrize(
    "text", ["iter_size: 0", "average_loss: 0", "display: -1", "snapshot: -1", "test_interval: -5"]
)
def test_numbers_out_of_range_are_refused(text):
    with pytest.raises(SolverError, match="must be at least"):
        check(text)


@pytest.mark.parametrize("text", ["base_lr: nan", "stagelr: 1\nstagelr: nan"])
def test_what_is_no_number_is_refused_with_its_place(text):
    line = text.count("\n") + 1
    with pytest.raises(SolverError, match=rf"s\.prototxt:{line}:1: \w+ is nan and must be a number"):
        check(text)


def test_winograd_needs_autotune():
    with pytest.raises(SolverError, match=r"s\.prototxt:2:1: winograd is SAFE: it says what autotune may choose"):
        check("max_iter: 1\nwinograd: SAFE")
    assert check('max_iter: 1 winograd: SAFE autotune: "on"') == []
    assert check("max_iter: 1 winograd: OFF") == []


def test_every_field_of_the_schema_is_followed_refused_or_warned_about():
    followed = set(
        """net net_param train_net test_net train_net_param test_net_param train_state test_state test_iter
        test_interval test_compute_loss test_initialization base_lr display average_loss max_iter iter_size
        lr_policy gamma power momentum weight_decay regularization_type stepsize stepvalue clip_gradients
        snapshot snapshot_prefix snapshot_diff snapshot_format solver_mode device_id random_seed type
        solver_type nan_effect bad_record bad_record_limit debug_info
        snapshot_after_train layer_wise_reduce weights comm_param
        snapshot_keep snapshot_best snapshot_errors snapshot_background
        delta momentum2 rms_decay""".split()
    )
    of_forks = set(
        """warmup_iter warmup_start_lr rampup_interval rampup_lr min_lr plateau_winsize stagelr stageiter
        momentum_policy max_momentum momentum_power weight_decay_policy weight_decay_power max_weight_decay
        larc larc_policy larc_eta larc_turbo local_lr_auto local_gw_ratio decoupled_weight_decay
        row_wise_adagrad autotune precision winograd recompute""".split()
    )
    from mgcaffe.solvers.setup import checks

    known = followed | of_forks | set(checks._CHANGES_TRAINING) | set(checks._WITHOUT_EFFECT)
    assert {field.name for field in SolverParameter.DESCRIPTOR.fields} == known
