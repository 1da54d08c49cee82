"""ArgMax: shapes, orders and ties."""

import pytest
import torch

from mgcaffe.errors import NetError
from tests.support.layerkit import make_layer
from tests.support.layouts import LAYOUTS, random_input

SHAPE = (3, 4, 5, 2)


def argmax(fields: str = "", shape=SHAPE):
    return make_layer(f'name: "a" type: "ArgMax" bottom: "x" top: "y" argmax_param {{ {fields} }}', [shape])


@pytest.mark.parametrize(
    ("fields", "shape", "top"),
    [
        ("", SHAPE, (3, 1, 1, 1)),
        ("top_k: 4", SHAPE, (3, 1, 4, 1)),
        ("out_max_val: true top_k: 4", SHAPE, (3, 2, 4, 1)),
        ("top_k: 4", (3, 7), (3, 1, 4)),
        ("out_max_val: true", (3, 7), (3, 2, 1)),
        ("", (3,), (3, 1, 1)),
        ("axis: 0", SHAPE, (1, 4, 5, 2)),
        ("axis: -2 top_k: 3", SHAPE, (3, 4, 3, 2)),
        ("axis: 1 out_max_val: true", (3, 7), (3, 1)),
    ],
)
def test_setup(fields, shape, top):
    layer, shapes = argmax(fields, shape)
    assert shapes == [top]
    assert tuple(layer.forward([random_input(shape)])[0].shape) == top


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("top_k", [1, 5])
def test_all_values_of_an_item_count_together(top_k, layout):
    x = random_input(SHAPE, layout)
    values, indices = x.reshape(3, 40).topk(top_k)
    (y,) = argmax(f"top_k: {top_k}")[0].forward([x])
    assert torch.equal(y, indices.to(x.dtype).view(3, 1, top_k, 1))
    (both,) = argmax(f"top_k: {top_k} out_max_val: true")[0].forward([x])
    assert torch.equal(both[:, 0, :, 0], indices.to(x.dtype))
    assert torch.equal(both[:, 1, :, 0], values)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("top_k", [1, 2])
def test_along_an_axis(axis, top_k, layout):
    x = random_input(SHAPE, layout)
    values, indices = x.topk(top_k, axis)
    assert torch.equal(argmax(f"axis: {axis} top_k: {top_k}")[0].forward([x])[0], indices.to(x.dtype))
    assert torch.equal(argmax(f"axis: {axis} top_k: {top_k} out_max_val: true")[0].forward([x])[0], values)


def test_of_equal_values_the_larger_number_comes_first():
    x = torch.tensor([[1.0, 3, 3, 2, 3, 0]])
    assert argmax("top_k: 4", (1, 6))[0].forward([x])[0].tolist() == [[[4, 2, 1, 3]]]
    assert argmax("axis: 1 top_k: 4", (1, 6))[0].forward([x])[0].tolist() == [[4, 2, 1, 3]]


def test_has_no_gradient():
    layer, _ = argmax()
    assert not layer.differentiable(0)
    assert layer.backward([torch.ones(3, 1, 1, 1)], [False]) == [None]


def test_no_items_give_no_rows():
    layer, (top,) = argmax("out_max_val: true", (0, 4))
    assert layer.forward([torch.zeros(0, 4)])[0].shape == top == (0, 2, 1)


@pytest.mark.parametrize(("fields", "most"), [("top_k: 41", 40), ("top_k: 0", 40), ("axis: 1 top_k: 5", 4)])
def test_top_k_has_to_fit(fields, most):
    with pytest.raises(NetError, match=f"top_k has to be from 1 to {most}"):
        argmax(fields)


def test_a_single_number_has_no_largest():
    with pytest.raises(NetError, match="the bottom needs an axis"):
        argmax("", ())
