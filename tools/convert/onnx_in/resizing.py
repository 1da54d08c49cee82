"""Resize and Upsample: nearest pixels by whole factors, and linear interpolation between corners."""

from __future__ import annotations

import math

import torch

from mgcaffe.tools.convert.importing.resizing import interpolated, repeated
from mgcaffe.tools.convert.importing.values import Value
from mgcaffe.tools.convert.onnx_in.operation import LARGEST, Operation, Table


def upsample(op: Operation) -> Value:
    """As Resize."""
    x = op.blob()
    sizes = _sizes(op, x, _scales(op, 1, x), None)
    return _resized(op, x, sizes, op.word("mode", "nearest"), "asymmetric", "floor")


def resize(op: Operation) -> Value:
    """Deconvolution with ones for nearest pixels; Interp for linear with align_corners."""
    x = op.blob()
    if op.opset == 10:
        scales, sizes, coordinates, nearest = _scales(op, 1, x), None, "asymmetric", "floor"
    else:
        scales, sizes = _scales(op, 2, x), op.numbers(3, "sizes")
        coordinates = op.word("coordinate_transformation_mode", "half_pixel")
        nearest = op.word("nearest_mode", "round_prefer_floor")
    if op.integer("antialias", 0) or op.word("keep_aspect_ratio_policy", "stretch") != "stretch":
        op.refuse("it has antialias or keeps the aspect ratio, which no layer does")
    return _resized(op, x, _sizes(op, x, scales, sizes), op.word("mode", "nearest"), coordinates, nearest)


def _scales(op: Operation, number: int, x: Value) -> list[float] | None:
    found = op.constant(number, "scales")
    if found is None or not found.tensor.numel():
        return None
    if not found.tensor.is_floating_point() or found.tensor.dim() != 1:
        op.refuse("its scales are no list of numbers")
    scales = [float(each) for each in found.tensor]
    if not all(0 < scale < LARGEST for scale in scales):
        op.refuse(f"its scales are {scales}")
    return scales


def _sizes(op: Operation, x: Value, scales: list[float] | None, sizes: list[int] | None) -> tuple[int, ...]:
    """Return the shape of the result."""
    rank = len(x.shape)
    given = op.integers("axes")
    axes = list(range(rank)) if given is None else op.axes(given, rank)
    if (scales is None) == (not sizes) or len(scales or sizes or ()) != len(axes):
        op.refuse(f"it has not one of scales and sizes, for each of {len(axes)} axes")
    shape = list(x.shape)
    for place, axis in enumerate(axes):
        shape[axis] = math.floor(shape[axis] * scales[place]) if scales else (sizes or ())[place]
    op.check_shape(tuple(shape))
    return tuple(shape)


def _resized(op: Operation, x: Value, shape: tuple[int, ...], mode: str, coordinates: str, nearest: str) -> Value:
    if shape == x.shape:
        return x
    if len(x.shape) != 4 or shape[:2] != x.shape[:2]:
        op.refuse(f"it makes {shape} of {x.shape}; only H and W of (N, C, H, W) can be resized")
    op.shape = shape
    if mode == "linear":
        if coordinates != "align_corners":
            op.refuse(f"it interpolates by '{coordinates}'; Interp keeps corners in place (align_corners)")
        return interpolated(op, x, shape[2:])
    factors = [size // own for size, own in zip(shape[2:], x.shape[2:], strict=True)]
    repeats = mode == "nearest" and all(
        factor * own == size and _is_repeated(own, factor, coordinates, nearest)
        for factor, own, size in zip(factors, x.shape[2:], shape[2:], strict=True)
    )
    if not repeats:
        op.refuse(
            f"it resizes {x.shape[2:]} to {shape[2:]} by mode '{mode}' with '{coordinates}' and '{nearest}'; layers"
            " repeat pixels by whole factors, or interpolate between corners"
        )
    return repeated(op, x, factors)


def _is_repeated(size: int, factor: int, coordinates: str, nearest: str) -> bool:
    """Return whether each pixel appears `factor` times, by ONNX's formulas."""
    if factor == 1 and coordinates in ("asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners"):
        return True
    places = torch.arange(size * factor, dtype=torch.float64)
    if coordinates == "asymmetric":
        places = places / factor
    elif coordinates == "half_pixel" or (coordinates == "pytorch_half_pixel" and size * factor > 1):
        places = (places + 0.5) / factor - 0.5
    else:
        return False
    rounded = {
        "floor": places.floor(),
        "ceil": places.ceil(),
        "round_prefer_floor": (places - 0.5).ceil(),
        "round_prefer_ceil": (places + 0.5).floor(),
    }.get(nearest)
    expected = torch.arange(size, dtype=torch.float64).repeat_interleave(factor)
    return rounded is not None and bool((rounded.clamp(0, size - 1) == expected).all())


OPERATORS: Table = {"Upsample": upsample, "Resize": resize}
