"""Tables on embedding servers: equal to one process, ahead or not, split over servers, written and read whole."""

from __future__ import annotations

import functools

import h5py
import numpy as np
import pytest

from mgcaffe.comm import run_ranks
from mgcaffe.engine.weights.shards import has_shards
from mgcaffe.errors import DataError, NetError, SolverError
from mgcaffe.prototxt import read_net
from mgcaffe.solvers.events import Noted, TablesLookedUp, Warned
from mgcaffe.solvers.serving.embedding_server import EmbeddingServer
from tests.support.solverkit import make_solver, solver_source
from tests.support.tablekit import (
    BATCH,
    KINDS,
    differences,
    table_net,
    train_tables,
    train_with_servers,
    write_table_data,
)

ITERATIONS = 200


@pytest.fixture(scope="module")
def alone(folder):
    """What one process makes of a net, computed once."""
    return functools.cache(lambda net, fields, iterations: train_tables(1, folder, net, fields, iterations))


MODES = {"SGD": "SUM", "AdaGrad": "MEAN", "row_wise": "SUM"}


@pytest.mark.parametrize(("servers", "iterations"), [(1, ITERATIONS), (3, 20)])
@pytest.mark.parametrize("kind", KINDS)
def test_training_without_looking_ahead_equals_that_of_one_process(folder, alone, kind, servers, iterations):
    net = table_net(folder, 1, mode=MODES[kind])
    (served,), figures = train_with_servers(servers, folder, net, KINDS[kind], iterations)
    assert not differences(served[:3], alone(net, KINDS[kind], iterations))
    (placed,) = [event.text for event in served[3].of(Noted) if "embedding servers" in event.text]
    assert ("divided by rows" in placed) == (servers == 3)
    assert [each.look_ups for each in figures] == [iterations] * servers
    assert [each.updates for each in figures] == [iterations] * servers


def test_tests_micro_batches_rates_and_a_frozen_table_are_those_of_one_process(folder, alone):
    net = table_net(folder, 1, micro=2, param="param { lr_mult: 0.5 }", shared="lr_mult: 0")
    fields = KINDS["row_wise"] + " iter_size: 2 test_iter: 3 test_interval: 4"
    (served,), figures = train_with_servers(2, folder, net, fields, 10)
    assert not differences(served[:3], alone(net, fields, 10))
    assert len(served[2]) == 3
    assert figures[0].updates == 10


def parity_data(folder):
    """Data of which even and odd batches look up different rows, so that no row is looked up twice in a row."""
    random, records = np.random.default_rng(2), 4 * BATCH
    odd = np.repeat(np.arange(4) % 2, BATCH)[:, np.newaxis]
    values = {
        "a": 20 * odd + random.integers(0, 20, (records, 4)),
        "lengths": np.tile([1, 0, 3], (records, 1)),
        "b": 3 * odd + random.integers(0, 3, (records, 5)),
        "c": 3 * odd + random.integers(0, 3, (records, 1)),
        "label": random.standard_normal((records, 1)),
    }
    with h5py.File(folder / "data.h5", "w") as file:
        for name, each in values.items():
            file[name] = each.astype(np.float32)
    (folder / "data.txt").write_text(f"{folder}/data.h5\n")


def test_looking_ahead_is_exact_where_a_batch_looks_up_no_row_of_the_one_before(tmp_path, folder):
    parity_data(tmp_path)
    net = table_net(tmp_path, 1)
    (served,), figures = train_with_servers(2, tmp_path, net, KINDS["AdaGrad"], 30, ahead=1)
    assert not differences(served[:3], train_tables(1, tmp_path, net, KINDS["AdaGrad"], 30))
    assert figures[0].look_ups == 31  # the last is of a batch that was not trained
    (stale,), _ = train_with_servers(2, tmp_path, net, KINDS["AdaGrad"], 30, ahead=2)
    assert stale[1][:2] == served[1][:2]
    assert stale[1][2] != served[1][2]


