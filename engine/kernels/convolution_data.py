"""The ways to compute a convolution's gradient for its input, and the rule that picks one where none was measured.

| candidate | what it does |
|---|---|
| aten | `convolution_backward` in the format of dy |
| aten_converted | the same in the other format, with copies of dy and dx |
| widened | filters that see one channel each, in 16 bits: aten in float32 |
| phases | the same with a dilation: a filter without one over the pixels of each phase (`phases.py`) |
| flipped, flipped_converted | stride 1: a forward convolution with filters turned round, by oneDNN |
| product, product_mm | a filter of one pixel: a product over the pixels, by oneDNN or by PyTorch's `mm` |
| folded, folded_mm | a product that gives each window's share of dx, then the sum of the shares |
| positions | a product for each position inside the filter, over any number of axes |
| winograd_... | filters of 3 or 5 rows with fewer multiplications and more rounding (`winograd_candidates.py`) |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

import torch

from mgcaffe.engine.kernels import onednn, phases, pointwise, processor, unfolded, windows, winograd_candidates
from mgcaffe.engine.kernels.aten import convolution_backward
from mgcaffe.engine.kernels.choice.operation import Candidate, Key, Operation
from mgcaffe.engine.kernels.convolution_forward import RANKS_OF_TORCH, suits_conversion
from mgcaffe.engine.kernels.formats import converted, dense, format_of, from_pixel_rows, pixel_rows
from mgcaffe.engine.kernels.geometry import Geometry
from mgcaffe.engine.kernels.precision import is_narrow, widened
from mgcaffe.engine.kernels.winograd_matrices import Size

Multiply = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class BackwardData(NamedTuple):
    """What the gradient dx of an input of spatial size `size` is computed from."""

    dy: torch.Tensor
    weight: torch.Tensor
    size: tuple[int, ...]
    geometry: Geometry

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of dx."""
        return (self.dy.shape[0], self.weight.shape[1] * self.geometry.groups, *self.size)


def _rule(call: BackwardData) -> str:
    if call.geometry.rank not in RANKS_OF_TORCH:
        return "positions"
    if pointwise.suits(call.dy, call.geometry):
        # On an Intel Xeon (model 207) `mm` takes 0.2 to 0.9 of the time with up to 200 pixels, else 0.6 to 1.05.
        return "product_mm" if processor.is_intels() and call.dy.dtype == torch.float32 else "product"
    # With a stride oneDNN has no fast kernel for it: 8 images of 256 channels at 28x28, stride 2, took 27 ms in bf16,
    # and 2.3 widened, there.
    if _can_widen(call) and max(call.geometry.stride) > 1:
        return "widened"
    if _has_phases(call) and phases.suits(call.dy, call.geometry):
        return phases.PHASES
    return "aten_converted" if suits_conversion(call.dy, call.weight, math.prod(call.shape)) else "aten"


def _key(call: BackwardData) -> Key:
    dy, weight, size, geometry = call
    return dy.shape, format_of(dy), weight.shape, size, geometry, dy.dtype, dy.device.type


def _aten(call: BackwardData, dy: torch.Tensor) -> torch.Tensor:
    # The input lends its shape and format only.
    x = torch.empty(call.shape, dtype=dy.dtype, device=dy.device, memory_format=format_of(dy))
    dx = convolution_backward(dy, x, call.weight, call.geometry, [True, False, False])[0]
    return dx.contiguous(memory_format=format_of(call.dy))


def _widened(call: BackwardData) -> torch.Tensor:
    wide = call._replace(dy=widened(call.dy), weight=widened(call.weight))
    return _aten(wide, dense(wide.dy)).to(call.dy.dtype)


