"""Convolution over any number of spatial axes, one product for each position inside the filter.

The general way for the axis counts that `torch.convolution` lacks. For every filter position p, the input pixels
that p meets form a strided view of the padded input; the result is the sum over p of that view times W[..., p].
Nothing is copied but the padding. `columns` does copy these views, one below the other, for who wants to see them.
Shapes: x (N, C, in...), weight (O, C / groups, k...), y (N, O, out...).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from mgcaffe.engine.kernels.geometry import Geometry


def forward(x: torch.Tensor, weight: torch.Tensor, geometry: Geometry) -> torch.Tensor:
    """Return the convolution of x with weight."""
    out = geometry.output_size(x.shape[2:])
    padded = _split_groups(torch.constant_pad_nd(x, _padding(geometry)), geometry.groups)
    filters = weight.reshape(geometry.groups, -1, *weight.shape[1:])
    y = x.new_zeros(x.shape[0], geometry.groups, filters.shape[1], *out)
    for point, window in _windows(geometry, out):
        y += torch.einsum("ngc...,goc->ngo...", padded[window], filters[point])
    return y.flatten(1, 2)


def backward_data(
    dy: torch.Tensor, weight: torch.Tensor, input_size: Sequence[int], geometry: Geometry
) -> torch.Tensor:
    """Return the gradient of the convolution with respect to its input, of spatial size `input_size`."""
    padded_size = [size + 2 * pad for size, pad in zip(input_size, geometry.pad, strict=True)]
    dy = _split_groups(dy, geometry.groups)
    filters = weight.reshape(geometry.groups, -1, *weight.shape[1:])
    padded = dy.new_zeros(dy.shape[0], geometry.groups, weight.shape[1], *padded_size)
    for point, window in _windows(geometry, dy.shape[3:]):
        padded[window] += torch.einsum("ngo...,goc->ngc...", dy, filters[point])
    return padded[_inside(input_size, geometry)].flatten(1, 2)


def backward_weight(dy: torch.Tensor, x: torch.Tensor, weight_shape: Sequence[int], geometry: Geometry) -> torch.Tensor:
    """Return the gradient of the convolution with respect to its weight."""
    padded = _split_groups(torch.constant_pad_nd(x, _padding(geometry)), geometry.groups)
    split = _split_groups(dy, geometry.groups)
    gradient = dy.new_empty(geometry.groups, weight_shape[0] // geometry.groups, *weight_shape[1:])
    for point, window in _windows(geometry, dy.shape[2:]):
        views = split.flatten(3), padded[window].flatten(3)
        gradient[point] = torch.einsum("ngop,ngcp->goc", *views)
    return gradient.flatten(0, 1)


def columns(x: torch.Tensor, geometry: Geometry) -> torch.Tensor:
    """Return the pixels that each point of the filter meets: x (N, in...) as (N, points, out...)."""
    out = geometry.output_size(x.shape[1:])
    padded = torch.constant_pad_nd(x, _padding(geometry))
    return torch.stack([padded[window] for _, window in _windows(geometry, out)], 1)


def add_columns(columns: torch.Tensor, input_size: Sequence[int], geometry: Geometry) -> torch.Tensor:
    """Return the adjoint of `columns`: each pixel of (N, in...) gets the sum of where it was met."""
    padded_size = [size + 2 * pad for size, pad in zip(input_size, geometry.pad, strict=True)]
    padded = columns.new_zeros(columns.shape[0], *padded_size)
    for number, (_, window) in enumerate(_windows(geometry, columns.shape[2:])):
        padded[window] += columns[:, number]
    return padded[_inside(input_size, geometry)]


def _padding(geometry: Geometry) -> list[int]:
    """Return the amounts in the order of `torch.constant_pad_nd`: last axis first."""
    return [amount for pad in reversed(geometry.pad) for amount in (pad, pad)]


def _inside(input_size: Sequence[int], geometry: Geometry) -> tuple[Any, ...]:
    """Return the index of the input in its padded form."""
    return (..., *(slice(pad, pad + size) for size, pad in zip(input_size, geometry.pad, strict=True)))


def _split_groups(x: torch.Tensor, groups: int) -> torch.Tensor:
    split: torch.Tensor = x.unflatten(1, (groups, -1))
    return split


def _windows(geometry: Geometry, out: Sequence[int]) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Return the indices of each position inside the filter, and of the padded pixels that it meets."""
    for position in itertools.product(*(range(size) for size in geometry.kernel)):
        axes = zip(position, geometry.dilation, geometry.stride, out, strict=True)
        spans = (
            slice(offset * dilation, offset * dilation + stride * (count - 1) + 1, stride)
            for offset, dilation, stride, count in axes
        )
        yield (..., *position), (..., *spans)
