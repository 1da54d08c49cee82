"""TanH at extreme values."""

import torch

from tests.support.layerkit import forward_backward, make_layer


def test_no_overflow():
    layer, _ = make_layer('name: "t" type: "TanH" bottom: "x" top: "y"', [(3,)])
    x = torch.tensor([-1e4, 0, 1e4], dtype=torch.float64)
    tops, diffs = forward_backward(layer, [x], [torch.ones_like(x)])
    assert tops[0].tolist() == [-1, 0, 1]
    assert diffs[0].tolist() == [0, 1, 0]
