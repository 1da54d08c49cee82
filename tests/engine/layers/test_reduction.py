"""Reduction: all operations, axes and coefficients."""

import math

import pytest
import torch

from mgcaffe.errors import NetError
from tests.support.autograd import check_against_autograd
from tests.support.layerkit import check_gradients, forward_backward, make_layer
from tests.support.layouts import LAYOUTS, random_input

SHAPE = (2, 3, 4, 5)
FUNCTIONS = {
    "SUM": lambda x, axes: x.sum(axes),
    "ASUM": lambda x, axes: x.abs().sum(axes),
    "SUMSQ": lambda x, axes: x.square().sum(axes),
    "MEAN": lambda x, axes: x.mean(axes),
}


def reduction(fields: str, shape=SHAPE):
    return make_layer(f'name: "r" type: "Reduction" bottom: "x" top: "y" reduction_param {{ {fields} }}', [shape])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("coefficient", [1, 2.5])
@pytest.mark.parametrize(("axis", "top"), [(0, ()), (1, (2,)), (2, (2, 3)), (-1, (2, 3, 4))])
@pytest.mark.parametrize("operation", FUNCTIONS)
def test_agrees_with_autograd(operation, axis, top, coefficient, layout):
    layer, shapes = reduction(f"operation: {operation} axis: {axis} coeff: {coefficient}")
    assert shapes == [top]
    axes = tuple(range(len(top), 4))
    function = FUNCTIONS[operation]
    check_against_autograd(layer, [random_input(SHAPE, layout)], lambda x: coefficient * function(x, axes))


@pytest.mark.parametrize("operation", FUNCTIONS)
def test_gradient_agrees_with_differences(operation):
    check_gradients(reduction(f"operation: {operation} coeff: 2.5 axis: 1", (2, 3))[0], [random_input((2, 3))])


def test_the_sum_of_everything_is_the_default():
    x = random_input(SHAPE)
    assert reduction("")[0].forward([x])[0].item() == pytest.approx(float(x.sum()))


def test_the_slope_of_an_absolute_value_at_zero_is_zero():
    layer, _ = reduction("operation: ASUM", (3,))
    _, (dx,) = forward_backward(layer, [torch.tensor([-1.0, 0, 2])], [torch.tensor(3.0)])
    assert dx.tolist() == [-3, 0, 3]


def test_the_gradient_can_be_written_to():
    layer, _ = reduction("", (2, 3))
    _, (dx,) = forward_backward(layer, [random_input((2, 3))], [torch.tensor(2.0)])
    dx.add_(torch.arange(6.0).view(2, 3))
    assert dx.tolist() == [[2, 3, 4], [5, 6, 7]]


@pytest.mark.parametrize(("operation", "keeps"), [("SUM", False), ("MEAN", False), ("ASUM", True), ("SUMSQ", True)])
def test_keeps_the_bottom_only_where_the_slope_varies(operation, keeps):
    layer, _ = reduction(f"operation: {operation}")
    layer.forward([random_input(SHAPE)])
    assert layer.keeps_bottoms is keeps
    assert (layer.saved is not None) is keeps


@pytest.mark.parametrize("operation", FUNCTIONS)
def test_nothing_adds_up_to_zero(operation):
    layer, shapes = reduction(f"operation: {operation} axis: 1", (2, 0, 3))
    x = torch.zeros(2, 0, 3)
    (y,), (dx,) = forward_backward(layer, [x], [torch.ones(2)])
    assert shapes == [(2,)]
    assert y.tolist() == [0, 0]
    assert dx.shape == x.shape
    assert not math.isnan(layer.factor)


def test_the_axis_has_to_exist():
    with pytest.raises(NetError, match="axis 4 does not exist"):
        reduction("axis: 4")
