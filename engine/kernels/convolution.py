"""Convolution and its two gradients, over any number of spatial axes.

Shapes throughout: x (N, C, in...), weight (O, C / groups, k...), y and dy (N, O, out...), bias (O).
A deconvolution is the same three functions with the roles of x and y exchanged. The ways to compute each stand in
`convolution_forward.py`, `convolution_data.py` and `convolution_weight.py`; `choices` says which is taken. Where x (or
dy) is of 16 bits the weight and the bias are rounded to them, and so is the result; what is added to a parameter's
gradient is added in that one's own type.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels import depthwise, winograd_tiles
from mgcaffe.engine.kernels.aten import convolution_backward
from mgcaffe.engine.kernels.choice.choices import RULES, Choices, add_rounded, compute
from mgcaffe.engine.kernels.convolution_data import BACKWARD_DATA, BackwardData
from mgcaffe.engine.kernels.convolution_forward import CACHED, FORWARD, Forward
from mgcaffe.engine.kernels.convolution_weight import BACKWARD_WEIGHT, BackwardWeight, skips_pixels
from mgcaffe.engine.kernels.formats import dense, format_of, pixel_rows
from mgcaffe.engine.kernels.geometry import Geometry
from mgcaffe.engine.kernels.precision import widened
from mgcaffe.engine.kernels.unfolded import add
from mgcaffe.engine.kernels.winograd_tiles import Tiles
from mgcaffe.engine.parameter import Parameter

_VECTOR = 16
_MANY_PIXELS = 8192


def forward(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    geometry: Geometry,
    relu: bool = False,
    choices: Choices = RULES,
    kept: Tiles | None = None,
) -> torch.Tensor:
    """y = x * weight + bias, and with `relu` max(y, 0).

    `kept`, if it is given, takes the transformed tiles of x for the weight's gradient, where there are few.
    """
    y: torch.Tensor
    weight, bias = weight.to(x.dtype), None if bias is None else bias.to(x.dtype)
    if geometry.rank == 0:
        y = compute(choices, FORWARD, Forward(x[..., None], weight[..., None], bias, _one_axis(geometry), relu))
        return y.squeeze(-1)
    y = compute(choices, FORWARD, Forward(x, weight, bias, geometry, relu, kept))
    return y


def backward_data(
    dy: torch.Tensor,
    weight: torch.Tensor,
    input_size: Sequence[int],
    geometry: Geometry,
    choices: Choices = RULES,
) -> torch.Tensor:
    """dx, where the input has the spatial size `input_size`."""
    dx: torch.Tensor
    weight = weight.to(dy.dtype)
    if geometry.rank == 0:
        call = BackwardData(dy[..., None], weight[..., None], (1,), _one_axis(geometry))
        dx = compute(choices, BACKWARD_DATA, call)
        return dx.squeeze(-1)
    dx = compute(choices, BACKWARD_DATA, BackwardData(dy, weight, tuple(input_size), geometry))
    return dx


def add_backward_weight(
    weight: Parameter,
    dy: torch.Tensor,
    x: torch.Tensor,
    geometry: Geometry,
    choices: Choices = RULES,
    kept: Tiles | None = None,
    bias: Parameter | None = None,
) -> None:
    """Add the gradient of the weight to the parameter's, in place where that saves a tensor.

    `kept` is what `forward` kept of x. `bias`, where `adds_bias` says so, gets its gradient from the same call. Both dy
    and x have one type; where the parameter has another, the gradient is rounded to it before it is added.
    """
    if geometry.rank == 0:
        total, dy, x, geometry = weight.diff[..., None], dy[..., None], x[..., None], _one_axis(geometry)
    else:
        total = weight.diff
    call = BackwardWeight(total, weight.beta(), dy, x, geometry, kept, bias)
    if bias is None:
        add_rounded(choices, BACKWARD_WEIGHT, call, x.dtype)
        return
    way = choices.candidate(BACKWARD_WEIGHT, call)
    assert way.name == depthwise.COLUMNS
    way.run(call)


def backward(
    weight: Parameter,
    dy: torch.Tensor,
    x: torch.Tensor,
    geometry: Geometry,
    choices: Choices = RULES,
    kept: Tiles | None = None,
    bias: Parameter | None = None,
) -> torch.Tensor:
    """Add the gradient of the weight to the parameter's, as `add_backward_weight`, and return dx.

    Where both are `convolution_backward`'s and all fits into the cache, so that calls take much of the time, it is
    called once: a step of cifar10_quick with a batch of one takes 0.95 of the time, with more images as long as before.
    So it is for filters that see one channel each, whose gradients take hardly longer than reading dy and x: 0.93 of
    the time for 3x3 over 8 images of 128 channels at 28x28.
    Where both are Winograd's over tiles of one size, dy is transformed once, with the same bits.
    """
    dx: torch.Tensor
    if not _may_be_one(weight, dy, x, geometry, choices):
        add_backward_weight(weight, dy, x, geometry, choices, kept, bias)
        return backward_data(dy, weight.data, x.shape[2:], geometry, choices)
    of_x = BackwardData(dy, weight.data, tuple(x.shape[2:]), geometry)
    of_weight = BackwardWeight(weight.diff, weight.beta(), dy, x, geometry, kept, bias)
    x_way, weight_way = choices.candidate(BACKWARD_DATA, of_x), choices.candidate(BACKWARD_WEIGHT, of_weight)
    assert bias is None or weight_way.name == depthwise.COLUMNS
    is_small = weight_way.name == "aten" and x.numel() + dy.numel() + weight.data.numel() <= CACHED
    is_depthwise = weight_way.name == depthwise.COLUMNS and depthwise.takes_whole_filter(x, geometry)
    if x_way.name == "aten" and (is_small or is_depthwise):
        wanted = [True, True, bias is not None]
        dx, gradient, sums = convolution_backward(dense(dy), dense(x), weight.data, geometry, wanted)
        add(weight.diff, gradient, of_weight.beta)
        if bias is not None:
            bias.accumulate(sums)
        return dx.contiguous(memory_format=format_of(dy))
    for size in winograd_tiles.SIZES:
        if x_way.name == weight_way.name == winograd_tiles.name(size):
            total, beta = of_weight.total, of_weight.beta
            return winograd_tiles.backward(total, beta, dy, x, weight.data, geometry, size, kept)
    weight_way.run(of_weight)
    dx = x_way.run(of_x)
    return dx


def _may_be_one(weight: Parameter, dy: torch.Tensor, x: torch.Tensor, geometry: Geometry, choices: Choices) -> bool:
    """Return whether the two gradients may come from one call, if their candidates are alike."""
    if choices.measures or not dy.is_cpu or geometry.rank == 0 or skips_pixels(x, geometry):
        return False
    return dy.dtype == weight.data.dtype == weight.diff.dtype and format_of(dy) == format_of(x)


def backward_weight(dy: torch.Tensor, x: torch.Tensor, weight_shape: Sequence[int], geometry: Geometry) -> torch.Tensor:
    """Return the gradient of the weight, which has the shape `weight_shape`."""
    weight = Parameter(tuple(weight_shape))
    weight.diff = dy.new_empty(weight.shape)
    add_backward_weight(weight, dy, x, geometry)
    return weight.diff


def adds_bias(
    bias: Parameter, weight: Parameter, dy: torch.Tensor, x: torch.Tensor, geometry: Geometry, choices: Choices
) -> bool:
    """Return whether the gradient of the weight is computed in a way that can add the bias's to it as well."""
    alike = dy.dtype == weight.diff.dtype == bias.diff.dtype
    if choices.measures or not alike or not depthwise.serves(dy, x, geometry):
        return False
    call = BackwardWeight(weight.diff, 0.0, dy, x, geometry)
    return choices.candidate(BACKWARD_WEIGHT, call).name == depthwise.COLUMNS


def add_backward_bias(bias: Parameter, dy: torch.Tensor) -> None:
    """Add the gradient of the bias to the parameter's: dy summed over all axes but the channels, in float32 or more."""
    dy = widened(dy)
    if format_of(dy) != torch.channels_last or dy.numel() == 0:
        bias.accumulate(dy.sum(dim=[axis for axis in range(dy.dim()) if axis != 1]))
        return
    rows = pixel_rows(dy)
    if dy.is_cpu and rows.shape[1] % _VECTOR and rows.shape[0] >= _MANY_PIXELS:
        # A plain sum is not vectorised over such channels.
        bias.accumulate(torch.mv(rows.t(), rows.new_ones(rows.shape[0])))
    else:
        bias.accumulate_sum(rows)


def _one_axis(geometry: Geometry) -> Geometry:
    """No spatial axis is the same as one of size 1."""
    return Geometry((1,), (1,), (0,), (1,), geometry.groups)
