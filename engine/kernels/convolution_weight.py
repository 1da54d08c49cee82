"""The ways to add up a convolution's gradient for its filters, and the rule that picks one where none was measured.

| candidate | what it does |
|---|---|
| aten | `convolution_backward` in the formats of dy and x |
| aten_converted | the same in the other format, with copies of dy and x |
| product, product_mm | a filter of one pixel: a product over the pixels, by oneDNN, or by `mm` in place |
| product_exchanged, product_exchanged_mm | the same with its sides exchanged, the sum then transposed |
| images | a filter of one pixel: `convolution_backward` of pixels seen as many small images |
| windows | a product for each row of the filter over windows copied side by side, (l C, P) |
| windows_mm | one product over all of these windows, (k l C, P) |
| row_windows | image by image, by `mm` in place: a product for each row of the filter, windows copied along that row |
| across, across_mm | one product over windows copied across, (C k l, P); good where x has few channels |
| columns | filters that see one channel each: oneDNN's gradient, by groups of columns (`depthwise.py`) |
| phases | the same with a dilation: a filter without one over the pixels of each phase (`phases.py`) |
| positions | a product for each position inside the filter, over any number of axes |
| winograd_... | filters of 3 or 5 rows with fewer multiplications and more rounding (`winograd_candidates.py`) |
"""

from __future__ import annotations

import math
from dataclasses import replace
from types import ModuleType
from typing import NamedTuple

import torch

from mgcaffe.engine.kernels import (
    depthwise,
    linear_ways,
    onednn,
    phases,
    pointwise,
    processor,
    unfolded,
    windows,
    winograd_candidates,
)
from mgcaffe.engine.kernels.aten import convolution_backward
from mgcaffe.engine.kernels.choice.operation import Candidate, Key, Operation
from mgcaffe.engine.kernels.convolution_forward import CACHED, RANKS_OF_TORCH, suits_conversion
from mgcaffe.engine.kernels.formats import converted, dense, format_of, pixel_rows
from mgcaffe.engine.kernels.geometry import Geometry
from mgcaffe.engine.kernels.precision import is_narrow
from mgcaffe.engine.kernels.winograd_matrices import Size
from mgcaffe.engine.kernels.winograd_tiles import Tiles
from mgcaffe.engine.parameter import Parameter

_FEW_CHANNELS = 8
_FEW_ROWS = 2048
_MANY_ROWS = 4096
_WORTH_A_CALL = 1 << 23
_LONG_ROW = 128


class BackwardWeight(NamedTuple):
    """Total, the filters' gradient, becomes beta total + what x and dy give; beta 0 replaces what it held.

    `kept` holds the transformed tiles of x that the forward pass kept, if it did. `bias` is given to a candidate that
    adds the bias's gradient as well, where it is to do so.
    """

    total: torch.Tensor
    beta: float
    dy: torch.Tensor
    x: torch.Tensor
    geometry: Geometry
    kept: Tiles | None = None
    bias: Parameter | None = None

    @property
    def out(self) -> tuple[int, ...]:
        """The spatial size of dy."""
        return tuple(self.dy.shape[2:])

    @property
    def places(self) -> int:
        """How many pixels dy has, in all images."""
        return self.dy.shape[0] * math.prod(self.out)


