"""Tables divided among ranks in step: equal to one process, as whole tables and in parts."""

import math

import numpy as np
import pytest
import torch

from mgcaffe.comm import run_ranks
from mgcaffe.errors import DataError, NetError, NotFiniteError, SnapshotError
from mgcaffe.prototxt import NetParameter, stored, wire_format
from mgcaffe.solvers.events import Noted, Warned
from tests.support.solverkit import Recorder, make_solver
from tests.support.tablekit import (
    KINDS,
    differences,
    loads,
    table_net,
    train_tables,
    whole_tensors,
)

pytestmark = pytest.mark.slow

ITERATIONS = 10  # 200 in tests/soak


@pytest.fixture(scope="module")
def alone(folder):
    """What one process comes to, by the kind of the solver."""
    return {kind: train_tables(1, folder, table_net(folder, 1), KINDS[kind], ITERATIONS) for kind in KINDS}


def parts_of(folder, size, fields="", **options):
    """The ranks that each table has rows in, by the table's number."""

    def rank(communicator):
        with make_solver(table_net(folder, size, **options), fields, folder, communicator=communicator) as solver:
            return [[part.owner for part in ranges] for ranges in solver._tables.place.assignment]

    return run_ranks(size, rank)[0]


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_training_equals_that_of_one_process(folder, alone, kind, size):
    fields = KINDS[kind] + loads(folder, "rows" if size == 2 else "whole")
    divided = train_tables(size, folder, table_net(folder, size), fields, ITERATIONS)
    assert len(divided[1]) == ITERATIONS
    assert differences(divided, alone[kind]) is None


def test_the_tables_of_these_tests_are_divided_in_both_ways(folder):
    assert [len(owners) for owners in parts_of(folder, 2, loads(folder, "rows"))] == [2, 1, 1]
    whole = parts_of(folder, 3, loads(folder, "whole"))
    assert sorted(owner for owners in whole for owner in owners) == [0, 1, 2]


@pytest.mark.parametrize("size", [2, 3])
def test_micro_batches_and_means_over_bags(folder, size):
    nets = [table_net(folder, ranks, mode="MEAN", micro=2) for ranks in (1, size)]
    fields = KINDS["AdaGrad"] + " iter_size: 2"
    alone = train_tables(1, folder, nets[0], fields, 6)
    assert differences(train_tables(size, folder, nets[1], fields + loads(folder, "rows"), 6), alone) is None


def test_frozen_tables_are_divided_too_and_stay_as_they_are(folder):
    options = {"param": "param { lr_mult: 0 }"}
    alone = train_tables(1, folder, table_net(folder, 1, **options), KINDS["AdaGrad"], 5)
    divided = train_tables(2, folder, table_net(folder, 2, **options), KINDS["AdaGrad"], 5)
    assert differences(divided, alone) is None
    before = train_tables(2, folder, table_net(folder, 2, **options), KINDS["AdaGrad"], 0)
    for number in (1, 2):
        assert torch.equal(divided[0][number], before[0][number])
    assert not torch.equal(divided[0][3], before[0][3])
    all_frozen = {**options, "shared": "lr_mult: 0"}
    alone = train_tables(1, folder, table_net(folder, 1, **all_frozen), KINDS["SGD"], 3)
    assert differences(train_tables(3, folder, table_net(folder, 3, **all_frozen), KINDS["SGD"], 3), alone) is None


def test_each_rank_holds_its_rows_alone(folder):
    def rank(communicator):
        recorder = Recorder()
        with make_solver(
            table_net(folder, 2), KINDS["AdaGrad"], folder, communicator=communicator, recorder=recorder
        ) as solver:
            solver.step(1)
            here = [table.parameter.data.shape[0] for table in solver.net.arena.tables]
            history = [values.shape[0] for values in solver._updater.table_histories.values()]
            assert history == here
            return here, [event.text for event in recorder.of(Noted) if "Tables divided" in event.text]

    (first, texts), (second, _) = run_ranks(2, rank)
    assert [one + two for one, two in zip(first, second, strict=True)] == [40, 11, 7]
    assert len(texts) == 1 and "rank 1" in texts[0]


TEST = "test_iter: {} test_interval: 3 test_compute_loss: true"


@pytest.mark.parametrize(("size", "batches"), [(2, 5), (3, 2)])
def test_tests_whose_batches_do_not_come_out_even(folder, size, batches):
    fields = KINDS["SGD"] + " " + TEST.format(batches) + loads(folder, "rows")
    alone = train_tables(1, folder, table_net(folder, 1), fields, 7)
    divided = train_tables(size, folder, table_net(folder, size), fields, 7)
    assert len(alone[2]) == 3
    assert differences(divided, alone) is None


@pytest.mark.parametrize(
    ("kind", "form", "tables"),
    [("SGD", "BINARYPROTO", "WHOLE"), ("AdaGrad", "HDF5", "SHARDED"), ("row_wise", "HDF5", "WHOLE")],
)
def test_snapshots_resume_on_any_number_of_ranks(folder, tmp_path, monkeypatch, kind, form, tables):
    # As with large tables, whose values are read from the file in parts.
    monkeypatch.setattr(wire_format, "_SMALL", 64)
    monkeypatch.setattr(stored, "_LEAST", 64)
    monkeypatch.setattr(stored, "_CHUNK", 5)
    ending = ".h5" if form == "HDF5" else ""
    fields = f'{KINDS[kind]} snapshot_format: {form} snapshot_prefix: "{tmp_path}/net"'
    by_rows = loads(folder, "rows").replace("comm_param {", f"comm_param {{ snapshot_tables: {tables}")
    through = train_tables(1, folder, table_net(folder, 1), fields, 6)
    state, weights = (f"{tmp_path}/net_iter_3.{what}{ending}" for what in ("solverstate", "caffemodel"))
    half = train_tables(2, folder, table_net(folder, 2), fields + by_rows, 3, snapshot=True)
    for size in (3, 1, 2):
        resumed = train_tables(size, folder, table_net(folder, size), fields, 3, restore=state)
        assert differences(resumed[:1], through[:1]) is None
        begun = train_tables(size, folder, table_net(folder, size), fields + " random_seed: 8", 0, weights=[weights])
        assert differences([begun[0][:4]], [half[0][:4]]) is None
    assert len(list(tmp_path.glob(f"net_iter_3.caffemodel{ending}.shard_*"))) == (2 if tables == "SHARDED" else 0)


