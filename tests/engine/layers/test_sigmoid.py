"""Sigmoid at extreme values."""

import torch

from tests.support.layerkit import make_layer


def test_extreme_values_give_zero_and_one():
    layer, _ = make_layer('name: "s" type: "Sigmoid" bottom: "x" top: "y"', [(3,)])
    (y,) = layer.forward([torch.tensor([-1e4, 0, 1e4], dtype=torch.float64)])
    assert y.tolist() == [0, 0.5, 1]
