"""Reshape: copied, inferred and inserted axes, and sizes that cannot be."""

import pytest

from mgcaffe.errors import NetError
from tests.support.autograd import check_against_autograd
from tests.support.layerkit import check_gradients, make_layer
from tests.support.layouts import LAYOUTS, random_input

SHAPE = (2, 3, 6, 5)


def dims(*sizes: int) -> str:
    return "shape { " + " ".join(f"dim: {size}" for size in sizes) + " }"


def reshape(fields: str, shape: tuple[int, ...] = SHAPE):
    return make_layer(f'name: "r" type: "Reshape" bottom: "x" top: "y" reshape_param {{ {fields} }}', [shape])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (dims(0, -1, 1, 1), (2, 90, 1, 1)),
        (dims(0, 0, 0, 0), SHAPE),
        (dims(0, 3, 10, -1), (2, 3, 10, 3)),
        (dims(9, 2) + " axis: 1 num_axes: 2", (2, 9, 2, 5)),
        (dims(-1, 10) + " axis: 1", (2, 9, 10)),
        (dims(1, 1) + " axis: 0 num_axes: 0", (1, 1, *SHAPE)),
        (dims(1) + " axis: 2 num_axes: 0", (2, 3, 1, 6, 5)),
        (dims(1, 1) + " axis: -1 num_axes: 0", (*SHAPE, 1, 1)),
        (dims(-1) + " axis: 1 num_axes: 2", (2, 18, 5)),
        (dims(-1) + " axis: -3 num_axes: 2", (2, 3, 30)),
        (dims(0, -1) + " axis: 1 num_axes: 2", (2, 3, 6, 5)),
    ],
)
def test_replaces_axes(fields, expected, layout):
    layer, tops = reshape(fields)
    assert tops == [expected]
    check_against_autograd(layer, [random_input(SHAPE, layout)], lambda x: x.reshape(expected))


def test_follows_a_new_batch_size():
    layer, _ = reshape(dims(0, -1))
    layer.forward([random_input(SHAPE)])
    assert layer.reshape([(7, 3, 6, 5)]) == [(7, 90)]
    check_against_autograd(layer, [random_input((7, 3, 6, 5))], lambda x: x.reshape(7, 90))


def test_top_is_a_view():
    layer, _ = reshape(dims(0, -1))
    x = random_input(SHAPE)
    assert layer.forward([x])[0].data_ptr() == x.data_ptr()
    assert not layer.in_place


def test_gradient_agrees_with_differences():
    check_gradients(reshape(dims(3, -1), (2, 3, 2))[0], [random_input((2, 3, 2))])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (dims(-1, -1), "-1 stands more than once"),
        (dims(7, -1), "the 180 values of a bottom .* cannot be shared out evenly: the other sizes make 7"),
        (dims(2, 3), r"has 180 values, shape \(2, 3\) has 6"),
        (dims(-2), "a size has to be -1 or more, not -2"),
        (dims(0) + " axis: 4", "size 0 is 0, but the bottom's shape .* has no axis 4"),
        (dims(1) + " axis: 5", "axis 5 does not exist"),
        (dims(1) + " axis: 2 num_axes: 3", "num_axes 3 from axis 2 on go beyond the 4 axes"),
        (dims(1) + " num_axes: -2", "num_axes has to be -1 or more"),
        (dims(0, -1) + " pixelshuffler: 2", "pixelshuffler is a field of another Caffe"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(fields, message):
    with pytest.raises(NetError, match=message):
        reshape(fields)
