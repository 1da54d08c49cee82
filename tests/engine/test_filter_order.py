"""Filters that lie in memory in the order of the blobs: the same values, whoever reads or writes them."""

import pytest
import torch

from mgcaffe.engine import Net
from mgcaffe.engine.weights.caffemodel import save_caffemodel
from mgcaffe.engine.weights.files import read_weights
from mgcaffe.engine.weights.hdf5 import save_hdf5
from mgcaffe.prototxt import NetParameter, parse_text

NET = """
layer { name: 'in' type: 'Input' top: 'x' input_param { shape { dim: 2 dim: 3 dim: 9 dim: 8 } } }
layer { name: 'conv' type: 'Convolution' bottom: 'x' top: 'c' convolution_param { num_output: 4 kernel_size: 3
  weight_filler { type: 'gaussian' std: 0.5 } bias_filler { type: 'uniform' } } }
layer { name: 'named' type: 'Convolution' bottom: 'c' top: 'd' param { name: 'shared' } convolution_param {
  num_output: 4 kernel_size: 2 weight_filler { type: 'gaussian' std: 0.5 } } }
layer { name: 'pixel' type: 'Convolution' bottom: 'd' top: 'e' convolution_param { num_output: 4 kernel_size: 1
  weight_filler { type: 'gaussian' std: 0.5 } } }
layer { name: 'up' type: 'Deconvolution' bottom: 'e' top: 'f' convolution_param { num_output: 2 kernel_size: 2
  weight_filler { type: 'xavier' } } }
layer { name: 'sum' type: 'Reduction' bottom: 'f' top: 'loss' loss_weight: 1 reduction_param { operation: SUMSQ } }
"""


def make(**options):
    net = Net(parse_text(NET, NetParameter), seed=3, **options)
    net.blobs["x"].data = torch.randn(2, 3, 9, 8, generator=torch.Generator().manual_seed(1))
    return net


def test_filters_lie_as_the_blobs_do_where_nothing_else_may_read_them():
    filters = {layer.name: layer.parameters[0] for layer in make(keep_blobs=False).layers if layer.parameters}
    last = {name for name, each in filters.items() if not each.data.is_contiguous()}
    assert last == {"conv", "up"}
    for name in last:
        for values in (filters[name].data, filters[name].diff):
            assert values.is_contiguous(memory_format=torch.channels_last)
    kept = make(keep_blobs=True)
    assert all(each.data.is_contiguous() for each in kept.parameters)
    small = NET.replace("dim: 3 dim: 9 dim: 8", "dim: 512 dim: 6 dim: 6").replace(
        "4 kernel_size: 3", "64 kernel_size: 3"
    )
    assert Net(parse_text(small, NetParameter), keep_blobs=False).layers[1].parameters[0].data.is_contiguous()


@pytest.mark.parametrize("save", [save_caffemodel, save_hdf5])
def test_values_gradients_and_files_are_those_of_filters_in_caffes_order(tmp_path, save):
    kept, freed = make(keep_blobs=True), make(keep_blobs=False)
    for net in (kept, freed):
        assert net.forward() > 0
        net.backward()
    for one, other in zip(kept.parameters, freed.parameters, strict=True):
        assert torch.equal(one.data, other.data)
        torch.testing.assert_close(one.diff, other.diff, rtol=1e-4, atol=1e-4)
        other.diff.copy_(one.diff)
    assert freed.to_proto(diff=True).SerializeToString() == kept.to_proto(diff=True).SerializeToString()
    for net, name in ((kept, "kept"), (freed, "freed")):
        save(net, tmp_path / name, diff=True)
    assert read_weights(tmp_path / "freed").SerializeToString() == read_weights(tmp_path / "kept").SerializeToString()
    for parameter in freed.parameters:
        parameter.data.zero_()
    freed.copy_trained_layers(tmp_path / "freed")
    for one, other in zip(kept.parameters, freed.parameters, strict=True):
        assert torch.equal(one.data, other.data)
