"""ReLU: the gradient at zero, what it keeps, and writing over what it may write over."""

import pytest
import torch

from tests.support.layerkit import forward_backward, make_layer

PLAIN = 'name: "r" type: "ReLU" bottom: "x" top: "x"'
LEAKY = PLAIN + " relu_param { negative_slope: 0.01 }"


@pytest.mark.parametrize(("text", "slope"), [(PLAIN, 0.0), (LEAKY, 0.01)])
def test_gradient_at_zero_is_the_negative_slope(text, slope):
    layer, _ = make_layer(text, [(3,)])
    x = torch.tensor([-1.0, 0, 1], dtype=torch.float64)
    tops, diffs = forward_backward(layer, [x], [torch.ones(3, dtype=torch.float64)])
    assert tops[0].tolist() == pytest.approx([-slope, 0, 1], rel=1e-6)
    assert diffs[0].tolist() == pytest.approx([slope, slope, 1], rel=1e-6)


def test_keeps_its_top_only():
    layer, _ = make_layer(PLAIN, [(4,)])
    (y,) = layer.forward([torch.randn(4, dtype=torch.float64)])
    assert layer.saved is y
    assert (layer.keeps_bottoms, layer.keeps_tops) == (False, True)


def test_writes_over_what_it_may():
    layer, _ = make_layer(PLAIN, [(4,)])
    layer.may_overwrite_bottom, layer.may_overwrite_top_diff = True, [True]
    x, dy = torch.randn(4, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    assert layer.forward([x])[0].data_ptr() == x.data_ptr()
    assert layer.backward([dy], [True])[0].data_ptr() == dy.data_ptr()


def test_slope_below_zero_keeps_the_bottom():
    layer, _ = make_layer(PLAIN + " relu_param { negative_slope: -1 }", [(4,)])
    assert (layer.keeps_bottoms, layer.keeps_tops) == (True, False)
    layer.may_overwrite_bottom = True
    x = torch.tensor([-2.0, -1, 1, 2], dtype=torch.float64)
    assert layer.forward([x])[0].tolist() == [2, 1, 1, 2]
    assert x.tolist() == [-2, -1, 1, 2]


def test_nan_passes():
    layer, _ = make_layer(PLAIN, [(1,)])
    assert layer.forward([torch.tensor([float("nan")])])[0].isnan().all()
