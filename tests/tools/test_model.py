"""Input shapes from the command line, and noise in place of data."""

from __future__ import annotations

import logging

import pytest

from mgcaffe.engine.net import TEST, Net
from mgcaffe.errors import UsageError
from mgcaffe.prototxt import parse_net
from mgcaffe.tools.model import apply_input_shapes, feed_noise
from tests.support.engine_command import LMDB_NET


def test_input_shapes_go_where_the_net_reads_them():
    net = parse_net(
        LMDB_NET + 'layer { name: "in" type: "Input" top: "a" top: "b" input_param { shape { dim: 1 } } }'
    ).param
    records = apply_input_shapes(net, [("image", (9, 3, 8, 8)), ("b", (5, 2))])
    assert records == {"data": (3, 8, 8)}
    assert net.layer[0].data_param.batch_size == 9
    assert [list(shape.dim) for shape in net.layer[-1].input_param.shape] == [[1], [5, 2]]
    with pytest.raises(UsageError, match="no such input") as error:
        apply_input_shapes(net, [("imag", (1,))])
    assert "image, label, a, b" in str(error.value)
    with pytest.raises(UsageError, match="label: its shape follows from that of 'image'"):
        apply_input_shapes(net, [("label", (9,))])
    feed_noise(net, records)
    dummy = net.layer[0]
    assert dummy.type == "DummyData"
    assert [list(shape.dim) for shape in dummy.dummy_data_param.shape] == [[9, 3, 6, 6], [9]]


def test_a_net_without_inputs_takes_no_shape():
    with pytest.raises(UsageError, match="no input and no data layer that could be given a shape"):
        apply_input_shapes(parse_net('layer { name: "p" type: "Python" top: "x" }').param, [("", (1, 2))])


def test_each_blob_of_hdf5_data_can_be_given_a_shape():
    net = parse_net(
        'layer { name: "h" type: "HDF5Data" top: "x" top: "y" top: "z" hdf5_data_param { source: "s" batch_size: 3 } }'
    ).param
    records = apply_input_shapes(net, [("x", (5,)), ("y", (3, 4, 2, 2))])
    assert records == {"h": (5,), "y": (4, 2, 2)}
    built = Net(net, phase=TEST, outline=True, input_shapes=records)
    assert [built.blobs[name].shape for name in "xyz"] == [(3, 5), (3, 4, 2, 2), (3,)]
    feed_noise(net, records)
    assert [list(shape.dim) for shape in net.layer[0].dummy_data_param.shape] == [[3, 5], [3, 4, 2, 2], [3]]


@pytest.mark.parametrize(
    "fields",
    [
        'type: "Data" data_param { source: "s" batch_size: 2 } transform_param { mirror: true }',
        'type: "ImageData" image_data_param { source: "s" batch_size: 2 } data_param { parser_threads: 2 }',
        'type: "HDF5Data" hdf5_data_param { source: "s" batch_size: 2 }',
    ],
)
def test_noise_in_place_of_data_warns_of_no_field_that_the_user_did_not_misplace(fields, caplog):
    net = parse_net(f'layer {{ name: "d" top: "x" top: "y" {fields} }}').param
    feed_noise(net, apply_input_shapes(net, [("", (3, 8, 8))]))
    with caplog.at_level(logging.WARNING):
        assert Net(net, phase=TEST).blobs["x"].shape == (2, 3, 8, 8)
    assert not caplog.messages
