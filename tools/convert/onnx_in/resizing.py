"""Resize and Upsample: nearest pixels, linear and cubic interpolation.

A pixel of the result is a sum of pixels by weights that depend on the axis alone: rows of one matrix for each axis.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from mgcaffe.tools.convert.importing.axes import check_size
from mgcaffe.tools.convert.importing.resizing import interpolated, resampled
from mgcaffe.tools.convert.importing.values import Value
from mgcaffe.tools.convert.onnx_in.operation import LARGEST, Operation, Table


@dataclass(frozen=True)
class _Way:
    """How an operator finds pixels.

    Attributes:
        mode: nearest, linear or cubic.
        coordinates: where a pixel of the result lies in the image.
        nearest: how that is rounded; `simple`, as before version 11: down, or up where the result is smaller.
        a: the factor of cubic weights.
        exclude_outside: weights of pixels outside of the image are left out, else the pixels at its edge are repeated.
    """

    mode: str
    coordinates: str = "asymmetric"
    nearest: str = "simple"
    a: float = -0.75
    exclude_outside: bool = False


def upsample(op: Operation) -> Value:
    """As Resize."""
    x = op.blob()
    return _resized(op, x, *_sizes(op, x, _scales(op, 1, x), None), _Way(op.word("mode", "nearest")))


def resize(op: Operation) -> Value:
    """Deconvolution with ones for pixels repeated; Interp between corners; else InnerProduct along each axis, fixed."""
    x = op.blob()
    mode = op.word("mode", "nearest")
    if op.opset == 10:
        scales, sizes, way = _scales(op, 1, x), None, _Way(mode)
    else:
        scales, sizes = _scales(op, 2, x), op.numbers(3, "sizes")
        way = _Way(
            mode,
            op.word("coordinate_transformation_mode", "half_pixel"),
            op.word("nearest_mode", "round_prefer_floor"),
            op.real("cubic_coeff_a", -0.75),
            bool(op.integer("exclude_outside", 0)),
        )
    if op.integer("antialias", 0) or op.word("keep_aspect_ratio_policy", "stretch") != "stretch":
        op.refuse("it has antialias or keeps the aspect ratio, which no layer does")
    return _resized(op, x, *_sizes(op, x, scales, sizes), way)


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


def _sizes(
    op: Operation, x: Value, scales: list[float] | None, sizes: list[int] | None
) -> tuple[tuple[int, ...], list[float]]:
    """Return the shape of the result, and how many times as large it is along each axis."""
    rank = len(x.shape)
    given = op.integers("axes")
    axes = list(range(rank)) if given is None else op.axes(given, rank)
    if (scales is None) == (not sizes) or len(scales or sizes or ()) != len(axes):
        op.refuse(f"it has not one of scales and sizes, for each of {len(axes)} axes")
    shape, factors = list(x.shape), [1.0] * rank
    for place, axis in enumerate(axes):
        shape[axis] = math.floor(shape[axis] * scales[place]) if scales else (sizes or ())[place]
        factors[axis] = scales[place] if scales else shape[axis] / x.shape[axis]
    op.check_shape(tuple(shape))
    return tuple(shape), factors


def _resized(op: Operation, x: Value, shape: tuple[int, ...], factors: list[float], way: _Way) -> Value:
    if shape == x.shape:  # also by a factor of 1.1: ONNX Runtime computes nothing then
        return x
    if len(x.shape) < 3 or shape[:2] != x.shape[:2]:
        op.refuse(f"it makes {shape} of {x.shape}; only the axes of (N, C, ...) behind the second can be resized")
    op.shape = shape
    if way.mode == "linear" and way.coordinates == "align_corners" and len(shape) == 4:
        return interpolated(op, x, shape[2:])
    spatial = zip(x.shape[2:], shape[2:], factors[2:], strict=True)
    return resampled(op, x, [_weights(op, way, *axis) for axis in spatial])


def _weights(op: Operation, way: _Way, size: int, new_size: int, factor: float) -> torch.Tensor:
    """Return the weights of an axis, new size x size, by ONNX's formulas."""
    check_size(op, new_size, size)
    places = _places(op, way.coordinates, size, new_size, factor).double()
    if way.mode == "nearest":
        first = {
            "simple": places.ceil() if factor < 1 else places.floor(),
            "floor": places.floor(),
            "ceil": places.ceil(),
            "round_prefer_floor": (places - 0.5).ceil(),
            "round_prefer_ceil": (places + 0.5).floor(),
        }.get(way.nearest)
        if first is None:
            op.refuse(f"its nearest_mode is '{way.nearest}', which does not exist")
        near = torch.ones(new_size, 1, dtype=torch.float64)
    elif way.mode == "linear":
        places = places.clamp(0, size - 1)
        first = places.floor()
        near = torch.stack([1 - (places - first), places - first], 1)
    elif way.mode == "cubic":
        first = places.floor() - 1
        distances = (places - first)[:, None] - torch.arange(4.0)
        near = _cubic(distances.abs(), way.a)
    else:
        op.refuse(f"its mode is '{way.mode}', which does not exist")
    pixels = first[:, None].long() + torch.arange(near.shape[1])
    if way.exclude_outside and way.mode == "cubic":
        near = near * ((pixels >= 0) & (pixels < size))
        near = near / near.sum(1, keepdim=True)
    matrix = torch.zeros(new_size, size, dtype=torch.float64)
    return matrix.scatter_add_(1, pixels.clamp(0, size - 1), near)


def _places(op: Operation, coordinates: str, size: int, new_size: int, factor: float) -> torch.Tensor:
    """Return where the new pixels lie in the image, in float32, as ONNX Runtime computes it before it rounds."""
    places = torch.arange(new_size, dtype=torch.float32)
    if factor == 1:
        return places
    by = torch.tensor(factor, dtype=torch.float32)  # a number would be multiplied by its reciprocal
    if coordinates == "asymmetric":
        return places / by
    if coordinates == "align_corners":
        return places * (size - 1) / max(1, new_size - 1)
    if coordinates == "tf_half_pixel_for_nn":
        return (places + 0.5) / by
    if coordinates == "half_pixel_symmetric":
        middle = size / 2
        return middle * (1 - new_size / (by * size)) + (places + 0.5) / by - 0.5
    if coordinates not in ("half_pixel", "pytorch_half_pixel"):
        op.refuse(f"it takes pixels by '{coordinates}', which no layer does")
    if coordinates == "pytorch_half_pixel" and new_size == 1:
        return torch.zeros_like(places)
    return (places + 0.5) / by - 0.5


def _cubic(distances: torch.Tensor, a: float) -> torch.Tensor:
    """Return the weights of pixels that are so far away (Keys, Cubic Convolution Interpolation, 1981)."""
    near = ((a + 2) * distances - (a + 3)) * distances**2 + 1
    far = ((distances - 5) * distances + 8) * distances * a - 4 * a
    return torch.where(distances <= 1, near, torch.where(distances < 2, far, 0.0))


OPERATORS: Table = {"Upsample": upsample, "Resize": resize}
