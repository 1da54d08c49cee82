"""PReLU: its parameter, and that a slope of zero makes it a ReLU."""

import pytest
import torch

from mgcaffe.errors import NetError
from tests.support.layerkit import forward_backward, make_layer
from tests.support.layouts import random_input

TEXT = 'name: "p" type: "PReLU" bottom: "x" top: "y" '


def test_param_has_one_slope_a_channel_that_begins_at_a_quarter():
    layer, _ = make_layer(TEXT, [(2, 3, 4)])
    assert layer.parameters[0].shape == (3,)
    assert layer.parameters[0].data.tolist() == [0.25] * 3


def test_channel_shared_param_has_no_axes():
    layer, _ = make_layer(TEXT + "prelu_param { channel_shared: true }", [(2, 3, 4)])
    assert layer.parameters[0].shape == ()
    assert layer.parameters[0].data.item() == 0.25


def test_consistent_with_relu():
    text = 'prelu_param { filler { type: "constant" value: 0 } }'
    layer, _ = make_layer(TEXT + text, [(2, 3, 4)])
    x, dy = random_input((2, 3, 4)), random_input((2, 3, 4), seed=8)
    tops, diffs = forward_backward(layer, [x], [dy])
    assert torch.equal(tops[0], x.clamp(min=0))
    assert torch.equal(diffs[0], dy * (x > 0))


def test_frozen_slope_gets_no_gradient():
    layer, _ = make_layer(TEXT + "param { lr_mult: 0 }", [(2, 3, 4)])
    forward_backward(layer, [random_input((2, 3, 4))], [random_input((2, 3, 4))])
    assert layer.parameters[0].fresh


def test_two_axes_suffice_and_one_does_not():
    make_layer(TEXT, [(2, 3)])
    with pytest.raises(NetError, match=r"needs two axes or more.*layer 'p'"):
        make_layer(TEXT, [(2,)])


def test_other_channels_after_a_reshape_are_refused():
    layer, _ = make_layer(TEXT, [(2, 3, 4)])
    assert layer.reshape([(5, 3, 7)]) == [(5, 3, 7)]
    with pytest.raises(NetError, match="there are 3 slopes"):
        layer.reshape([(2, 4, 4)])