def test_a_snapshot_of_ranks_has_the_content_of_one_process(folder, tmp_path):
    for size in (1, 3):
        (tmp_path / str(size)).mkdir()
        fields = f'{KINDS["AdaGrad"]} snapshot_diff: true snapshot_prefix: "{tmp_path}/{size}/net"'
        train_tables(size, folder, table_net(folder, size), fields, 2, snapshot=True)
    files = [(tmp_path / str(size) / "net_iter_2.caffemodel").read_bytes() for size in (1, 3)]
    one, three = (NetParameter.FromString(content) for content in files)
    for mine, other in zip(one.layer, three.layer, strict=True):
        assert mine.name == other.name and len(mine.blobs) == len(other.blobs)
        for blob, its in zip(mine.blobs, other.blobs, strict=True):
            assert blob.shape == its.shape and any(blob.double_diff)
            assert np.allclose(blob.double_data, its.double_data, rtol=1e-12, atol=1e-12)
            assert np.allclose(blob.double_diff, its.double_diff, rtol=1e-12, atol=1e-12)


def test_the_best_weights_are_kept_with_whole_tables(folder, tmp_path):
    fields = (
        f'{KINDS["SGD"]} {TEST.format(3)} snapshot_best: "loss" snapshot_prefix: "{tmp_path}/net"'
        f"{loads(folder, 'rows')}"
    )
    _, _, scores = train_tables(2, folder, table_net(folder, 2), fields, 7)
    assert len(scores) == 3
    best = 3 * min(range(3), key=scores.__getitem__)
    state = tmp_path / f"net_iter_{best}.solverstate"
    assert state.exists()
    again = train_tables(1, folder, table_net(folder, 1), fields, 1, restore=str(state))
    assert math.isclose(again[2][0], scores[best // 3], rel_tol=1e-12)


def test_a_rescue_is_refused_since_rows_are_gone(folder):
    def rank(communicator):
        with make_solver(table_net(folder, 2), KINDS["SGD"], folder, communicator=communicator) as solver:
            with pytest.raises(SnapshotError, match="rows of tables lie in other ranks"):
                solver.rescue()
            whole_tensors(solver)

    run_ranks(2, rank)


def test_a_table_too_large_for_all_ranks_is_refused_by_name_and_size(folder):
    net = table_net(folder, 2).replace("input_dim: 40", "input_dim: 4000000000")

    def rank(communicator):
        with pytest.raises(
            NetError, match=r"table of 4000000000 x 4 would take [\d.]+ GiB with AdaGrad's sums"
        ) as caught:
            make_solver(net, KINDS["AdaGrad"], folder, communicator=communicator)
        return caught.value.message

    first, second = run_ranks(2, rank)
    assert first == second and "layer 'a'" in first and "2 ranks" in first


def test_loads_without_effect_and_debug_info_are_warned_about(folder):
    recorder = Recorder()
    make_solver(table_net(folder, 1), KINDS["SGD"] + loads(folder, "rows"), folder, recorder=recorder).close()
    assert "embedding_loads has no effect" in recorder.of(Warned)[0].text
    recorder = Recorder()
    fields = KINDS["SGD"] + " comm_param { snapshot_tables: WHOLE }"
    make_solver(table_net(folder, 1), fields, folder, recorder=recorder).close()
    assert "snapshot_tables has no effect" in recorder.of(Warned)[0].text

    def rank(communicator):
        recorder = Recorder()
        fields = KINDS["SGD"] + " debug_info: true display: 1"
        net = table_net(folder, 2)
        with make_solver(net, fields, folder, communicator=communicator, recorder=recorder) as solver:
            solver.step(2)
        return [event.text for event in recorder.of(Warned)]

    assert all(any("rows that lie in rank 0" in text for text in texts) for texts in run_ranks(2, rank))


def test_an_id_that_is_no_row_and_a_gradient_that_is_not_finite(folder):
    def rank(communicator):
        with make_solver(table_net(folder, 2), KINDS["AdaGrad"], folder, communicator=communicator) as solver:
            solver.step(1)
            owner = solver._tables.place.assignment[0][0].owner
            if communicator.rank == owner:
                solver.net.arena.tables[0].parameter.data[:] = float("nan")
            with pytest.raises(NotFiniteError, match="parameter 0 of layer 'a', before the pass"):
                solver.step(1)

    run_ranks(2, rank)
    net = table_net(folder, 2).replace("input_dim: 11", "input_dim: 6")

    def short(communicator):
        with make_solver(net, KINDS["SGD"], folder, communicator=communicator) as solver:
            solver.step(1)

    with pytest.raises(DataError, match=r"value 6 at .* is no row number.*layer 'b'"):
        run_ranks(2, short)
