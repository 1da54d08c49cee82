"""AUC and NormalizedEntropy of a test are those of all its items, however many ranks and batches share them."""

from __future__ import annotations

import pytest
import torch

from mgcaffe.comm.transport.threaded import run_ranks
from mgcaffe.engine.net import TEST, Net
from mgcaffe.engine.shard import TestShard
from mgcaffe.solvers.exchange.ranks import Ranks
from mgcaffe.solvers.testing import tester
from mgcaffe.solvers.testing.stop_poll import StopPoll
from tests.support.criteokit import rows, write
from tests.support.layerkit import make_layer
from tests.support.netkit import make_net

BATCHES, BATCH = 5, 7
METRICS = """
layer { name: "sum" type: "Reduction" bottom: "dense" top: "score" reduction_param { axis: 1 operation: MEAN } }
layer { name: "auc" type: "AUC" bottom: "score" bottom: "label" top: "auc" }
layer { name: "entropy" type: "NormalizedEntropy" bottom: "score" bottom: "label" top: "entropy" }
"""


@pytest.fixture
def text(tmp_path):
    source = write(tmp_path / "rows.tsv", rows(0, BATCHES * BATCH))
    return (
        'layer { name: "d" type: "CriteoData" top: "label" top: "dense" top: "ids" criteo_data_param {'
        f' source: "{source}" batch_size: {BATCH} table_size: 9 }} }} {METRICS}'
    )


def net_of(text: str, rank: int, size: int) -> Net:
    return make_net(text, phase=TEST, shard=TestShard(rank, size, BATCHES), keep_blobs=False)


def scores(net: Net, ranks: Ranks) -> dict[str, float]:
    found = tester.run_test(net, ranks, 1, 0, False)
    assert found is not None
    return {each.name: each.value for each in found.scores if each.name in ("auc", "entropy")}


def over_all_items(text: str) -> dict[str, float]:
    """The same layers on one batch of all items."""
    net = make_net(text.replace(f"batch_size: {BATCH}", f"batch_size: {BATCH * BATCHES}"), phase=TEST)
    net.forward()
    assert len(net.blobs["score"].data) == BATCH * BATCHES
    found = {name: float(net.blobs[name].data) for name in ("auc", "entropy")}
    net.close()
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_the_scores_are_those_of_all_items_on_every_rank_and_in_every_test(text, size):
    def run(communicator):
        net = net_of(text, communicator.rank, size)
        found = [scores(net, Ranks(communicator)) for _ in range(2)]
        net.close()
        return found

    expected = over_all_items(text)
    for found in run_ranks(size, run):
        assert found[0] == found[1]
        assert found[0] == pytest.approx(expected, rel=1e-14)


def test_where_each_rank_runs_all_batches_they_count_once(text):
    def run(communicator):
        net = net_of(text, 0, 1)
        found = scores(net, Ranks(communicator))
        net.close()
        return found

    assert run_ranks(2, run) == [pytest.approx(over_all_items(text), rel=1e-14)] * 2


def test_a_test_that_was_left_leaves_nothing_behind(text):
    def run(communicator):
        net, ranks = net_of(text, 0, 1), Ranks(communicator)
        assert tester.run_test(net, ranks, 1, 0, False, StopPoll(ranks, lambda: True)) is None
        net.data_layers[0].seek(0)
        found = scores(net, ranks)
        net.close()
        return found

    assert run_ranks(1, run) == [pytest.approx(over_all_items(text), rel=1e-14)]


def test_outside_of_a_test_nothing_is_collected():
    layer, _ = make_layer('name: "a" type: "AUC" bottom: "x" bottom: "l" top: "y"', [(2,), (2,)])
    for _ in range(3):
        layer.forward([torch.tensor([1.0, 2.0]), torch.tensor([0.0, 1.0])])
    assert layer.end_pass().shape == (0, 2)
