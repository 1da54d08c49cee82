"""Threshold: a strict comparison without a gradient."""

import pytest
import torch

from mgcaffe.errors import NetError
from tests.support.layerkit import make_layer
from tests.support.layouts import LAYOUTS, random_input
from tests.support.netkit import inputs, make_net


def threshold(fields: str, shape):
    return make_layer(f'name: "t" type: "Threshold" bottom: "x" top: "y" threshold_param {{ {fields} }}', [shape])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("limit", [0, 0.5])
def test_tells_what_is_above(layout, limit):
    layer, shapes = threshold(f"threshold: {limit}", (2, 3, 4, 5))
    x = random_input((2, 3, 4, 5), layout)
    (y,) = layer.forward([x])
    assert shapes == [(2, 3, 4, 5)]
    assert y.dtype == x.dtype
    assert torch.equal(y, (x > limit).to(x.dtype))


def test_the_threshold_itself_is_not_above():
    assert threshold("threshold: 2", (3,))[0].forward([torch.tensor([1.0, 2, 3])])[0].tolist() == [0, 0, 1]


def test_in_place():
    layer, _ = threshold("", (3,))
    layer.may_overwrite_bottom = True
    x = torch.tensor([-1.0, 0, 3])
    (y,) = layer.forward([x])
    assert y.data_ptr() == x.data_ptr()
    assert y.tolist() == [0, 0, 1]


def test_layers_that_learn_cannot_stand_before_it():
    text = (
        inputs(x=(2, 3), t=(2, 3)) + 'layer { name: "b" type: "Bias" bottom: "x" top: "h" }\n'
        'layer { name: "t" type: "Threshold" bottom: "h" top: "y" }\n'
        'layer { name: "l" type: "EuclideanLoss" bottom: "y" bottom: "t" top: "l" }\n'
    )
    with pytest.raises(NetError, match="no gradient can flow to bottom 0, blob 'h'"):
        make_net(text)
    make_net(text.replace('top: "y"', 'top: "y" propagate_down: false'))
