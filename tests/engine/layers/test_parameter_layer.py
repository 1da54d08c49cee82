"""Parameter: a blob that learns, and that no layer behind it destroys."""

import pytest
import torch

from mgcaffe.errors import NetError
from tests.support.layerkit import make_layer
from tests.support.netkit import inputs, make_net

TEXT = 'name: "p" type: "Parameter" top: "w" parameter_param { shape { dim: 2 dim: 3 } }'


def test_the_values_begin_as_zeros():
    layer, shapes = make_layer(TEXT, [])
    assert shapes == [(2, 3)]
    assert layer.forward([])[0].tolist() == [[0, 0, 0], [0, 0, 0]]


def test_the_gradient_adds_up():
    layer, _ = make_layer(TEXT, [])
    for _ in range(2):
        assert layer.backward([torch.ones(2, 3)], []) == []
    assert layer.parameters[0].diff.tolist() == [[2, 2, 2], [2, 2, 2]]


def test_a_frozen_one_gets_none():
    layer, _ = make_layer(TEXT + " param { lr_mult: 0 }", [])
    layer.backward([torch.ones(2, 3)], [])
    assert layer.parameters[0].fresh


@pytest.mark.parametrize("keep_blobs", [True, False])
def test_a_layer_in_place_leaves_the_parameter_alone(keep_blobs):
    text = (
        inputs(t=(2, 3)) + f"layer {{ {TEXT} }}\n"
        'layer { name: "r" type: "ReLU" bottom: "w" top: "w" }\n'
        'layer { name: "l" type: "EuclideanLoss" bottom: "w" bottom: "t" top: "l" }\n'
    )
    net = make_net(text, keep_blobs=keep_blobs)
    values = torch.tensor([[-1.0, 2, -3], [4, -5, 6]], dtype=torch.float64)
    net.parameters[0].data.copy_(values)
    net.forward_backward()
    assert torch.equal(net.parameters[0].data, values)
    torch.testing.assert_close(net.parameters[0].diff, values.clamp(min=0) / 2)


def test_a_negative_size_is_refused():
    with pytest.raises(NetError, match="has a negative size"):
        make_layer('name: "p" type: "Parameter" top: "w" parameter_param { shape { dim: -1 } }', [])
