"""The fields of comm_param that are about replicas: defaults, ranges, and what has no effect."""

import pytest

from mgcaffe.comm import SingleCommunicator, run_ranks
from mgcaffe.errors import Location, SolverError
from mgcaffe.prototxt import parse_solver
from mgcaffe.solvers.replicas.sync_settings import check_servers, sync_settings, sync_warnings


def _param(fields):
    return parse_solver(f"comm_param {{ {fields} }}", file="solver.prototxt")


def _settings(fields):
    source = _param(fields)
    return sync_settings(source.param, source)


def test_without_sync_ranks_train_in_step():
    assert _settings("") is None
    assert _settings("sync: GRADIENTS") is None


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("sync: MA", "synchronized by MA every 5 iterations (alpha 1)"),
        ("sync: DS_SYNC", "synchronized by DS_SYNC every iteration"),
        ("sync: BMUF alpha: 0.5", "BMUF every 5 iterations (alpha 0.5, block momentum 0.75, by increment)"),
        ("sync: BMUF alpha: 1", "BMUF every 5 iterations (alpha 1, block momentum 0.75)"),
        ("sync: BMUF", "BMUF every 5 iterations (alpha 1, block momentum 0.75)"),
        ("sync: SHADOW_MA", "synchronized by SHADOW_MA in the background (alpha 0.5, by increment)"),
        ("sync: EASGD sync_every: 10", "synchronized by EASGD every 10 iterations (alpha 0.2)"),
        ("sync: SHADOW_EASGD alpha: 0.125", "synchronized by SHADOW_EASGD in the background (alpha 0.125)"),
        (
            "sync: SHADOW_BMUF block_nesterov: true sync_interval_ms: 20 merge: INTERPOLATE",
            "SHADOW_BMUF in the background, at most once in 20 ms (alpha 0.5, Nesterov block momentum 0.75, by"
            " interpolation)",
        ),
        ("sync: EASGD sync_servers: 1", "(alpha 0.2, the centre on 1 synchronization server)"),
        (
            "sync: SHADOW_EASGD sync_servers: 2",
            "in the background (alpha 0.2, the centre on 2 synchronization servers)",
        ),
        ("sync: NONE", "never brought together"),
    ],
)
def test_the_log_says_how_replicas_are_kept_together(fields, said):
    assert said in _settings(fields).describe(4)


def test_the_rate_of_elastic_averaging_is_no_more_than_one_trainers_share():
    assert _settings("sync: EASGD").alpha(20) == 0.05


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("sync: MA alpha: 2", "sync MA: alpha 2 is not above 0 and at most 1"),
        ("sync: MA sync_every: 0", "sync MA: replicas cannot be synchronized every 0 iterations"),
        ("sync: BMUF block_momentum: 1", "sync BMUF: block momentum 1 is not from 0 to below 1"),
        ("sync: BMUF block_lr: inf", "sync BMUF: block learning rate inf is not above 0 and finite"),
        ("sync: SHADOW_MA sync_interval_ms: -1", "the least interval of -0.001 s .* is not 0 or more and finite"),
        ("sync: SHADOW_MA sync_interval_ms: nan", "the least interval of nan s"),
        ("sync: SHADOW_MA sync_interval_ms: inf", "the least interval of inf s"),
        ("sync: DS_SYNC sync_groups: GRID", "sync DS_SYNC: 8 ranks make no square grid"),
    ],
)
def test_values_out_of_range_are_refused_at_their_place(fields, said):
    with pytest.raises(SolverError, match=said) as caught:
        run_ranks(8, _settings(fields).synchronizer)
    assert str(caught.value.location).startswith("solver.prototxt:1:1")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ("sync: MA block_momentum: 0.5", "block_momentum has no effect with sync MA"),
        ("sync: SHADOW_MA sync_every: 3", "sync_every has no effect with sync SHADOW_MA"),
        ("sync: EASGD merge: INTERPOLATE", "merge has no effect with sync EASGD"),
        ("sync: NONE schedule: WFBP", "schedule has no effect with sync NONE"),
        ("alpha: 0.5", "alpha has no effect with sync GRADIENTS"),
    ],
)
def test_fields_without_effect_are_warned_about(fields, field):
    source = _param(fields)
    (said,) = sync_warnings(source.param, 2, source)
    column = f"comm_param {{ {fields} }}".index(field.split()[0]) + 1
    assert said.startswith(f"solver.prototxt:1:{column}: comm_param.") and said.endswith(field)


def test_warnings_name_the_one_flag_that_they_are_about():
    source = _param("sync: NONE")
    before = type(source.param)()
    before.CopyFrom(source.param)
    source.param.comm_param.sync = source.param.comm_param.MA
    source.param.comm_param.alpha = 0.5
    source.param.comm_param.sync_every = 9
    source.param.comm_param.block_lr = 0.5
    source.param.max_iter = 3
    source.note_changes(before, lambda path: Location(f"--{path.rpartition('.')[2]}"))
    assert sync_warnings(source.param, 2, source) == [
        "--block_lr: comm_param.block_lr has no effect with sync MA",
        "--sync_every: sync_every is 9, above max_iter: replicas are never synchronized",
    ]
    assert sync_warnings(source.param, 1, source)[-1] == "--sync: sync MA has no effect: there is one trainer"


@pytest.mark.parametrize("kind", ["GRADIENTS", "NONE", "MA", "SHADOW_BMUF", "DS_SYNC"])
def test_servers_are_refused_where_there_is_no_centre(kind):
    source = _param(f"sync: {kind} sync_servers: 2")
    with pytest.raises(SolverError, match=f"1:1: sync_servers is 2, and sync {kind} has no centre .*\n.*SHADOW_EASGD"):
        check_servers(source.param, source)
    for fields in (f"sync: {kind}", "sync: EASGD sync_servers: 1", "sync: SHADOW_EASGD sync_servers: 1"):
        source = _param(fields)
        check_servers(source.param, source)


def test_interpolation_in_the_background_says_what_it_costs():
    source = _param("sync: SHADOW_MA merge: INTERPOLATE alpha: 0.25")
    (said,) = sync_warnings(source.param, 2, source)
    assert "multiplies what a replica learns during a synchronization by 0.75" in said
    source = _param("sync: MA merge: INTERPOLATE alpha: 0.25")
    assert sync_warnings(source.param, 2, source) == []


def test_one_trainer_makes_a_synchronizer_as_well():
    assert _settings("sync: SHADOW_EASGD").synchronizer(SingleCommunicator()).finish().synchronizations == 0
