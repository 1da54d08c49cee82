"""SmoothL1Loss: the definition in numpy, autograd, differences."""

import numpy as np
import pytest
import torch

from mgcaffe.errors import NetError
from tests.support.autograd import check_against_autograd
from tests.support.layerkit import check_gradients, make_layer
from tests.support.layouts import LAYOUTS, random_input

SHAPE = (3, 4, 2, 1)
NAMES = ("a", "b", "inside", "outside")


def smooth_l1(fields: str, *shapes: tuple[int, ...]):
    bottoms = " ".join(f'bottom: "{name}"' for name in NAMES[: len(shapes)])
    text = f'name: "l" type: "SmoothL1Loss" {bottoms} top: "y" smooth_l1_loss_param {{ {fields} }}'
    return make_layer(text, list(shapes))[0]


def bottoms_of(count: int, layout: str = "contiguous", shape: tuple[int, ...] = SHAPE) -> list[torch.Tensor]:
    return [random_input(shape, layout, seed=seed) * 1.5 for seed in range(count)]


def formula(sigma: float):
    def function(a, b, inside=1.0, outside=1.0):
        d = inside * (a - b)
        small = d.abs() < 1 / sigma**2
        return (torch.where(small, (sigma * d) ** 2 / 2, d.abs() - 0.5 / sigma**2) * outside).sum() / len(a)

    return function


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("sigma", [1.0, 3.0, 0.5])
def test_agrees_with_autograd(sigma, count, layout):
    layer = smooth_l1(f"sigma: {sigma}", *[SHAPE] * count)
    check_against_autograd(layer, bottoms_of(count, layout), formula(sigma))


def test_agrees_with_fast_rcnn_value_by_value():
    a, b, inside, outside = (x.numpy() for x in bottoms_of(4))
    total = 0.0
    for d, weight in zip((inside * (a - b)).ravel(), outside.ravel(), strict=True):
        total += weight * (0.5 * d * d * 4 if abs(d) < 0.25 else abs(d) - 0.125)
    (loss,) = smooth_l1("sigma: 2", *[SHAPE] * 4).forward(bottoms_of(4))
    assert float(loss) == pytest.approx(total / 3, rel=1e-12)
    assert loss.shape == ()


@pytest.mark.parametrize("count", [2, 4])
def test_gradient_agrees_with_differences(count):
    check_gradients(smooth_l1("sigma: 1.5", *[(2, 3)] * count), bottoms_of(count, shape=(2, 3)))


def test_without_sigma_the_bend_is_at_1():
    layer = smooth_l1("", (1, 3), (1, 3))
    x = torch.tensor([[0.5, -1.0, 3.0]], dtype=torch.float64)
    (loss,) = layer.forward([x, torch.zeros_like(x)])
    assert float(loss) == 0.125 + 0.5 + 2.5
    first, second = layer.backward([torch.ones((), dtype=torch.float64)], [True, True])
    np.testing.assert_array_equal(first, [[0.5, -1, 1]])
    np.testing.assert_array_equal(second, -first)


@pytest.mark.parametrize(
    ("fields", "shapes", "message"),
    [
        ("", ((2, 3), (2, 4)), r"bottom 0 \('a'\) has shape \(2, 3\), bottom 1 \('b'\) has \(2, 4\)"),
        ("", ((2, 3), (2, 3), (2, 1)), r"bottom 2 \('inside'\)"),
        ("sigma: 0", ((2, 3), (2, 3)), "sigma has to be above 0"),
    ],
)
def test_what_does_not_fit_is_an_error(fields, shapes, message):
    with pytest.raises(NetError, match=message):
        smooth_l1(fields, *shapes)
