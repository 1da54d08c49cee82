"""Log: positive values, zero and below, bases that are none."""

import math

import pytest
import torch

from mgcaffe.errors import NetError
from tests.support.layerkit import check_gradients, forward_backward, make_layer
from tests.support.layouts import random_input


def log(fields: str, shape=(2, 3)):
    return make_layer(f'name: "l" type: "Log" bottom: "x" top: "y" log_param {{ {fields} }}', [shape])[0]


@pytest.mark.parametrize(
    "fields", ["", "base: 2", "base: 2 shift: 1", "base: 2 scale: 3", "base: 10 shift: 1 scale: 3"]
)
def test_gradient_agrees_with_differences(fields):
    check_gradients(log(fields), [random_input((2, 3)).exp_()])


@pytest.mark.parametrize(
    ("fields", "base", "shift", "scale"),
    [
        ("", math.e, 0, 1),
        ("base: 2", 2, 0, 1),
        ("base: 2 shift: 1", 2, 1, 1),
        ("base: 2 scale: 3", 2, 0, 3),
        ("base: 2 shift: 1 scale: 3", 2, 1, 3),
    ],
)
def test_value(fields, base, shift, scale):
    x = random_input((2, 3)).exp_()
    torch.testing.assert_close(log(fields).forward([x])[0], torch.log(shift + scale * x) / math.log(base))


def test_zero_and_below_give_what_arithmetic_gives():
    (y,), (dx,) = forward_backward(log("", (2,)), [torch.tensor([0.0, -1])], [torch.ones(2)])
    assert y[0] == -math.inf
    assert math.isnan(y[1])
    assert dx.tolist() == [math.inf, -1]


@pytest.mark.parametrize("base", ["0", "1", "-2", "inf"])
def test_base_has_to_be_one_of_a_logarithm(base):
    with pytest.raises(NetError, match="base has to be above 0 and not 1, or -1 for e, not"):
        log(f"base: {base}")
