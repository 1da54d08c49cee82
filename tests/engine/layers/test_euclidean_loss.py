"""EuclideanLoss: the formula, both gradients."""

import pytest
import torch

from mgcaffe.errors import NetError
from tests.support.autograd import check_against_autograd
from tests.support.layerkit import check_gradients, make_layer
from tests.support.layouts import LAYOUTS, random_input

TEXT = 'name: "l" type: "EuclideanLoss" bottom: "a" bottom: "b" top: "loss"'
SHAPE = (4, 3, 2, 5)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_is_half_the_mean_squared_distance(layout):
    layer, tops = make_layer(TEXT, [SHAPE, SHAPE])
    assert tops == [()]
    bottoms = [random_input(SHAPE, layout), random_input(SHAPE, seed=9)]
    check_against_autograd(layer, bottoms, lambda a, b: (a - b).square().sum() / 8)


def test_gradient_agrees_with_differences():
    layer, _ = make_layer(TEXT, [(2, 3), (2, 3)])
    check_gradients(layer, [random_input((2, 3)), random_input((2, 3), seed=9)])


def test_gradient_of_one_bottom_only():
    layer, _ = make_layer(TEXT, [(2, 3), (2, 3)])
    layer.wants_bottom = [True, False]
    bottoms = [random_input((2, 3)), random_input((2, 3), seed=9)]
    check_against_autograd(layer, bottoms, lambda a, b: (a - b).square().sum() / 4)


def test_as_many_values_in_another_shape():
    layer, _ = make_layer(TEXT, [(4, 3), (4, 3, 1, 1)])
    bottoms = [random_input((4, 3)), random_input((4, 3, 1, 1), seed=9)]
    check_against_autograd(layer, bottoms, lambda a, b: (a - b.reshape(4, 3)).square().sum() / 8)


def test_other_shapes_are_refused():
    with pytest.raises(NetError, match=r"of one shape, not \(4, 3\) and \(4, 2\)"):
        make_layer(TEXT, [(4, 3), (4, 2)])


def test_keeps_the_difference_only():
    layer, _ = make_layer(TEXT, [(2, 3), (2, 3)])
    layer.forward([torch.ones(2, 3), torch.zeros(2, 3)])
    assert torch.equal(layer.saved, torch.ones(2, 3))
    assert not layer.keeps_bottoms
