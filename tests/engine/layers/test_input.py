"""Input: shapes, memory formats, values that stay."""

import pytest
import torch

from mgcaffe.engine.layer_context import LayerContext
from mgcaffe.errors import NetError
from tests.support.layerkit import make_layer

TWO = 'name: "i" type: "Input" top: "a" top: "b" input_param { '
ONE_SHAPE = "shape { dim: 2 dim: 3 } "
IMAGE = "shape { dim: 2 dim: 3 dim: 4 dim: 5 } "


def test_one_shape_serves_all_tops():
    assert make_layer(TWO + ONE_SHAPE + "}", [])[1] == [(2, 3), (2, 3)]


def test_every_top_has_its_own_shape():
    layer, tops = make_layer(TWO + ONE_SHAPE + "shape { dim: 7 } }", [])
    assert tops == [(2, 3), (7,)]
    assert [tuple(top.shape) for top in layer.forward([])] == tops


def test_without_shapes_they_are_put_off():
    layer, _ = make_layer(TWO + "}", [])
    layer.values[:] = [torch.ones(3), torch.ones(4)]
    assert layer.reshape([]) == [(3,), (4,)]
    assert [top.numel() for top in layer.forward([])] == [3, 4]


def test_values_begin_as_zeros_and_stay():
    layer, _ = make_layer(TWO + ONE_SHAPE + "}", [])
    assert not layer.forward([])[0].any()
    layer.forward([])[0].fill_(3)
    assert (layer.forward([])[0] == 3).all()
    assert layer.backward([torch.ones(2, 3)] * 2, []) == []


def test_four_axes_take_the_nets_memory_format():
    context = LayerContext(memory_format=torch.channels_last)
    layer, _ = make_layer(TWO + IMAGE + ONE_SHAPE + "}", [], context=context)
    image, matrix = layer.forward([])
    assert image.is_contiguous(memory_format=torch.channels_last)
    assert matrix.is_contiguous()


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(NetError, match="3 shapes for 2 tops"):
        make_layer(TWO + ONE_SHAPE * 3 + "}", [])
    with pytest.raises(NetError, match="shape 0 has a negative size"):
        make_layer(TWO + "shape { dim: -1 } }", [])
