"""Blobs of batches to come: from data layers, through layers that only give other shapes and names."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
import torch

from mgcaffe.engine import Net
from mgcaffe.engine.graph.blobs_ahead import BlobsAhead
from mgcaffe.prototxt import parse_net

NET = """
layer { name: "data" type: "HDF5Data" top: "ids" top: "other" hdf5_data_param { source: "SOURCE" batch_size: 2 } }
layer { name: "cut" type: "Slice" bottom: "ids" top: "a" top: "b" slice_param { slice_point: 1 } }
layer { name: "flat" type: "Flatten" bottom: "b" top: "f" }
layer { name: "power" type: "Power" bottom: "other" top: "computed" power_param { scale: 2 } }
layer { name: "one" type: "EmbeddingBag" bottom: "a" top: "one" embedding_bag_param { input_dim: 99 num_output: 2 } }
layer { name: "two" type: "EmbeddingBag" bottom: "BOTTOM" top: "two"
  embedding_bag_param { input_dim: 99 num_output: 2 } }
layer { name: "again" type: "EmbeddingBag" bottom: "f" top: "again"
  embedding_bag_param { input_dim: 99 num_output: 2 } }
"""


@pytest.fixture
def build(tmp_path):
    """Return a function that builds the net with a bottom of layer 'two', and its layers that look up."""
    values = np.arange(24, dtype=np.float32).reshape(8, 3, 1)
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["ids"], file["other"] = values, values[:, :1]
    (tmp_path / "data.txt").write_text(f"{tmp_path}/data.h5\n")

    def built(bottom):
        net = Net(parse_net(NET.replace("SOURCE", f"{tmp_path}/data.txt").replace("BOTTOM", bottom)).param)
        return net, [node for node in net.nodes if node.layer.type == "EmbeddingBag"]

    return built


def test_bottoms_are_those_that_the_next_passes_have(build):
    net, wanted = build("f")
    net.forward()
    ahead = BlobsAhead(net.nodes, wanted)
    assert ahead.unknown is None
    found = [ahead.bottoms(1), ahead.bottoms(0)]
    for expected in found[::-1]:
        net.forward()
        for node, bottoms in zip(wanted, expected, strict=True):
            assert all(torch.equal(blob.data, given) for blob, given in zip(node.bottoms, bottoms, strict=True))
    assert found[0][0][0].reshape(-1).tolist() == [12.0, 15.0]
    net.close()


def test_what_another_layer_computes_is_not_known_and_that_layer_is_named(build):
    net, wanted = build("computed")
    ahead = BlobsAhead(net.nodes, wanted)
    assert ahead.unknown is not None and ahead.unknown.layer.name == "power"
    assert ahead.bottoms(0) is None
    assert BlobsAhead(net.nodes, [wanted[0], wanted[2]]).unknown is None
    net.close()


def test_a_batch_of_another_shape_is_not_looked_at_ahead(build, monkeypatch):
    net, wanted = build("f")
    net.forward()
    ahead = BlobsAhead(net.nodes, wanted)
    monkeypatch.setattr(net.data_layers[0], "peek", lambda ahead: [torch.zeros(3, 3, 1), torch.zeros(3, 1, 1)])
    assert ahead.bottoms(0) is None
    net.close()
