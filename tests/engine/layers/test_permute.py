"""Permute: numpy's transpose, and its inverse for the gradient."""

import numpy as np
import pytest

from mgcaffe.errors import NetError
from tests.support.autograd import check_against_autograd
from tests.support.layerkit import check_gradients, make_layer
from tests.support.layouts import LAYOUTS, random_input

SHAPE = (2, 3, 4, 5)


def permute(order: str, shape: tuple[int, ...] = SHAPE):
    return make_layer(f'name: "p" type: "Permute" bottom: "x" top: "y" permute_param {{ {order} }}', [shape])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("order", "axes"),
    [
        ("order: 0 order: 2 order: 3 order: 1", (0, 2, 3, 1)),
        ("order: [3, 1, 2, 0]", (3, 1, 2, 0)),
        ("order: 2", (2, 0, 1, 3)),
        ("order: 1 order: 0", (1, 0, 2, 3)),
        ("", (0, 1, 2, 3)),
    ],
)
def test_agrees_with_numpy_and_autograd(order, axes, layout):
    layer, (shape,) = permute(order)
    x = random_input(SHAPE, layout)
    (y,) = layer.forward([x])
    expected = np.transpose(x.numpy(), axes)
    assert shape == expected.shape
    np.testing.assert_array_equal(y.numpy(), expected)
    check_against_autograd(layer, [x], lambda x: x.permute(axes), tolerance=0)


def test_gradient_agrees_with_differences():
    check_gradients(permute("order: 2 order: 0", (2, 3, 2))[0], [random_input((2, 3, 2))])


@pytest.mark.parametrize(
    ("order", "message"),
    [("order: 4", "order names axis 4, but the bottom"), ("order: 1 order: 1", "order names axis 1 twice")],
)
def test_orders_that_are_none_are_refused(order, message):
    with pytest.raises(NetError, match=message):
        permute(order)