def _phases(call: BackwardData) -> torch.Tensor:
    geometry, size = call.geometry, phases.whole(call.size, call.geometry)
    walk, out = phases.undilated(geometry), geometry.output_size(size)
    of_phase = tuple(pixels // step for pixels, step in zip(size, geometry.dilation, strict=True))
    dy = call.dy
    dx = torch.empty(call.shape, dtype=dy.dtype, device=dy.device, memory_format=torch.channels_last)
    for some in unfolded.some_images(dx):
        part = BackwardData(phases.split(dy[some], out, geometry), call.weight, of_phase, walk)
        phases.join(BACKWARD_DATA.by_rule(part).run(part), dx[some], geometry)
    return dx


def _flipped(call: BackwardData, dy: torch.Tensor) -> torch.Tensor:
    geometry = call.geometry
    axes = zip(geometry.kernel, geometry.pad, geometry.dilation, strict=True)
    pad = tuple(dilation * (kernel - 1) - pad for kernel, pad, dilation in axes)
    filters = call.weight.flip((2, 3)).transpose(0, 1).contiguous()
    dx = onednn.convolution(dy, filters, None, Geometry(geometry.kernel, (1, 1), pad, geometry.dilation))
    return dx.contiguous(memory_format=format_of(call.dy))


def _product(call: BackwardData, multiply: Multiply) -> torch.Tensor:
    batch, _, height, width = call.dy.shape
    visited = from_pixel_rows(multiply(pixel_rows(call.dy), call.weight.flatten(1).t()), batch, height, width)
    if call.geometry.stride == (1, 1):
        return visited
    dy = call.dy
    dx = torch.empty(call.shape, dtype=dy.dtype, device=dy.device, memory_format=torch.channels_last).zero_()
    pointwise.visited(dx, call.geometry).copy_(visited)
    return dx


def _folded(call: BackwardData, multiply: Multiply) -> torch.Tensor:
    # Not a view of the filters: oneDNN takes hundreds of times as long for some.
    filters = unfolded.filter_rows(call.weight).t().contiguous()
    shares = multiply(pixel_rows(call.dy), filters)
    return unfolded.fold(shares, call.shape, tuple(call.dy.shape[2:]), call.geometry)


def _positions(call: BackwardData) -> torch.Tensor:
    dx = windows.backward_data(call.dy, call.weight, call.size, call.geometry)
    return dx.contiguous(memory_format=format_of(call.dy))


def _seen(call: BackwardData) -> winograd_candidates.Seen:
    exchanged = (call.shape[1], call.dy.shape[1] // call.geometry.groups, *call.geometry.kernel)
    return call.dy, exchanged, call.size, call.geometry


def _seen_by_tiles(call: BackwardData) -> winograd_candidates.Seen:
    return call.dy, call.weight.shape, tuple(call.dy.shape[2:]), call.geometry


def _winograd(call: BackwardData, way: ModuleType, size: Size) -> torch.Tensor:
    dx: torch.Tensor = way.backward_data(call.dy, call.weight, call.geometry, size)
    return dx


def _mm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.mm(x, weight.t())


def _runs_in_aten(call: BackwardData) -> bool:
    return call.geometry.rank in RANKS_OF_TORCH


def _can_convert(call: BackwardData) -> bool:
    return call.geometry.rank == 2 and max(call.dy.numel(), math.prod(call.shape)) <= unfolded.MAX_COPY


def _can_widen(call: BackwardData) -> bool:
    is_depthwise = call.geometry.groups == call.dy.shape[1] > 1
    return call.dy.is_cpu and is_narrow(call.dy) and is_depthwise and call.geometry.rank in RANKS_OF_TORCH


def _has_phases(call: BackwardData) -> bool:
    return phases.serves(call.dy, call.shape[1], call.geometry)


def _can_flip(call: BackwardData) -> bool:
    geometry = call.geometry
    if geometry.stride != (1, 1) or geometry.groups != 1 or not onednn.serves(call.dy):
        return False
    return _pads_inside(geometry)


def _pads_inside(geometry: Geometry) -> bool:
    """Return whether a forward convolution by the filters turned round has no negative pads."""
    axes = zip(geometry.kernel, geometry.pad, geometry.dilation, strict=True)
    return all(pad <= dilation * (kernel - 1) for kernel, pad, dilation in axes)


def _is_pointwise(call: BackwardData) -> bool:
    return pointwise.serves(call.dy, call.geometry)


def _has_windows(call: BackwardData) -> bool:
    places = call.dy.shape[0] * math.prod(call.dy.shape[2:])
    if is_narrow(call.dy):  # the shares are added up in their type
        return False
    return not _is_pointwise(call) and unfolded.serves(call.dy, call.shape[1], places, call.geometry)


def _has_positions(call: BackwardData) -> bool:
    # It adds up in the type of dy.
    return math.prod(call.shape) <= unfolded.MAX_COPY and not is_narrow(call.dy)


BACKWARD_DATA = Operation(
    "convolution backward data",
    [
        Candidate("aten", _runs_in_aten, lambda call: _aten(call, dense(call.dy))),
        Candidate("aten_converted", _can_convert, lambda call: _aten(call, converted(call.dy))),
        Candidate("widened", _can_widen, _widened),
        Candidate(phases.PHASES, _has_phases, _phases),
        Candidate("flipped", _can_flip, lambda call: _flipped(call, dense(call.dy))),
        Candidate(
            "flipped_converted",
            lambda call: _can_flip(call) and _can_convert(call),
            lambda call: _flipped(call, converted(call.dy)),
        ),
        Candidate(
            "product",
            lambda call: _is_pointwise(call) and onednn.serves(call.dy),
            lambda call: _product(call, onednn.linear),
        ),
        Candidate("product_mm", _is_pointwise, lambda call: _product(call, _mm)),
        Candidate(
            "folded",
            lambda call: _has_windows(call) and onednn.serves(call.dy),
            lambda call: _folded(call, onednn.linear),
        ),
        Candidate("folded_mm", _has_windows, lambda call: _folded(call, _mm)),
        Candidate("positions", _has_positions, _positions),
        *winograd_candidates.candidates(_seen, _winograd, _seen_by_tiles),
    ],
    _rule,
    _key,
    ("dy", "", "filters", "input", "", "", "on"),
    miscomputed=lambda call: onednn.miscomputes(call.dy, call.size, call.geometry),
)