def test_a_mistake_in_a_batch_ahead_is_an_error_of_that_batch_and_none_if_it_is_never_trained(tmp_path):
    write_table_data(tmp_path)
    net = table_net(tmp_path, 1)
    with h5py.File(tmp_path / "data.h5", "r+") as file:
        file["b"][2 * BATCH, 3] = 11
    (served,), _ = train_with_servers(1, tmp_path, net, KINDS["SGD"], 2, ahead=2)
    assert len(served[1]) == 2
    solvers = []
    with pytest.raises(DataError, match=r"value 11 at \[0, 3\] of blob 'b' is no row number"):
        train_with_servers(1, tmp_path, net, KINDS["SGD"], 3, ahead=2, before=lambda solver, _: solvers.append(solver))
    assert solvers[0].iteration == 2


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_run_goes_on_from_its_snapshot_as_if_it_had_not_stopped_on_other_servers(folder, ahead):
    net, fields = table_net(folder, 1), KINDS["AdaGrad"] + f' snapshot_prefix: "{folder}/ahead{ahead}"'
    (whole,), _ = train_with_servers(1, folder, net, fields, [5, 6], snapshot=True, ahead=ahead)
    (resumed,), _ = train_with_servers(
        2, folder, net, fields, 6, restore=f"{folder}/ahead{ahead}_iter_5.solverstate", ahead=ahead
    )
    assert not differences(resumed[:1], whole[:1])
    assert resumed[1] == pytest.approx(whole[1][5:], rel=1e-12)


def test_a_snapshot_goes_on_in_one_process_and_its_weights_fill_tables_of_servers(folder, alone):
    net, fields = table_net(folder, 1), KINDS["row_wise"] + f' snapshot_prefix: "{folder}/one"'
    train_with_servers(2, folder, net, fields, 5, snapshot=True)
    resumed = train_tables(1, folder, net, fields, 6, restore=f"{folder}/one_iter_5.solverstate")
    expected = alone(net, fields, 11)
    assert not differences(resumed[:1], expected[:1])
    weights = [f"{folder}/one_iter_5.caffemodel"]
    (filled,), _ = train_with_servers(1, folder, net, KINDS["SGD"], 1, weights=weights)
    assert not differences(filled[:1], train_tables(1, folder, net, KINDS["SGD"], 1, weights=weights)[:1])


def test_trainers_with_replicas_of_their_own_share_the_tables(folder):
    net = table_net(folder, 2)
    fields = KINDS["SGD"] + ' base_lr: 0.3 lr_policy: "fixed" max_iter: 120'
    trainers, (figures,) = train_with_servers(1, folder, net, fields, None, trainers=2, sync="SHADOW_MA", ahead=1)
    assert figures.updates == 240
    shown = [event.figures for _, _, _, recorder in trainers for event in recorder.of(TablesLookedUp)]
    assert all(each.look_ups in (120, 121) for each in shown)  # with the one ahead, if it was answered by then
    assert all(0 < each.waited_s <= each.latency_s for each in shown)
    for _, losses, _, _ in trainers:
        assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5])


def test_no_table_is_updated_by_gradients_that_are_not_finite(tmp_path):
    write_table_data(tmp_path)
    with h5py.File(tmp_path / "data.h5", "r+") as file:
        file["label"][1] = np.nan
    fields = KINDS["SGD"] + " nan_effect: SKIP"
    (served,), (figures,) = train_with_servers(1, tmp_path, table_net(tmp_path, 1), fields, 6)
    assert figures.updates == 4
    assert all(bool(tensor.isfinite().all()) for tensor in served[0])
    assert not differences(served[:1], train_tables(1, tmp_path, table_net(tmp_path, 1), fields, 6)[:1])


