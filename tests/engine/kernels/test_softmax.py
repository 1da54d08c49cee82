"""Softmax and its gradient against the formula, in both memory formats, with few channels and with many."""

import pytest
import torch

from mgcaffe.engine.kernels.formats import format_of
from mgcaffe.engine.kernels.softmax import softmax, softmax_backward
from tests.support.layouts import LAYOUTS, random_input


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("channels", [1, 3, 15, 16, 40])
def test_values_and_gradients_are_those_of_the_formula(channels, axis, layout):
    x = random_input((2, channels, 5, 3), layout, seed=1).mul_(9)
    y = softmax(x, axis)
    expected = x.exp() / x.exp().sum(axis, keepdim=True)
    torch.testing.assert_close(y, expected)
    assert format_of(y) == format_of(x)
    for other in LAYOUTS:
        dy = random_input(x.shape, other, seed=2)
        dx = softmax_backward(dy, y, axis)
        torch.testing.assert_close(dx, expected * (dy - (expected * dy).sum(axis, keepdim=True)))


@pytest.mark.parametrize("channels", [3, 40])
def test_scores_in_a_view_with_gaps_and_large_ones(channels):
    x = random_input((4, channels, 5, 6), "channels_last").mul_(1e4)
    torch.testing.assert_close(softmax(x[::2, :, :, ::2], 1), torch.softmax(x[::2, :, :, ::2].contiguous(), 1))


def test_a_matrix_has_its_rows_already():
    x = random_input((4, 20), seed=3)
    torch.testing.assert_close(softmax(x, 1), torch.softmax(x, 1), rtol=0, atol=0)
