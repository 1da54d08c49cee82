"""Power: special powers, what they keep, and zeros."""

import math

import pytest
import torch

from tests.support.layerkit import forward_backward, make_layer


def power(fields: str, x: list[float]):
    layer, _ = make_layer(f'name: "p" type: "Power" bottom: "x" top: "y" power_param {{ {fields} }}', [(len(x),)])
    values = torch.tensor(x, dtype=torch.float64)
    tops, diffs = forward_backward(layer, [values], [torch.ones_like(values)])
    return layer, tops[0].tolist(), diffs[0].tolist()


def test_constant_top_has_zero_gradient():
    assert power("power: 0 scale: 3 shift: 1", [-1, 0, 2])[1:] == ([1, 1, 1], [0, 0, 0])
    assert power("power: 2 scale: 0 shift: 3", [-1, 0, 2])[1:] == ([9, 9, 9], [0, 0, 0])


def test_gradient_at_zero_without_shift_is_no_nan():
    assert power("power: 3", [0, 2])[1:] == ([0, 8], [0, 12])


def test_fraction_of_a_negative_number_is_nan():
    _, y, dx = power("power: 0.5", [-1, 4])
    assert math.isnan(y[0])
    assert math.isnan(dx[0])
    assert (y[1], dx[1]) == (2, 0.25)


def test_negative_power():
    assert power("power: -1 shift: 1", [1, 3])[1:] == ([0.5, 0.25], [-0.25, -1 / 16])


@pytest.mark.parametrize(("fields", "keeps"), [("power: 1 scale: 3", False), ("power: 0", False), ("power: 2", True)])
def test_keeps_the_bottom_only_where_the_slope_varies(fields, keeps):
    layer, _, _ = power(fields, [1.0])
    assert layer.keeps_bottoms is keeps
    assert (layer.saved is not None) is keeps
