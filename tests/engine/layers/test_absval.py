"""AbsVal: the slope at zero, and that it is no layer to work in place."""

import pytest
import torch

from mgcaffe.errors import NetError
from tests.support.layerkit import forward_backward, make_layer
from tests.support.netkit import inputs, make_net


def test_the_slope_at_zero_is_zero():
    layer, _ = make_layer('name: "a" type: "AbsVal" bottom: "x" top: "y"', [(3,)])
    x = torch.tensor([-2.0, 0, 3], dtype=torch.float64)
    (y,), (dx,) = forward_backward(layer, [x], [torch.ones_like(x)])
    assert y.tolist() == [2, 0, 3]
    assert dx.tolist() == [-1, 0, 1]


def test_in_place_is_refused():
    with pytest.raises(NetError, match="AbsVal cannot work in place on blob 'x'"):
        make_net(inputs(x=(2, 3)) + 'layer { name: "a" type: "AbsVal" bottom: "x" top: "x" }')
