"""BNLL at extreme values."""

import torch

from tests.support.layerkit import forward_backward, make_layer


def test_extreme_values_neither_overflow_nor_lose_their_slope():
    layer, _ = make_layer('name: "b" type: "BNLL" bottom: "x" top: "y"', [(5,)])
    x = torch.tensor([-1e4, -30, 0, 45, 1e4], dtype=torch.float64)
    (y,), (dx,) = forward_backward(layer, [x], [torch.ones_like(x)])
    expected = [0, float(torch.exp(torch.tensor(-30.0, dtype=torch.float64))), 0.5, 1, 1]
    torch.testing.assert_close(y[[0, 3, 4]], torch.tensor([0, 45, 1e4], dtype=torch.float64))
    torch.testing.assert_close(dx, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=0)
