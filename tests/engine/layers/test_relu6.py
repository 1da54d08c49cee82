"""ReLU6: the fork's formula, in numpy, and the gradient away from the kinks."""

import numpy as np
import pytest
import torch

from tests.support.layerkit import check_gradients, forward_backward, make_layer
from tests.support.layouts import LAYOUTS, random_input

SLOPES = ("", "negative_slope: 0.125", "negative_slope: -0.5", "negative_slope: -8")


def relu6(fields: str, shape: tuple[int, ...]):
    return make_layer(f'name: "r" type: "ReLU6" bottom: "x" top: "y" relu6_param {{ {fields} }}', [shape])[0]


def slope_of(fields: str) -> float:
    return float(fields.split()[-1]) if fields else 0.0


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("fields", SLOPES)
def test_agrees_with_the_definition(fields, layout):
    layer, slope = relu6(fields, (2, 3, 4, 5)), slope_of(fields)
    x = random_input((2, 3, 4, 5), layout) * 5
    dy = random_input((2, 3, 4, 5), layout, seed=7)
    (y,), (dx,) = forward_backward(layer, [x], [dy])
    values = x.numpy()
    bent = np.maximum(values, 0) + slope * np.minimum(values, 0)
    np.testing.assert_allclose(y.numpy(), np.minimum(bent, 6), rtol=1e-15)
    np.testing.assert_allclose(dx.numpy(), dy.numpy() * ((values > 0) + slope * (values <= 0)) * (bent < 6), rtol=1e-15)


def test_slope_at_the_kinks():
    x = torch.tensor([-1.0, 0, 6, 7], dtype=torch.float64)
    for fields, expected in (("", [0, 0, 0, 0]), ("negative_slope: 0.5", [0.5, 0.5, 0, 0])):
        _, (dx,) = forward_backward(relu6(fields, (4,)), [x], [torch.ones_like(x)])
        assert dx.tolist() == expected


@pytest.mark.parametrize("fields", SLOPES)
def test_gradient_agrees_with_differences(fields):
    check_gradients(relu6(fields, (3, 4)), [torch.linspace(-3.1, 8.3, 12, dtype=torch.float64).reshape(3, 4)])


@pytest.mark.parametrize("fields", SLOPES)
def test_working_in_place_changes_no_result(fields):
    x, dy = random_input((3, 4)) * 5, random_input((3, 4), seed=8)
    (y,), (dx,) = forward_backward(relu6(fields, (3, 4)), [x], [dy])
    layer = relu6(fields, (3, 4))
    layer.may_overwrite_bottom, layer.may_overwrite_top_diff = True, [True]
    (other,) = layer.forward([x.clone()])
    assert torch.equal(other, y)
    (diff,) = layer.backward([dy.clone()], [True])
    assert torch.equal(diff, dx)
