"""Weight files of either form as messages."""

import numpy as np
import pytest
import torch

from mgcaffe.engine.weights.caffemodel import save_caffemodel
from mgcaffe.engine.weights.files import read_weights
from mgcaffe.engine.weights.hdf5 import save_hdf5
from mgcaffe.errors import NetError, PrototxtError
from mgcaffe.prototxt import blob_array, write_binary
from tests.support.netkit import inputs, make_net

NET = inputs(data=(2, 3)) + (
    'layer { name: "a/b" type: "InnerProduct" bottom: "data" top: "x" inner_product_param { num_output: 4 '
    'weight_filler { type: "xavier" } } }'
)


def test_both_forms_give_the_same_blobs(tmp_path):
    net = make_net(NET)
    write_binary(net.to_proto(), tmp_path / "w.caffemodel")
    save_hdf5(net, tmp_path / "w.h5")
    for path in (tmp_path / "w.caffemodel", tmp_path / "w.h5"):
        found = {layer.name: [blob_array(blob) for blob in layer.blobs] for layer in read_weights(path).layer}
        for values, parameter in zip(found["a/b"], net.parameters, strict=True):
            np.testing.assert_array_equal(values, parameter.data.numpy())


def test_a_blob_of_more_values_than_are_read_at_once_is_copied_whole(tmp_path):
    text = inputs(data=(1, 1100)) + (
        'layer { name: "ip" type: "InnerProduct" bottom: "data" top: "x" inner_product_param { num_output: 1000 '
        'weight_filler { type: "uniform" } bias_filler { type: "uniform" } } }'
    )
    net, other = (make_net(text, dtype=torch.float32) for _ in range(2))
    save_caffemodel(net, tmp_path / "w.caffemodel")
    other.arena.data.zero_()
    other.copy_trained_layers(tmp_path / "w.caffemodel")
    assert torch.equal(other.arena.data, net.arena.data)


def test_files_that_cannot_be_read_are_errors(tmp_path):
    with pytest.raises(PrototxtError, match="absent"):
        read_weights(tmp_path / "absent")
    (tmp_path / "cut.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(50))
    with pytest.raises(NetError, match=r"cut\.h5 cannot be read"):
        read_weights(tmp_path / "cut.h5")
