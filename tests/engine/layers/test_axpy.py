"""Axpy: a x + y with one a per channel, against autograd and differences."""

import pytest

from mgcaffe.errors import NetError
from tests.support.autograd import check_against_autograd
from tests.support.layerkit import check_gradients, make_layer
from tests.support.layouts import LAYOUTS, random_input

TEXT = 'name: "axpy" type: "Axpy" bottom: "a" bottom: "x" bottom: "y" top: "f"'


def axpy(*shapes: tuple[int, ...]):
    return make_layer(TEXT, list(shapes))[0]


def formula(a, x, y):
    return a.reshape(*x.shape[:2], *[1] * (x.dim() - 2)) * x + y


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("factors", "shape"),
    [((2, 3, 1, 1), (2, 3, 4, 5)), ((2, 3), (2, 3, 4, 5)), ((2, 3), (2, 3)), ((2, 3, 1), (2, 3, 7))],
)
def test_agrees_with_autograd(factors, shape, layout):
    bottoms = [random_input(factors, layout, seed=1), random_input(shape, layout), random_input(shape, layout, seed=3)]
    check_against_autograd(axpy(factors, shape, shape), bottoms, formula)


def test_gradient_agrees_with_differences():
    bottoms = [random_input((2, 3), seed=1), random_input((2, 3, 2)), random_input((2, 3, 2), seed=3)]
    check_gradients(axpy((2, 3), (2, 3, 2), (2, 3, 2)), bottoms)


def test_only_wanted_gradients_are_computed():
    layer = axpy((1, 2), (1, 2, 3), (1, 2, 3))
    bottoms = [random_input((1, 2)), random_input((1, 2, 3)), random_input((1, 2, 3), seed=2)]
    layer.forward(bottoms)
    df = random_input((1, 2, 3), seed=4)
    assert [diff is not None for diff in layer.backward([df], [False, True, False])] == [False, True, False]


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((2, 4, 1, 1), (2, 3, 4, 5), (2, 3, 4, 5)), "one factor a channel of bottom 1, that is 2 x 3 x 1 x 1"),
        (((2, 3, 2, 1), (2, 3, 4, 5), (2, 3, 4, 5)), "one factor a channel"),
        (((2, 3), (2, 3, 4, 5), (2, 3, 4, 4)), "bottoms 1 and 2 have to be of one shape"),
        (((2,), (2,), (2,)), "needs a channel axis"),
    ],
)
def test_shapes_that_do_not_fit_are_errors(shapes, message):
    with pytest.raises(NetError, match=message):
        axpy(*shapes)