def _rule(call: BackwardWeight) -> str:
    x, geometry = call.x, call.geometry
    is_avx2 = processor.ON_AVX2 and x.is_cpu
    if pointwise.suits(x, geometry) and format_of(call.dy) == torch.channels_last:
        # PyTorch's product of 16-bit numbers is as fast as oneDNN's, and needs no copy across.
        if is_narrow(x) or processor.FAST_MM:
            return "product_exchanged_mm" if _suits_exchange(call) else "product_mm"
        if call.places <= _FEW_ROWS:
            return "product"
        return "images" if _has_images(call) else "product_mm"
    if geometry.rank not in RANKS_OF_TORCH:
        return "positions"
    if _has_columns(call) and depthwise.suits(call.dy, x, geometry):
        return depthwise.COLUMNS
    if _has_phases(call) and phases.suits(call.dy, geometry):
        return phases.PHASES
    # oneDNN's own gradient cannot use its vectors on one channel, but a copy that leaves the cache costs more. Copy and
    # product took 0.48, 0.73, 0.91, 1.22 and 1.50 of its time in LeNet's first layer with 1, 8, 16, 32 and 64 images on
    # one core of an AMD EPYC with AVX2 (family 25, model 1), and 0.50, 1.19, 1.46, 1.70 and 1.84 on one with AVX-512
    # (family 26, model 2), where it took 0.90 with 4.
    grey = geometry.rank == 2 and x.shape[1] == 1
    is_cached = math.prod(geometry.kernel) * call.places <= (CACHED if is_avx2 else CACHED // 4)
    if grey and is_cached and onednn.serves(x) and _has_windows_across(call):
        return "across_mm"
    if is_avx2 and _has_row_windows(call) and _suits_row_windows(call):
        return "row_windows"
    reads_much = suits_conversion(x, call.total, call.dy.numel())
    return "windows" if reads_much and onednn.serves(x) and _has_windows(call) else "aten"


def _suits_exchange(call: BackwardWeight) -> bool:
    """Return whether `mm` takes less time with its sides exchanged, for a filter of one pixel, by rule.

    On an Intel Xeon (family 6, model 207) it takes 0.7 to 0.9 of the time over 25088 pixels from 64 channels to 256 and
    over 6272 from 128 to 512, 1.0 over 1568 from 256 to 1024, and 1.0 to 1.9 where channels do not grow.
    """
    is_worth_it = call.places >= _MANY_ROWS and call.dy.shape[1] >= 2 * call.x.shape[1]
    return is_worth_it and processor.is_intels() and call.x.dtype == torch.float32


def _suits_row_windows(call: BackwardWeight) -> bool:
    """Return whether each of its products is worth a call, and with a stride each copied row as well.

    Lines of a strided copy lie apart, so short rows are copied slowly: row_windows took 0.51 to 0.66 of aten's time
    with 192 to 1536 values a row (3x3 with a stride of 2), 1.06 with 96, and 1.51 and 1.98 in the first layers of
    AlexNet (33) and ResNet-50 (21), with 8 images on one core of an AMD EPYC (family 25, model 1).
    """
    row = call.total[0, :, 0].numel()
    if call.geometry.stride != (1, 1) and row < _LONG_ROW:
        return False
    return math.prod(call.out) * row * call.total.shape[0] // call.geometry.groups >= _WORTH_A_CALL


def _key(call: BackwardWeight) -> Key:
    x, dy = call.x, call.dy
    return x.shape, format_of(x), dy.shape, format_of(dy), call.geometry, x.dtype, x.device.type


def skips_pixels(x: torch.Tensor, geometry: Geometry) -> bool:
    """Return whether `convolution_backward` may see only those pixels of x that a filter of one pixel visits.

    With a stride and fewer than 8 channels, channels last, oneDNN 3.12 (of PyTorch 2.13) writes beyond its memory when
    it computes the filters' gradient on an AMD EPYC with AVX2: malloc finds its lists damaged later.
    """
    is_pixel = geometry.rank == 2 and geometry.kernel == (1, 1) and geometry.pad == (0, 0) and geometry.stride != (1, 1)
    return is_pixel and x.is_cpu and x.shape[1] < _FEW_CHANNELS


def _aten(call: BackwardWeight, dy: torch.Tensor, x: torch.Tensor) -> None:
    geometry = call.geometry
    if skips_pixels(x, geometry):
        x = pointwise.visited(x, geometry).contiguous(memory_format=format_of(x))
        geometry = replace(geometry, stride=(1, 1))
    if x.shape[1] == 1 and x.dim() == 4 and format_of(dy) == torch.channels_last:
        # One channel lies alike in both formats, but the strides of the ordinary one have oneDNN convert dy.
        x = x.squeeze(1).unsqueeze(-1).permute(0, 3, 1, 2)
    # The filters lend their shape only.
    weight = torch.empty_like(call.total, dtype=x.dtype, memory_format=format_of(x))  # or it would be copied
    gradient = convolution_backward(dy, x, weight, geometry, [False, True, False])[1]
    unfolded.add(call.total, gradient, call.beta)


def _product(call: BackwardWeight) -> None:
    rows = pointwise.visited_rows(call.x, call.geometry)
    gradient = onednn.linear(pixel_rows(call.dy).t(), rows.t())
    unfolded.add(call.total.view(gradient.shape), gradient, call.beta)


def _product_exchanged(call: BackwardWeight) -> None:
    rows = pointwise.visited_rows(call.x, call.geometry)
    gradient = onednn.linear(rows.t(), pixel_rows(call.dy).t()).t()
    unfolded.add(call.total.view(gradient.shape), gradient, call.beta)


def _product_exchanged_mm(call: BackwardWeight) -> None:
    gradient = torch.mm(pointwise.visited_rows(call.x, call.geometry).t(), pixel_rows(call.dy)).t()
    unfolded.add(call.total.view(gradient.shape), gradient, call.beta)


def _images(call: BackwardWeight) -> None:
    images = pointwise.count_images(call.places)
    rows = pixel_rows(call.dy), pointwise.visited_rows(call.x, call.geometry)
    dy, x = (pointwise.as_images(each, images) for each in rows)
    gradient = convolution_backward(dy, x, call.total, pointwise.PLAIN, [False, True, False])[1]
    unfolded.add(call.total, gradient, call.beta)


def _product_mm(call: BackwardWeight) -> None:
    rows = pointwise.visited_rows(call.x, call.geometry)
    total = call.total.view(call.total.shape[0], rows.shape[1])
    linear_ways.add_product(total, pixel_rows(call.dy), rows, call.beta)


def _windows(call: BackwardWeight) -> None:
    # One product takes 0.92 to 0.97 of the time, but needs memory for all windows, for oneDNN's copy of them and for
    # the whole gradient at once. In ResNet-50 this is the peak, which is 22 MiB lower so.
    left, (outputs, channels, _, columns) = pixel_rows(call.dy).t(), call.total.shape
    for row, seen in enumerate(unfolded.windows_by_row(call.x, call.out, call.geometry)):
        gradient = onednn.linear(left, seen.t()).view(outputs, columns, channels)
        unfolded.add(call.total[:, :, row], gradient.transpose(1, 2), call.beta)


def _windows_mm(call: BackwardWeight) -> None:
    rows = unfolded.windows_below(call.x, call.out, call.geometry)
    unfolded.add_filter_rows(call.total, torch.mm(pixel_rows(call.dy).t(), rows), call.beta)


def _row_windows(call: BackwardWeight) -> None:
    total = call.total.permute(0, 2, 3, 1)
    # A total that is channels last is added to as it lies.
    sums, beta = (total, call.beta) if total.is_contiguous() else (total.new_empty(total.shape), 0.0)
    groups = call.geometry.groups
    parts = sums.view(groups, -1, sums.shape[1], sums.shape[2] * sums.shape[3])
    x, dy = call.x.unflatten(1, (groups, -1)), call.dy.permute(0, 2, 3, 1).unflatten(3, (groups, -1))
    for image in range(x.shape[0]):
        for group in range(groups):
            left = dy[image, :, :, group].flatten(0, 1).t()
            for row, seen in enumerate(unfolded.row_windows(x[image, group], call.out, call.geometry)):
                parts[group, :, row].addmm_(left, seen, beta=beta)
        beta = 1.0
    if sums is not total:
        unfolded.add(total, sums, call.beta)


def _across(call: BackwardWeight) -> None:
    columns = unfolded.windows_across(call.x, call.out, call.geometry)
    gradient = onednn.linear(columns, pixel_rows(call.dy).t())
    unfolded.add(call.total, gradient.t().reshape(call.total.shape), call.beta)


def _across_mm(call: BackwardWeight) -> None:
    columns = unfolded.windows_across(call.x, call.out, call.geometry)
    gradient = torch.mm(columns, pixel_rows(call.dy))
    unfolded.add(call.total, gradient.t().reshape(call.total.shape), call.beta)


def _columns(call: BackwardWeight) -> None:
    depthwise.add_backward_weight(call.total, call.beta, call.dy, call.x, call.geometry, call.bias)


def _phases(call: BackwardWeight) -> None:
    geometry, size = call.geometry, phases.whole(call.x.shape[2:], call.geometry)
    walk, out = phases.undilated(geometry), geometry.output_size(size)
    for some in unfolded.some_images(call.x):
        dy, x = phases.split(call.dy[some], out, geometry), phases.split(call.x[some], size, geometry)
        part = call._replace(beta=1.0 if some.start else call.beta, dy=dy, x=x, geometry=walk)
        BACKWARD_WEIGHT.by_rule(part).run(part)


def _positions(call: BackwardWeight) -> None:
    gradient = windows.backward_weight(call.dy, call.x, call.total.shape, call.geometry)
    unfolded.add(call.total, gradient, call.beta)


def _seen(call: BackwardWeight) -> winograd_candidates.Seen:
    return call.x, call.total.shape, call.out, call.geometry


def _winograd(call: BackwardWeight, way: ModuleType, size: Size) -> None:
    way.add_backward_weight(call.total, call.beta, call.dy, call.x, call.geometry, size, call.kept)


def _runs_in_aten(call: BackwardWeight) -> bool:
    return call.geometry.rank in RANKS_OF_TORCH


def _can_convert(call: BackwardWeight) -> bool:
    return call.geometry.rank == 2 and max(call.x.numel(), call.dy.numel()) <= unfolded.MAX_COPY


def _is_pointwise(call: BackwardWeight) -> bool:
    return pointwise.serves(call.x, call.geometry) and format_of(call.dy) == torch.channels_last


def _can_exchange(call: BackwardWeight) -> bool:
    # oneDNN packs the second operand anew; that the larger one is so is worth a gradient that has to be turned.
    return _is_pointwise(call) and call.x.shape[1] < call.dy.shape[1]


def _has_images(call: BackwardWeight) -> bool:
    return _is_pointwise(call) and onednn.serves(call.x) and pointwise.count_images(call.places) > 0


def _has_windows(call: BackwardWeight) -> bool:
    return format_of(call.x) == torch.channels_last and not _is_pointwise(call) and _has_windows_across(call)


def _has_windows_across(call: BackwardWeight) -> bool:
    return unfolded.serves(call.dy, call.x.shape[1], call.places, call.geometry)


def _has_row_windows(call: BackwardWeight) -> bool:
    # It adds up in the type of x.
    if call.geometry.rank != 2 or call.x.numel() == 0 or call.places == 0 or is_narrow(call.x) or _is_pointwise(call):
        return False
    is_last = format_of(call.x) == format_of(call.dy) == torch.channels_last
    return is_last and call.x[0].numel() * call.geometry.kernel[1] <= unfolded.MAX_COPY


def _has_columns(call: BackwardWeight) -> bool:
    return depthwise.serves(call.dy, call.x, call.geometry)


def _has_phases(call: BackwardWeight) -> bool:
    # Operands of 16 bits are widened before (`onednn.miscomputes_filters`).
    is_last = format_of(call.x) == torch.channels_last
    return is_last and not is_narrow(call.x) and phases.serves(call.dy, call.x.shape[1], call.geometry)


def _has_positions(call: BackwardWeight) -> bool:
    # It adds up in the type of x.
    return call.x.numel() <= unfolded.MAX_COPY and not is_narrow(call.x)


BACKWARD_WEIGHT = Operation(
    "convolution backward weight",
    [
        Candidate("aten", _runs_in_aten, lambda call: _aten(call, dense(call.dy), dense(call.x))),
        Candidate("aten_converted", _can_convert, lambda call: _aten(call, converted(call.dy), converted(call.x))),
        Candidate("product", lambda call: _is_pointwise(call) and onednn.serves(call.x), _product),
        Candidate("product_mm", _is_pointwise, _product_mm),
        Candidate(
            "product_exchanged",
            lambda call: _can_exchange(call) and onednn.serves(call.x),
            _product_exchanged,
        ),
        Candidate("product_exchanged_mm", _can_exchange, _product_exchanged_mm),
        Candidate("images", _has_images, _images),
        Candidate("windows", lambda call: _has_windows(call) and onednn.serves(call.x), _windows),
        Candidate("windows_mm", _has_windows, _windows_mm),
        Candidate("row_windows", _has_row_windows, _row_windows),
        Candidate("across", lambda call: _has_windows_across(call) and onednn.serves(call.x), _across),
        Candidate("across_mm", _has_windows_across, _across_mm),
        Candidate(depthwise.COLUMNS, _has_columns, _columns),
        Candidate(phases.PHASES, _has_phases, _phases),
        Candidate("positions", _has_positions, _positions),
        *winograd_candidates.candidates(_seen, _winograd),
    ],
    _rule,
    _key,
    ("x", "", "dy", "", "", "", "on"),
    accumulates=True,
    miscomputed=lambda call: onednn.miscomputes_filters(call.x, call.geometry),
)
