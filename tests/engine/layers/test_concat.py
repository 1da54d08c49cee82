"""Concat: axes, trivial cases, gradients that are views."""

import pytest
import torch

from mgcaffe.errors import NetError
from tests.support.autograd import check_against_autograd
from tests.support.layerkit import check_gradients, forward_backward, make_layer
from tests.support.layouts import LAYOUTS, random_input


def concat(fields: str, *shapes: tuple[int, ...]):
    bottoms = " ".join(f'bottom: "{name}"' for name in "abcd"[: len(shapes)])
    return make_layer(f'name: "c" type: "Concat" {bottoms} top: "y" concat_param {{ {fields} }}', list(shapes))


@pytest.mark.parametrize(
    ("fields", "axis"), [("", 1), ("axis: 0", 0), ("axis: -1", 3), ("axis: 2", 2), ("concat_dim: 0", 0)]
)
def test_joins_along_the_axis(fields, axis):
    shapes = [tuple(size + (3 if place == axis else 0) for place, size in enumerate((2, 3, 4, 5))), (2, 3, 4, 5)]
    layer, tops = concat(fields, *shapes)
    assert tops == [tuple(2 * size + 3 if place == axis else size for place, size in enumerate((2, 3, 4, 5)))]
    bottoms = [random_input(shape, seed=seed) for seed, shape in enumerate(shapes)]
    check_against_autograd(layer, bottoms, lambda a, b: torch.cat((a, b), axis))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_memory_formats(layout):
    layer, _ = concat("", (2, 3, 4, 5), (2, 6, 4, 5))
    bottoms = [random_input((2, 3, 4, 5), layout), random_input((2, 6, 4, 5), layout)]
    check_against_autograd(layer, bottoms, lambda a, b: torch.cat((a, b), 1))
    if layout == "channels_last":
        assert layer.forward(bottoms)[0].is_contiguous(memory_format=torch.channels_last)


def test_a_single_bottom_is_handed_on():
    layer, tops = concat("", (2, 3))
    x, dy = random_input((2, 3)), random_input((2, 3))
    (y,), (dx,) = forward_backward(layer, [x], [dy])
    assert tops == [(2, 3)]
    assert y is x
    assert torch.equal(dx, dy)
    assert layer.tops_share_bottoms


def test_gradients_are_views_of_the_tops():
    layer, _ = concat("", (2, 3), (2, 1))
    dy = random_input((2, 4))
    _, diffs = forward_backward(layer, [random_input((2, 3)), random_input((2, 1))], [dy])
    assert all(diff.untyped_storage().data_ptr() == dy.untyped_storage().data_ptr() for diff in diffs)


def test_gradient_of_one_bottom_only():
    layer, _ = concat("", (2, 3), (2, 1))
    layer.wants_bottom = [False, True]
    check_gradients(layer, [random_input((2, 3)), random_input((2, 1))])


def test_gradient_agrees_with_differences():
    check_gradients(concat("axis: 0", (2, 3), (1, 3))[0], [random_input((2, 3)), random_input((1, 3))])


def test_other_axes_have_to_agree():
    with pytest.raises(NetError, match=r"along axis 1 only: bottom 0 \('a'\) has shape \(2, 3, 4\)"):
        concat("", (2, 3, 4), (2, 3, 5))
    with pytest.raises(NetError, match=r"bottom 1 \('b'\) has \(2, 3\)"):
        concat("", (2, 3, 4), (2, 3))
    with pytest.raises(NetError, match=r"bottom 1 \('b'\) has \(3, 3, 4\)"):
        concat("", (2, 3, 4), (3, 3, 4))
    with pytest.raises(NetError, match=r"bottom 1 \('b'\) has \(2,\)"):
        concat("", (2, 3), (2,))
    with pytest.raises(NetError, match="a Flatten layer brings blob 'a' to two"):
        concat("", (2, 5, 1, 1), (2, 3))
    with pytest.raises(NetError, match="axis 3 does not exist in a blob with 2 axes"):
        concat("axis: 3", (2, 3), (2, 3))


def test_old_and_new_name_of_the_axis_exclude_each_other():
    with pytest.raises(NetError, match="concat_dim is the old name of axis"):
        concat("axis: 1 concat_dim: 1", (2, 3), (2, 3))