def test_ids_that_are_computed_are_looked_up_when_they_are_there_and_a_warning_says_so(folder, alone):
    net = table_net(folder, 1).replace(
        'layer { name: "b" type', 'layer { name: "same" type: "Power" bottom: "b" top: "b" }\nlayer { name: "b" type'
    )
    (served,), _ = train_with_servers(1, folder, net, KINDS["SGD"], 5, ahead=1)
    expected = alone(net, KINDS["SGD"], 5)
    warnings = [event.text for event in served[3].of(Warned) if "ahead" in event.text]
    assert len(warnings) == 1
    assert "layer 'b' cannot look up ahead: layer 'same' of type Power makes its ids" in warnings[0]
    assert served[1][0] == pytest.approx(expected[1][0], rel=1e-12)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ("comm_param { lookahead: -1 sync: NONE }", "lookahead is -1"),
        ("comm_param { lookahead: 1001 sync: NONE }", "lookahead is 1001; at most 1000"),
        ("comm_param { embeddings: ALLTOALL }", "embeddings ALLTOALL divides tables among trainers"),
        ("comm_param { sync: NONE embeddings: ASYNC }", "embeddings ASYNC divides tables among trainers"),
        ("", "sync GRADIENTS lets 2 trainers train in step"),
        ("snapshot_diff: true comm_param { sync: NONE }", "snapshot_diff asks for what embedding servers"),
        ("iter_size: 0 comm_param { sync: NONE }", "iter_size is 0"),
        ("comm_param { sync: NONE hogwild_threads: 0 }", "hogwild_threads is 0"),
        ('lr_policy: "fixd" comm_param { sync: NONE }', "unknown lr_policy 'fixd'"),
    ],
)
def test_what_does_not_go_with_servers_is_refused_by_trainers_and_servers(folder, fields, problem):
    def rank(communicator):
        with pytest.raises(SolverError, match=problem):
            if communicator.rank == 2:
                EmbeddingServer(solver_source(table_net(folder, 2), fields, folder).param, communicator, 2)
            else:
                group = communicator if communicator.size == 2 else _Two(communicator)
                make_solver(table_net(folder, 2), fields, folder, communicator=group, embedding_servers=communicator)

    run_ranks(3, rank)


class _Two:
    """Two trainers, before they call each other."""

    size = 2

    def __init__(self, communicator):
        self.rank = communicator.rank


def test_servers_without_tables_and_servers_that_are_not_there_are_refused(folder):
    net = 'layer { name: "d" type: "DummyData" top: "d" dummy_data_param { shape { dim: 2 dim: 3 } } }\n'
    net += 'layer { name: "l" type: "InnerProduct" bottom: "d" top: "l" inner_product_param { num_output: 1 } }\n'
    net += 'layer { name: "loss" type: "EuclideanLoss" bottom: "l" bottom: "l" top: "loss" }'
    with pytest.raises(SolverError, match="the training net has no layer of type EmbeddingBag"):
        train_with_servers(1, folder, net, KINDS["SGD"], 1)
    with pytest.raises(SolverError, match="embedding_servers is 1, and this solver was given none"):
        make_solver(table_net(folder, 1), "comm_param { embedding_servers: 1 }", folder)


@pytest.mark.parametrize("whole", [False, True])
def test_tables_are_saved_once_and_each_trainer_goes_on_from_its_own_replica(folder, tmp_path, whole):
    net, fields = table_net(folder, 2), KINDS["AdaGrad"] + f' snapshot_prefix: "{tmp_path}/net"'
    more = "snapshot_replicas: true" + (" snapshot_tables: WHOLE" if whole else "")
    train_with_servers(1, folder, net, fields, 4, trainers=2, workers=more, snapshot=True)
    assert [path.name for path in tmp_path.glob("*shard*")] == ["net_iter_4.caffemodel.shard_1_of_1.safetensors"][
        whole:
    ]
    own = tmp_path / "net.trainer_1_iter_4.caffemodel"
    tables = [blob for layer in read_net(own).layer if layer.type == "EmbeddingBag" for blob in layer.blobs]
    assert tables and all(has_shards(blob) for blob in tables)

    state = f"{tmp_path}/net_iter_4.solverstate"
    resumed, _ = train_with_servers(1, folder, net, fields, 0, trainers=2, workers=more, restore=state)
    assert any("each from its own replica" in event.text for event in resumed[0][3].of(Noted))
    assert not differences(resumed[0][:1], train_tables(1, folder, table_net(folder, 1), fields, 0, restore=state)[:1])
    with pytest.raises(NetError, match="is of a trainer's replica and has no rows of tables") as caught:
        train_tables(1, folder, table_net(folder, 1), KINDS["AdaGrad"], 0, weights=[str(own)])
    assert ".trainer_<k>" in caught.value.hint
