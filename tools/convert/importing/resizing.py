"""Layers that make images larger or smaller: repeated pixels, interpolation."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.tools.convert.importing.filters import once
from mgcaffe.tools.convert.importing.operation import Operation
from mgcaffe.tools.convert.importing.values import Constant, Value


def repeated(op: Operation, x: Value, factors: Sequence[int]) -> Value:
    """Repeat each pixel of (N, C, H, W) so often along H and W: a Deconvolution with ones, which are not trained."""
    channels = x.shape[1]
    param = {"num_output": channels, "group": channels, "bias_term": False}
    windows = {"kernel_size": once(factors), "stride": once(factors)}
    ones = Constant(torch.ones(channels, 1, *factors))
    return op.layer("Deconvolution", [x], blobs=[ones], convolution_param={**param, **windows})


def interpolated(op: Operation, x: Value, size: Sequence[int]) -> Value:
    """Interpolate (N, C, H, W) to another size with corners that stay corners: Interp."""
    return op.layer("Interp", [x], interp_param={"height": size[0], "width": size[1]})
