"""The MemoryData layer."""

import logging

import numpy as np
import pytest

from mgcaffe.engine.shard import Shard
from mgcaffe.errors import DataError, NetError
from tests.support.datakit import make

TEXT = (
    'name: "m" type: "MemoryData" top: "data" top: "label"'
    " memory_data_param { batch_size: 2 channels: 3 height: 4 width: 5 }"
)


def arrays(count):
    return np.random.default_rng(0).random((count, 3, 4, 5)), np.arange(count)


def test_arrays_come_in_batches_and_wrap_around():
    layer = make(TEXT)
    assert layer.reshape([]) == [(2, 3, 4, 5), (2,)]
    data, label = arrays(4)
    layer.reset(data, label)
    for expected in ([0, 1], [2, 3], [0, 1]):
        tops = layer.forward([])
        np.testing.assert_array_equal(tops[0].numpy(), data[expected].astype(np.float32))
        assert tops[1].tolist() == expected
    layer.reset(data[::-1], label[::-1])
    assert layer.forward([])[1].tolist() == [3, 2]


def test_ranks_share_the_arrays_out():
    layers = [make(TEXT, shard=Shard(rank, 2)) for rank in range(2)]
    for layer in layers:
        layer.reset(*arrays(4))
    assert [layer.forward([])[1].tolist() for layer in layers] == [[0, 2], [1, 3]]


def test_without_arrays_there_is_nothing_to_give():
    with pytest.raises(DataError, match="no data has been given"):
        make(TEXT).forward([])


def test_arrays_and_fields_that_do_not_fit_are_refused():
    layer = make(TEXT)
    data, label = arrays(4)
    for bad in [(data[:3], label[:3]), (data[:, :2], label), (data, label[:3]), (data[:0], label[:0])]:
        with pytest.raises(DataError, match="layer 'm'"):
            layer.reset(*bad)
    with pytest.raises(NetError, match="all have to be positive"):
        make(TEXT.replace("height: 4", ""))


def test_a_transformation_that_is_not_applied_is_said(caplog):
    layer = make(TEXT + " transform_param { scale: 2 }")
    with caplog.at_level(logging.WARNING, "mgcaffe.engine"):
        layer.reset(*arrays(2))
    assert "does not transform" in caplog.text
