"""Tile: copies along every axis, and their sum back."""

import pytest
import torch

from mgcaffe.errors import NetError
from tests.support.autograd import check_against_autograd
from tests.support.layerkit import check_gradients, make_layer
from tests.support.layouts import LAYOUTS, random_input

SHAPE = (2, 3, 4, 5)


def tile(fields: str, shape=SHAPE):
    return make_layer(f'name: "t" type: "Tile" bottom: "x" top: "y" tile_param {{ {fields} }}', [shape])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("tiles", [1, 3])
def test_agrees_with_autograd(axis, tiles, layout):
    layer, (top,) = tile(f"axis: {axis} tiles: {tiles}")
    repeats = [1, 1, 1, 1]
    repeats[axis] = tiles
    assert top == tuple(size * times for size, times in zip(SHAPE, repeats, strict=True))
    check_against_autograd(layer, [random_input(SHAPE, layout)], lambda x: x.repeat(repeats))


@pytest.mark.parametrize("fields", ["tiles: 2", "axis: 0 tiles: 3"])
def test_gradient_agrees_with_differences(fields):
    check_gradients(tile(fields, (2, 3, 2))[0], [random_input((2, 3, 2))])


def test_without_items_there_are_none():
    layer, (top,) = tile("axis: 0 tiles: 3", (0, 2))
    assert top == (0, 2)
    layer.forward([torch.zeros(0, 2)])
    assert layer.backward([torch.zeros(0, 2)], [True])[0].shape == (0, 2)


@pytest.mark.parametrize("fields", ["", "tiles: 0", "tiles: -1"])
def test_the_number_of_tiles_is_required(fields):
    with pytest.raises(NetError, match="tiles has to be given and at least 1"):
        tile(fields)


def test_the_axis_has_to_exist():
    with pytest.raises(NetError, match="axis 4 does not exist in a blob with 4 axes"):
        tile("axis: 4 tiles: 2")
