"""Layers that make images larger or smaller: repeated pixels, interpolation, weighted sums of rows and columns."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.tools.convert.importing.axes import multiplied
from mgcaffe.tools.convert.importing.filters import once
from mgcaffe.tools.convert.importing.operation import Operation
from mgcaffe.tools.convert.importing.values import Constant, Value


def repeated(op: Operation, x: Value, factors: Sequence[int]) -> Value:
    """Repeat each pixel of (N, C, ...) so often along each axis: a Deconvolution with ones, which are not trained."""
    channels = x.shape[1]
    param = {"num_output": channels, "group": channels, "bias_term": False}
    windows = {"kernel_size": once(factors), "stride": once(factors)}
    ones = Constant(torch.ones(channels, 1, *factors))
    return op.layer("Deconvolution", [x], blobs=[ones], convolution_param={**param, **windows})


def interpolated(op: Operation, x: Value, size: Sequence[int]) -> Value:
    """Interpolate (N, C, H, W) to another size with corners that stay corners: Interp."""
    return op.layer("Interp", [x], interp_param={"height": size[0], "width": size[1]})


def resampled(op: Operation, x: Value, matrices: Sequence[torch.Tensor]) -> Value:
    """Make each new pixel a weighted sum of pixels, along one axis after the other.

    Pixels that are repeated by whole factors are a Deconvolution; else each axis is an InnerProduct, not trained.

    Args:
        op: the operator; its shape is that of the result.
        x: (N, C, ...).
        matrices: for each spatial axis the weights, new size x size.
    """
    factors = [max(1, len(matrix) // matrix.shape[1]) for matrix in matrices]
    if all(torch.equal(matrix, _repeating(matrix, factor)) for matrix, factor in zip(matrices, factors, strict=True)):
        return x if set(factors) == {1} else repeated(op, x, factors)
    held = [matrix.float() for matrix in matrices]
    op.matrices = [matrix.double() for matrix in held]
    for axis, matrix in reversed([*enumerate(held, start=2)]):
        if len(matrix) == matrix.shape[1] and torch.equal(matrix, torch.eye(len(matrix))):
            continue
        x = multiplied(op, x, axis, matrix, f"axis{axis}")
    return x


def _repeating(like: torch.Tensor, factor: int) -> torch.Tensor:
    """Return the matrix that repeats each pixel so often."""
    return torch.eye(like.shape[1], dtype=like.dtype).repeat_interleave(factor, 0)


def weighted_sums(x: torch.Tensor, matrices: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the new pixels that matrices, as for `resampled`, make of x, (N, C, ...)."""
    for axis, matrix in enumerate(matrices, start=2):
        x = (x.transpose(axis, -1) @ matrix.T).transpose(axis, -1)
    return x
