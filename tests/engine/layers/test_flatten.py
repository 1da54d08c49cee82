"""Flatten: which axes become one, values in order, views."""

import pytest
import torch

from mgcaffe.errors import NetError
from tests.support.autograd import check_against_autograd
from tests.support.layerkit import check_gradients, make_layer
from tests.support.layouts import LAYOUTS, random_input

SHAPE = (2, 3, 6, 5)


def flatten(fields: str):
    return make_layer(f'name: "f" type: "Flatten" bottom: "x" top: "y" flatten_param {{ {fields} }}', [SHAPE])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("", (2, 90)),
        ("axis: 2", (2, 3, 30)),
        ("end_axis: -2", (2, 18, 5)),
        ("axis: 0 end_axis: -2", (36, 5)),
        ("axis: 0", (180,)),
        ("axis: -1", SHAPE),
        ("axis: 2 end_axis: 1", (2, 3, 1, 6, 5)),
    ],
)
def test_makes_one_axis_of_several(fields, expected, layout):
    layer, tops = flatten(fields)
    assert tops == [expected]
    check_against_autograd(layer, [random_input(SHAPE, layout)], lambda x: x.reshape(expected))


def test_top_is_a_view():
    layer, _ = flatten("")
    x = random_input(SHAPE)
    assert layer.forward([x])[0].data_ptr() == x.data_ptr()
    assert layer.tops_share_bottoms
    assert not layer.in_place


def test_gradient_agrees_with_differences():
    layer, _ = make_layer('name: "f" type: "Flatten" bottom: "x" top: "y"', [(2, 2, 3)])
    check_gradients(layer, [random_input((2, 2, 3))])


def test_axes_that_do_not_fit_are_refused():
    with pytest.raises(NetError, match="end_axis 0 lies before axis 2"):
        flatten("axis: 2 end_axis: 0")
    with pytest.raises(NetError, match=r"flatten_param\.axis 4 does not exist"):
        flatten("axis: 4")


def test_a_new_batch_size_is_followed():
    layer, _ = flatten("")
    assert layer.reshape([(7, 3, 6, 5)]) == [(7, 90)]
    assert layer.forward([torch.zeros(7, 3, 6, 5)])[0].shape == (7, 90)
