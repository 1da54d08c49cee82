"""Ways of exchanging rows that fit no way of training together."""

import pytest

from mgcaffe.errors import SolverError
from mgcaffe.prototxt import parse_solver
from mgcaffe.solvers.tables.settings import check_embeddings


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("embeddings: ASYNC", "embeddings ASYNC answers .* and with sync GRADIENTS"),
        ("sync: MA embeddings: ALLTOALL", "embeddings ALLTOALL exchanges .* and with sync MA"),
    ],
)
def test_ways_that_do_not_fit_are_refused_at_their_place(fields, message):
    source = parse_solver(f"comm_param {{ {fields} }}", file="solver.prototxt")
    with pytest.raises(SolverError, match=message) as caught:
        check_embeddings(source.param, source=source)
    assert caught.value.hint and str(caught.value.location).startswith("solver.prototxt:1:")


def test_shards_do_not_hold_what_snapshot_diff_asks_for():
    text = "snapshot_diff: true comm_param {{ snapshot_tables: {} }}"
    assert not check_embeddings(parse_solver(text.format("WHOLE")).param)
    source = parse_solver(text.format("SHARDED"), file="solver.prototxt")
    with pytest.raises(SolverError, match="which shards do not hold") as caught:
        check_embeddings(source.param, source=source)
    assert caught.value.hint and str(caught.value.location).startswith("solver.prototxt:1:")


def test_ways_that_fit_pass():
    for fields in ("", "embeddings: ALLTOALL", "sync: SHADOW_MA", "sync: NONE embeddings: ASYNC lookahead: 2"):
        assert not check_embeddings(parse_solver(f"comm_param {{ {fields} }}").param, trainers=2)


@pytest.mark.parametrize(("sync", "trainers"), [("GRADIENTS", 2), ("MA", 1)])
def test_looking_ahead_warns_where_nobody_looks_up_rows_of_others_at_a_pace_of_their_own(sync, trainers):
    (warning,) = check_embeddings(parse_solver(f"comm_param {{ lookahead: 2 sync: {sync} }}").param, trainers)
    assert "lookahead has no effect" in warning
