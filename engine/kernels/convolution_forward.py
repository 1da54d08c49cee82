"""The ways to compute a convolution, y = x * weight + bias, and the rule that picks one where none was measured.

| candidate | what it does |
|---|---|
| aten | `torch.convolution` in the format of x |
| aten_converted | the same in the other format, with copies of x and y |
| onednn, onednn_converted | oneDNN's own operator, which never hands small batches to BLAS |
| product, product_mm | a filter of one pixel: a product over the pixels, by oneDNN or by PyTorch's `mm` |
| windows, windows_mm | one product over windows that are copied side by side |
| positions | a product for each position inside the filter, over any number of axes |
| winograd_... | filters of 3 or 5 rows with fewer multiplications and more rounding (`winograd_candidates.py`) |

None takes oneDNN's own ReLU along, which makes 0 of NaN.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import NamedTuple

import torch

from mgcaffe.engine.kernels import linear_ways, onednn, pointwise, processor, unfolded, windows, winograd_candidates
from mgcaffe.engine.kernels.aten import convolve
from mgcaffe.engine.kernels.choice.operation import Candidate, Key, Operation
from mgcaffe.engine.kernels.elementwise import relu_
from mgcaffe.engine.kernels.formats import converted, dense, format_of, from_pixel_rows
from mgcaffe.engine.kernels.geometry import Geometry
from mgcaffe.engine.kernels.precision import is_narrow
from mgcaffe.engine.kernels.winograd_matrices import Size
from mgcaffe.engine.kernels.winograd_tiles import Tiles

RANKS_OF_TORCH = (1, 2, 3)
CACHED = 1 << 18
"""How many values of float32 the second-level cache is taken to hold."""
_MOST_ROWS_OF_MM = 8192
_MOST_ROWS_OF_MM_WITH_BIAS = 512


class Forward(NamedTuple):
    """What a convolution is computed from: y = x * weight + bias, and with `relu` max(y, 0).

    `kept`, if it is given, takes the transformed tiles of x for the weight's gradient, where there are few.
    """

    x: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor | None
    geometry: Geometry
    relu: bool
    kept: Tiles | None = None

    @property
    def out(self) -> tuple[int, ...]:
        """The spatial size of y."""
        return self.geometry.output_size(self.x.shape[2:])

    @property
    def values(self) -> int:
        """How many values y has."""
        return self.x.shape[0] * self.weight.shape[0] * math.prod(self.out)


def suits_conversion(x: torch.Tensor, weight: torch.Tensor, others: int) -> bool:
    """Return whether x should be converted to the ordinary format, by rule; the result has `others` values.

    On a CPU filters that are read from memory are read in less time in that format. That is worth two copies where they
    have more values than the images, and the second-level cache does not hold them. Time with copies over that without,
    forward and for the input's gradient, filters of 3x3, one core of an AMD EPYC (medians of 25 runs):

    | channels, image | 1 image | 8 images | 32 images |
    |---|---|---|---|
    | 512, 7x7 | 0.53, 0.40 | 0.83, 0.79 | 0.91, 0.91 |
    | 192 to 384, 7x7 | 0.80, 0.74 | 0.95, 0.98 | |
    | 384, 13x13 | 0.74, 0.83 | | |
    | 256, 14x14 | 0.83, 0.80 | | |
    | 128 to 192, 28x28; not taken | 1.07, 1.15 | | |
    """
    is_large = favours_ordinary(weight.numel(), x.numel() + others)
    return is_large and x.dim() == 4 and x.is_cpu and format_of(x) == torch.channels_last


def favours_ordinary(filters: int, images: int) -> bool:
    """Return whether a convolution reads its filters more than its images, given how many values they have."""
    return filters > max(CACHED, images)


def _rule(call: Forward) -> str:
    x, weight, _, geometry, _, _ = call
    if pointwise.suits(x, geometry):
        return "product_mm" if _suits_mm(call) else "product"
    if geometry.rank not in RANKS_OF_TORCH:
        return "positions"
    return "aten_converted" if suits_conversion(x, weight, call.values) else "aten"


def _suits_mm(call: Forward) -> bool:
    """Return whether PyTorch's own product takes less time than oneDNN's for a filter of one pixel, by rule.

    On an Intel Xeon (family 6, model 207), 64 to 2048 channels, it takes 0.2 to 0.8 of the time with up to 49 pixels,
    0.5 to 1.0 with 128 to 512, and 0.9 to 1.0 with up to 8192. With a bias, which oneDNN adds in the same pass, it
    takes 0.3 to 1.0 with up to 512 pixels, and 1.0 to 1.7 with more than 1500.
    """
    if not processor.is_intels() or call.x.dtype != torch.float32:
        return False
    rows = call.x.shape[0] * math.prod(call.out)
    return rows <= (_MOST_ROWS_OF_MM if call.bias is None else _MOST_ROWS_OF_MM_WITH_BIAS)


def _key(call: Forward) -> Key:
    x, weight, bias, geometry, relu, _ = call
    return x.shape, format_of(x), weight.shape, geometry, bias is not None, relu, x.dtype, x.device.type


def _aten(call: Forward, x: torch.Tensor) -> torch.Tensor:
    y = convolve(x, call.weight, call.bias, call.geometry)
    return _rectified(call, y.contiguous(memory_format=format_of(call.x)))


def _onednn(call: Forward, x: torch.Tensor) -> torch.Tensor:
    y = onednn.convolution(x, call.weight, call.bias, call.geometry)
    return _rectified(call, y.contiguous(memory_format=format_of(call.x)))


def _windows(call: Forward) -> torch.Tensor:
    rows, filters = unfolded.windows_below(call.x, call.out, call.geometry), unfolded.filter_rows(call.weight)
    y = onednn.linear(rows, filters, call.bias)
    return _rectified(call, from_pixel_rows(y, call.x.shape[0], *call.out))


def _windows_mm(call: Forward) -> torch.Tensor:
    rows, filters = unfolded.windows_below(call.x, call.out, call.geometry), unfolded.filter_rows(call.weight)
    y = linear_ways.product(rows, filters, call.bias)
    return _rectified(call, from_pixel_rows(y, call.x.shape[0], *call.out))


def _product(call: Forward) -> torch.Tensor:
    rows = pointwise.visited_rows(call.x, call.geometry)
    y = onednn.linear(rows, call.weight.flatten(1), call.bias)
    return _rectified(call, from_pixel_rows(y, call.x.shape[0], *call.out))


def _product_mm(call: Forward) -> torch.Tensor:
    rows = pointwise.visited_rows(call.x, call.geometry)
    y = linear_ways.product(rows, call.weight.flatten(1), call.bias)
    return _rectified(call, from_pixel_rows(y, call.x.shape[0], *call.out))


def _positions(call: Forward) -> torch.Tensor:
    y = windows.forward(call.x, call.weight, call.geometry)
    if call.bias is not None:
        y += call.bias.view(-1, *[1] * call.geometry.rank)
    return _rectified(call, y.contiguous(memory_format=format_of(call.x)))


def _seen(call: Forward) -> winograd_candidates.Seen:
    return call.x, call.weight.shape, call.out, call.geometry


def _winograd(call: Forward, way: ModuleType, size: Size) -> torch.Tensor:
    y: torch.Tensor = way.forward(call.x, call.weight, call.bias, call.geometry, size, call.relu, call.kept)
    return y


def _rectified(call: Forward, y: torch.Tensor) -> torch.Tensor:
    return relu_(y) if call.relu else y


def _runs_in_aten(call: Forward) -> bool:
    return call.geometry.rank in RANKS_OF_TORCH


def _runs_in_onednn(call: Forward) -> bool:
    return call.geometry.rank == 2 and onednn.serves(call.x)


def _can_convert(call: Forward) -> bool:
    return call.geometry.rank == 2 and max(call.x.numel(), call.values) <= unfolded.MAX_COPY


def _is_pointwise(call: Forward) -> bool:
    return pointwise.serves(call.x, call.geometry)


def _has_windows(call: Forward) -> bool:
    places = call.x.shape[0] * math.prod(call.out)
    # With one pixel they are a copy of it, which a product does without.
    return not _is_pointwise(call) and unfolded.serves(call.x, call.x.shape[1], places, call.geometry)


def _has_positions(call: Forward) -> bool:
    # It adds up in the type of x.
    return call.x.numel() <= unfolded.MAX_COPY and not is_narrow(call.x)


FORWARD = Operation(
    "convolution forward",
    [
        Candidate("aten", _runs_in_aten, lambda call: _aten(call, dense(call.x))),
        Candidate("aten_converted", _can_convert, lambda call: _aten(call, converted(call.x))),
        Candidate("onednn", _runs_in_onednn, lambda call: _onednn(call, dense(call.x))),
        Candidate(
            "onednn_converted",
            lambda call: _runs_in_onednn(call) and _can_convert(call),
            lambda call: _onednn(call, converted(call.x)),
        ),
        Candidate("product", lambda call: _is_pointwise(call) and onednn.serves(call.x), _product),
        Candidate("product_mm", _is_pointwise, _product_mm),
        Candidate("windows", lambda call: _has_windows(call) and onednn.serves(call.x), _windows),
        Candidate("windows_mm", _has_windows, _windows_mm),
        Candidate("positions", _has_positions, _positions),
        *winograd_candidates.candidates(_seen, _winograd),
    ],
    _rule,
    _key,
    ("x", "", "filters", "", "bias", "relu", "", "on"),
    miscomputed=lambda call: onednn.miscomputes(call.x, call.x.shape[2:], call.geometry),
)
