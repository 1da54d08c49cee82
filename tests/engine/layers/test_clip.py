"""Clip: the ends of the interval, and intervals that are none."""

import pytest
import torch

from mgcaffe.errors import NetError, PrototxtError
from tests.support.layerkit import forward_backward, make_layer
from tests.support.netkit import inputs, make_net


def clip(fields: str):
    return make_layer(f'name: "c" type: "Clip" bottom: "x" top: "y" clip_param {{ {fields} }}', [(5,)])[0]


def test_the_ends_of_the_interval_belong_to_it():
    x = torch.tensor([-2.0, -1, 0, 2, 3], dtype=torch.float64)
    (y,), (dx,) = forward_backward(clip("min: -1 max: 2"), [x], [torch.full_like(x, 3)])
    assert y.tolist() == [-1, -1, 0, 2, 2]
    assert dx.tolist() == [0, 3, 3, 3, 0]


@pytest.mark.parametrize(("fields", "missing"), [("min: 1", "max"), ("max: 1", "min")])
def test_both_ends_are_required(fields, missing):
    with pytest.raises(PrototxtError, match=f"clip_param needs '{missing}'"):
        clip(fields)


def test_without_any_field_the_layer_says_what_it_needs():
    with pytest.raises(NetError, match=r"clip_param needs min \(layer 'c', type Clip\)"):
        make_net(inputs(x=(2,)) + 'layer { name: "c" type: "Clip" bottom: "x" top: "y" }')


def test_an_empty_interval_is_refused():
    with pytest.raises(NetError, match="min 2 is more than max 1"):
        clip("min: 2 max: 1")
