"""Slice: even and chosen parts, gradients, fields that do not fit."""

import pytest
import torch

from mgcaffe.errors import NetError
from tests.support.autograd import check_against_autograd
from tests.support.layerkit import check_gradients, forward_backward, make_layer
from tests.support.layouts import LAYOUTS, random_input


def cut(fields: str, tops: int, shape: tuple[int, ...] = (6, 6, 4, 5)):
    names = " ".join(f'top: "{number}"' for number in range(tops))
    return make_layer(f'name: "s" type: "Slice" bottom: "x" {names} slice_param {{ {fields} }}', [shape])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("fields", "axis", "sizes"),
    [
        ("", 1, [2, 2, 2]),
        ("axis: 0 slice_point: 1 slice_point: 3", 0, [1, 2, 3]),
        ("slice_point: 1 slice_point: 3", 1, [1, 2, 3]),
        ("axis: -1 slice_point: 1 slice_point: 2", 3, [1, 1, 3]),
        ("slice_dim: 2 slice_point: 1 slice_point: 2", 2, [1, 1, 2]),
    ],
)
def test_cuts_along_the_axis(fields, axis, sizes, layout):
    layer, tops = cut(fields, 3)
    assert [shape[axis] for shape in tops] == sizes
    check_against_autograd(layer, [random_input((6, 6, 4, 5), layout)], lambda x: torch.split(x, sizes, axis))


def test_slices_across_num():
    layer, tops = cut("axis: 0 slice_point: 1", 2, (3, 2))
    assert tops == [(1, 2), (2, 2)]
    check_gradients(layer, [random_input((3, 2))])


def test_trivial_slice_hands_everything_on():
    layer, tops = cut("", 1, (3, 2))
    x, dy = random_input((3, 2)), random_input((3, 2))
    (y,), (dx,) = forward_backward(layer, [x], [dy])
    assert tops == [(3, 2)]
    assert torch.equal(y, x)
    assert dx is dy


def test_tops_are_views():
    layer, _ = cut("", 2)
    x = random_input((6, 6, 4, 5))
    assert layer.tops_share_bottoms
    assert all(y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for y in layer.forward([x]))


@pytest.mark.parametrize(
    ("fields", "tops", "message"),
    [
        ("", 4, "a size of 6 along axis 1 cannot be cut into 4 equal parts"),
        ("slice_point: 1", 3, r"3 tops need 2 slice_point\(s\), not 1"),
        ("slice_point: 3 slice_point: 3", 3, r"slice_points \[3, 3\] do not ascend"),
        ("slice_point: 3 slice_point: 6", 3, "do not ascend from above 0 to below 6"),
        ("axis: 1 slice_dim: 1", 2, "slice_dim is the old name of axis"),
    ],
)
def test_fields_that_do_not_fit_are_refused(fields, tops, message):
    with pytest.raises(NetError, match=message):
        cut(fields, tops)
