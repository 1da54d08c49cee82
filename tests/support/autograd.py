"""Compares a layer with the same function under PyTorch's automatic differentiation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from mgcaffe.engine.layer import Layer
from tests.support.layerkit import forward_backward


def check_against_autograd(
    layer: Layer,
    bottoms: Sequence[torch.Tensor],
    function: Callable[..., torch.Tensor | tuple[torch.Tensor, ...]],
    *,
    tolerance: float = 1e-12,
) -> None:
    """Asserts that tops, bottom gradients and parameter gradients are those of `function`.

    Args:
        layer: made by the harness.
        bottoms: float64.
        function: from the bottoms and then the parameters to the tops.
    """
    leaves = [x.detach().clone().requires_grad_() for x in bottoms]
    values = [parameter.data.clone().requires_grad_() for parameter in layer.parameters]
    result = function(*leaves, *values)
    expected = result if isinstance(result, tuple) else (result,)
    generator = torch.Generator().manual_seed(11)
    top_diffs = [torch.randn(top.shape, generator=generator, dtype=top.dtype) for top in expected]
    torch.autograd.backward(expected, top_diffs)

    kept = [x.clone() for x in [*bottoms, *top_diffs]]
    tops, diffs = forward_backward(layer, bottoms, top_diffs)

    for before, after in zip(kept, [*bottoms, *top_diffs], strict=True):
        assert torch.equal(before, after), "a value was overwritten without leave"
    options = {"rtol": tolerance, "atol": tolerance}
    for top, right in zip(tops, expected, strict=True):
        torch.testing.assert_close(top, right.detach(), **options)
    for index, (diff, leaf, wanted) in enumerate(zip(diffs, leaves, layer.wants_bottom, strict=True)):
        if wanted:
            assert diff is not None, f"no gradient for bottom {index}"
            right = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
            torch.testing.assert_close(diff, right, **options)
        else:
            assert diff is None
    for parameter, value in zip(layer.parameters, values, strict=True):
        torch.testing.assert_close(parameter.dense_diff(), value.grad, **options)
