"""MVN: means, variances and gradients, in all modes."""

import pytest
import torch

from mgcaffe.errors import NetError
from tests.support.autograd import check_against_autograd
from tests.support.layerkit import check_gradients, make_layer
from tests.support.layouts import LAYOUTS, random_input

SHAPE = (2, 3, 4, 5)
MODES = {
    "": (2, True),
    "across_channels: true": (1, True),
    "normalize_variance: false": (2, False),
    "normalize_variance: false across_channels: true": (1, False),
}


def mvn(fields: str = "", shape=SHAPE):
    return make_layer(f'name: "m" type: "MVN" bottom: "x" top: "y" mvn_param {{ {fields} }}', [shape])


@pytest.mark.parametrize("fields", MODES)
def test_mean_is_zero_and_variance_one(fields):
    layer, shapes = mvn(fields)
    first, divides = MODES[fields]
    y = layer.forward([random_input(SHAPE) * 3 + 2])[0].flatten(first)
    assert shapes == [SHAPE]
    torch.testing.assert_close(y.mean(-1), torch.zeros(SHAPE[:first], dtype=y.dtype))
    if divides:
        torch.testing.assert_close(y.square().mean(-1), torch.ones(SHAPE[:first], dtype=y.dtype))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("fields", MODES)
def test_agrees_with_autograd(fields, layout):
    first, divides = MODES[fields]

    def function(x):
        rows = x.flatten(first)
        y = rows - rows.mean(-1, keepdim=True)
        return (y / y.square().mean(-1, keepdim=True).sqrt() if divides else y).view(SHAPE)

    # eps, which the gradient takes for constant, is 1e-9.
    check_against_autograd(mvn(fields)[0], [random_input(SHAPE, layout)], function, tolerance=1e-7)


@pytest.mark.parametrize("fields", MODES)
def test_gradient_agrees_with_differences(fields):
    check_gradients(mvn(fields, (2, 2, 3))[0], [random_input((2, 2, 3))])


def test_eps_is_added_to_the_deviation():
    x = torch.tensor([[[-1.0, 1]]], dtype=torch.float64)
    assert mvn("eps: 1", (1, 1, 2))[0].forward([x])[0].tolist() == [[[-0.5, 0.5]]]


def test_a_constant_channel_becomes_zero():
    assert not mvn("", (1, 2, 4))[0].forward([torch.full((1, 2, 4), 7.0)])[0].any()


@pytest.mark.parametrize(("fields", "least"), [("", 2), ("across_channels: true", 1)])
def test_the_bottom_needs_its_axes(fields, least):
    with pytest.raises(NetError, match=f"the bottom needs at least {least} axes"):
        mvn(fields, (3,) * (least - 1))
