"""Convolution and its two gradients, over any number of spatial axes.

Shapes throughout: x (N, C, in...), weight (O, C / groups, k...), y and dy (N, O, out...), bias (O).
A deconvolution is the same three functions with the roles of x and y exchanged.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels import one_channel, onednn, pointwise, windows
from mgcaffe.engine.kernels.formats import dense, format_of, pixel_rows
from mgcaffe.engine.kernels.geometry import Geometry
from mgcaffe.engine.parameter import Parameter

_RANKS_OF_TORCH = (1, 2, 3)
_SMALL_IMAGE = 64
_MANY_CHANNELS = 128
_WORTH_A_CALL = 1 << 24
_VECTOR = 16


def forward(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, geometry: Geometry, relu: bool = False
) -> torch.Tensor:
    """y = x * weight + bias, and with `relu` max(y, 0) in the same pass over memory."""
    if geometry.rank == 0:
        return forward(x[..., None], weight[..., None], bias, _one_axis(geometry), relu).squeeze(-1)
    if pointwise.serves(x, geometry):
        return pointwise.forward(x, weight, bias, geometry, relu)
    if geometry.rank in _RANKS_OF_TORCH:
        suited = _suited(x)
        if relu and geometry.rank == 2 and weight.numel() * x.numel() >= _WORTH_A_CALL and onednn.serves(x):
            y, relu = onednn.convolution(suited, weight, bias, geometry, "relu"), False
        else:
            y = _torch_forward(suited, weight, bias, geometry)
        y = y.contiguous(memory_format=format_of(x))
    else:
        y = windows.forward(x, weight, geometry)
        if bias is not None:
            y += bias.view(-1, *[1] * geometry.rank)
    return y.clamp_(min=0) if relu else y


def _torch_forward(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, geometry: Geometry
) -> torch.Tensor:
    no_pad = [0] * geometry.rank
    walk = (geometry.stride, geometry.pad, geometry.dilation)
    return torch.convolution(x, weight, bias, *walk, False, no_pad, geometry.groups)


def backward_data(
    dy: torch.Tensor, weight: torch.Tensor, input_size: Sequence[int], geometry: Geometry
) -> torch.Tensor:
    """dx, where the input has the spatial size `input_size`."""
    if geometry.rank == 0:
        return backward_data(dy[..., None], weight[..., None], (1,), _one_axis(geometry)).squeeze(-1)
    if geometry.rank not in _RANKS_OF_TORCH:
        return windows.backward_data(dy, weight, input_size, geometry)
    if pointwise.serves(dy, geometry):
        return pointwise.backward_data(dy, weight, input_size, geometry)
    suited = _suited(dy)
    shape = (dy.shape[0], weight.shape[1] * geometry.groups, *input_size)
    x = torch.empty(shape, dtype=dy.dtype, device=dy.device, memory_format=format_of(suited))
    dx = _convolution_backward(suited, x, weight, geometry, [True, False, False])[0]
    return dx.contiguous(memory_format=format_of(dy))


def add_backward_weight(weight: Parameter, dy: torch.Tensor, x: torch.Tensor, geometry: Geometry) -> None:
    """Add the gradient of the weight to the parameter's, in place where that saves a tensor."""
    if pointwise.serves(x, geometry) and format_of(dy) == torch.channels_last:
        pointwise.add_backward_weight(weight.diff, dy, x, geometry, weight.beta())
    else:
        weight.accumulate(backward_weight(dy, x, weight.shape, geometry))


def backward_weight(dy: torch.Tensor, x: torch.Tensor, weight_shape: Sequence[int], geometry: Geometry) -> torch.Tensor:
    """Return the gradient of the weight, which has the shape `weight_shape`."""
    if geometry.rank == 0:
        shape = (*weight_shape, 1)
        return backward_weight(dy[..., None], x[..., None], shape, _one_axis(geometry)).squeeze(-1)
    if geometry.rank not in _RANKS_OF_TORCH:
        return windows.backward_weight(dy, x, weight_shape, geometry)
    if one_channel.serves(dy, x, geometry):
        return one_channel.backward_weight(dy, x, geometry)
    weight = torch.empty(tuple(weight_shape), dtype=dy.dtype, device=dy.device)
    gradients = _convolution_backward(dense(dy), dense(x), weight, geometry, [False, True, False])
    return gradients[1]


def backward_bias(dy: torch.Tensor) -> torch.Tensor:
    """Return the gradient of the bias: dy summed over all axes but the channels."""
    channels = dy.shape[1]
    if dy.is_cpu and channels % _VECTOR and format_of(dy) == torch.channels_last and dy.numel() > 0:
        # A plain sum is not vectorised over such channels.
        rows = pixel_rows(dy)
        return torch.mv(rows.t(), rows.new_ones(rows.shape[0]))
    return dy.sum(dim=[axis for axis in range(dy.dim()) if axis != 1])


def _suited(x: torch.Tensor) -> torch.Tensor:
    """x without gaps, in the format in which filters larger than a pixel run best.

    On a CPU small images with many channels favour the ordinary format by more than the conversion costs.
    """
    small = x.dim() == 4 and x.shape[2] * x.shape[3] <= _SMALL_IMAGE and x.shape[1] >= _MANY_CHANNELS
    return x.contiguous() if small and x.is_cpu else dense(x)


def _one_axis(geometry: Geometry) -> Geometry:
    """No spatial axis is the same as one of size 1."""
    return Geometry((1,), (1,), (0,), (1,), geometry.groups)


def _convolution_backward(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, geometry: Geometry, wanted: list[bool]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    # Of x or weight, the one whose gradient is wanted lends its shape and format only.
    gradients: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = torch.ops.aten.convolution_backward(
        dy,
        x,
        weight,
        None,
        geometry.stride,
        geometry.pad,
        geometry.dilation,
        False,
        [0] * geometry.rank,
        geometry.groups,
        wanted,
    )
    return gradients
