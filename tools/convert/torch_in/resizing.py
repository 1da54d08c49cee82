"""Images made larger or smaller: repeated pixels, interpolation, and means over windows of different sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from mgcaffe.tools.convert.importing.axes import check_size
from mgcaffe.tools.convert.importing.resizing import interpolated, resampled
from mgcaffe.tools.convert.importing.values import Result, Value
from mgcaffe.tools.convert.torch_in.operation import Operation

_ROWS_AT_ONCE = 256


def upsample(op: Operation) -> Value:
    """upsample_nearest, linear, bilinear, bicubic, trilinear: InnerProduct along each axis; between corners Interp.

    Pixels that are repeated by whole factors are a Deconvolution with ones.
    """
    x = op.blob()
    if op.name == "upsample_bilinear2d" and op["align_corners"]:
        return interpolated(op, x, op.shape[2:])
    return resampled(op, x, weights(op))


def weights(op: Operation) -> list[torch.Tensor]:
    """Return for each spatial axis the weights, new size x size, by which an operator makes new pixels of pixels.

    Those of one pixel add up to 1, so along an axis they are what the operator makes of images that are 1 in one row
    and stay two pixels wide (of images of one column PyTorch 2.13 makes something else with `antialias`), in float32,
    since rounding may decide which pixel is the nearest.
    """
    x, function = op.blob(), op.node.target
    assert callable(function)
    if 0 in op.shape:
        op.refuse(f"its result has shape {op.shape}, which no blob can have")
    found = []
    for place, size in enumerate(x.shape[2:]):
        check_size(op, op.shape[2 + place], size)
        alone, whole = [1] * (len(x.shape) - 2), [2] * (len(x.shape) - 2)
        alone[place] = whole[place] = size
        given: dict[Any, Any] = dict(op.arguments)
        for name, neutral in (("output_size", 2), ("scale_factors", 1.0)):
            if given.get(name) is not None:
                given[name] = [each if axis == place else neutral for axis, each in enumerate(given[name])]
        columns = []
        for some in torch.eye(size).split(_ROWS_AT_ONCE):
            images = some.view(1, -1, *alone).expand(1, -1, *whole).contiguous()
            made = function(**{**given, next(iter(op.arguments)): images})[0].movedim(1 + place, 1)
            columns.append(made.reshape(*made.shape[:2], -1)[:, :, 0])
        found.append(torch.cat(columns).T.contiguous())
    return found


OPERATORS: Mapping[str, Callable[[Operation], Result]] = dict.fromkeys(
    [
        *(f"{start}{axes}d" for start in ("upsample_nearest", "_upsample_nearest_exact") for axes in (1, 2, 3)),
        "upsample_linear1d",
        "upsample_bilinear2d",
        "upsample_trilinear3d",
        "upsample_bicubic2d",
        "_upsample_bilinear2d_aa",
        "_upsample_bicubic2d_aa",
    ],
    upsample,
)
