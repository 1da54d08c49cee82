"""Softmax: sums, big scores, axes."""

import pytest
import torch

from mgcaffe.engine.kernels.formats import format_of
from mgcaffe.errors import NetError
from tests.support.layerkit import make_layer
from tests.support.layouts import LAYOUTS, random_input

TEXT = 'name: "s" type: "Softmax" bottom: "x" top: "y" '


@pytest.mark.parametrize("layout", LAYOUTS)
def test_probabilities_add_up_to_one(layout):
    layer, _ = make_layer(TEXT, [(2, 10, 2, 3)])
    x = random_input((2, 10, 2, 3), layout)
    (y,) = layer.forward([x])
    torch.testing.assert_close(y.sum(1), torch.ones(2, 2, 3, dtype=torch.float64))
    torch.testing.assert_close(y, x.exp() / x.exp().sum(1, keepdim=True))


@pytest.mark.parametrize("overwrites", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_top_has_the_memory_format_of_the_bottom(layout, overwrites):
    layer, _ = make_layer(TEXT.replace('"y"', '"x"'), [(2, 10, 2, 3)])
    layer.may_overwrite_bottom = overwrites
    x = random_input((2, 10, 2, 3), layout)
    (y,) = layer.forward([x])
    assert format_of(y) == format_of(x)


def test_big_scores_do_not_overflow():
    layer, _ = make_layer(TEXT, [(1, 3)])
    (y,) = layer.forward([torch.tensor([[1e5, 1e5, -1e5]], dtype=torch.float32)])
    assert y.tolist() == [[0.5, 0.5, 0]]


def test_missing_axis_is_refused():
    with pytest.raises(NetError, match=r"softmax_param.axis 2 does not exist in a blob with 2 axes"):
        make_layer(TEXT + "softmax_param { axis: 2 }", [(1, 3)])
