"""Caffemodels that are written from a net's own arrays."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mgcaffe.engine.weights import caffemodel
from mgcaffe.engine.weights.caffemodel import encode_caffemodel, save_caffemodel
from mgcaffe.errors import PrototxtError
from mgcaffe.prototxt import read_net
from tests.support.netkit import inputs, make_net

NET = (
    inputs(data=(2, 4, 6, 6))
    + """
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" loss_weight: 0 param { lr_mult: 2 }
  propagate_down: false convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "bn" }
layer { name: "prelu" type: "PReLU" bottom: "bn" top: "bn" prelu_param { channel_shared: true } }
layer { name: "ip" type: "InnerProduct" bottom: "bn" top: "ip"
  inner_product_param { num_output: 300 weight_filler { type: "xavier" } } }
layer { name: "drop" type: "Dropout" bottom: "ip" top: "ip" include { phase: TRAIN } }
"""
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("diff", [False, True])
def test_the_bytes_are_those_of_protobuf(tmp_path, dtype, diff):
    net = make_net(NET, dtype=dtype)
    for parameter in net.parameters:
        parameter.diff.normal_()
    pieces = encode_caffemodel(net.name, net.layers, diff)
    expected = net.to_proto(diff)
    assert b"".join(pieces) == expected.SerializeToString()
    save_caffemodel(net, tmp_path / "net.caffemodel", diff)
    assert read_net(tmp_path / "net.caffemodel") == expected


def test_values_are_not_copied():
    net = make_net(NET)
    pieces = encode_caffemodel(net.name, net.layers, False)
    shared = [piece for piece in pieces if np.shares_memory(np.frombuffer(piece, np.uint8), net.arena.data.numpy())]
    assert sum(len(piece) for piece in shared) == net.arena.data.numpy().nbytes


def test_more_than_protobuf_can_hold_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(caffemodel, "_MOST_BYTES", 1000)
    with pytest.raises(PrototxtError, match=r"a net of 0\.00 GiB does not fit into a binary file of at most 2 GiB"):
        save_caffemodel(make_net(NET), tmp_path / "net.caffemodel")
    assert not list(tmp_path.iterdir())
