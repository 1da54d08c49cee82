"""ShuffleChannel: the fork's copying loop, in numpy."""

import numpy as np
import pytest
import torch

from mgcaffe.errors import NetError
from tests.support.layerkit import check_gradients, forward_backward, make_layer
from tests.support.layouts import LAYOUTS, random_input


def shuffle(fields: str, shape: tuple[int, ...]):
    text = f'name: "s" type: "ShuffleChannel" bottom: "x" top: "y" shuffle_channel_param {{ {fields} }}'
    return make_layer(text, [shape])[0]


def interleaved(x: np.ndarray, group: int) -> np.ndarray:
    """Channel i C / group + j goes to j group + i."""
    y, each = np.empty_like(x), x.shape[1] // group
    for i in range(group):
        for j in range(each):
            y[:, j * group + i] = x[:, i * each + j]
    return y


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("group", [1, 2, 3, 6])
@pytest.mark.parametrize("size", [(2, 6, 3, 4), (2, 6, 1, 1), (3, 6), (1, 6, 2)])
def test_agrees_with_the_definition(size, group, layout):
    layer = shuffle(f"group: {group}", size)
    x, dy = random_input(size, layout), random_input(size, layout, seed=6)
    (y,), (dx,) = forward_backward(layer, [x], [dy])
    np.testing.assert_array_equal(y.numpy(), interleaved(x.numpy(), group))
    np.testing.assert_array_equal(interleaved(dx.numpy(), group), dy.numpy())


def test_the_memory_format_is_kept():
    layer = shuffle("group: 2", (2, 8, 3, 3))
    x = random_input((2, 8, 3, 3), "channels_last")
    (y,), (dx,) = forward_backward(layer, [x], [x])
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert dx.is_contiguous(memory_format=torch.channels_last)


def test_gradient_agrees_with_differences():
    check_gradients(shuffle("group: 3", (2, 6, 2)), [random_input((2, 6, 2))])


@pytest.mark.parametrize(
    ("fields", "shape", "message"),
    [
        ("group: 4", (1, 6), "group 4 does not divide the 6 channels"),
        ("group: 0", (1, 6), "group 0 does not divide"),
        ("", (6,), "needs a channel axis"),
    ],
)
def test_wrong_groups_are_errors(fields, shape, message):
    with pytest.raises(NetError, match=message):
        shuffle(fields, shape)
