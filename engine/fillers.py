"""The seven ways to initialise a parameter (Caffe: filler.hpp).

`constant` value (0); `uniform` in [min, max]; `gaussian` mean, std, and `sparse`: each weight is kept with
probability sparse / shape[0]; `positive_unitball`: uniform in [0, 1], every row of shape[0] scaled to sum 1;
`xavier`: uniform in +-sqrt(3 / n); `msra`: normal with deviation sqrt(2 / n); `bilinear`: the upsampling
kernel, the same for every pair of channels. n is the fan-in count / shape[0], the fan-out count / shape[1],
or their mean, as `variance_norm` says. The random stream differs from Caffe's; the distributions do not.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from itertools import pairwise

import torch

from mgcaffe.engine.types import Shape
from mgcaffe.errors import NetError
from mgcaffe.prototxt import FillerParameter

FAN_IN, FAN_OUT, AVERAGE = 0, 1, 2

_PIECE = 1 << 20  # values of a table that are drawn at once
_MAX_FLOAT32 = torch.finfo(torch.float32).max


def fan(shape: tuple[int, ...], variance_norm: int) -> float:
    """Return the n of xavier and msra for a blob of this shape."""
    count = math.prod(shape)
    fan_in = count / shape[0] if shape else 1.0
    fan_out = count / shape[1] if len(shape) > 1 else float(count)
    return {FAN_IN: fan_in, FAN_OUT: fan_out, AVERAGE: (fan_in + fan_out) / 2}[variance_norm]


def _constant(values: torch.Tensor, filler: FillerParameter, generator: torch.Generator, shape: Shape) -> None:
    values.fill_(filler.value)


def _uniform(values: torch.Tensor, filler: FillerParameter, generator: torch.Generator, shape: Shape) -> None:
    values.uniform_(filler.min, filler.max, generator=generator)


def _gaussian(values: torch.Tensor, filler: FillerParameter, generator: torch.Generator, shape: Shape) -> None:
    values.normal_(filler.mean, filler.std, generator=generator)
    if filler.sparse >= 0:
        outputs = shape[0] if shape else 1
        if filler.sparse > outputs:
            raise NetError(f"gaussian filler: sparse {filler.sparse} is more than the {outputs} outputs")
        values.mul_(torch.empty_like(values).bernoulli_(filler.sparse / outputs, generator=generator))


def _positive_unitball(values: torch.Tensor, filler: FillerParameter, generator: torch.Generator, shape: Shape) -> None:
    values.uniform_(0, 1, generator=generator)
    rows = values.view(values.shape[0] if values.dim() else 1, -1)
    rows.div_(rows.sum(dim=1, keepdim=True))


def _xavier(values: torch.Tensor, filler: FillerParameter, generator: torch.Generator, shape: Shape) -> None:
    bound = math.sqrt(3.0 / fan(shape, filler.variance_norm))
    values.uniform_(-bound, bound, generator=generator)


def _msra(values: torch.Tensor, filler: FillerParameter, generator: torch.Generator, shape: Shape) -> None:
    values.normal_(0.0, math.sqrt(2.0 / fan(shape, filler.variance_norm)), generator=generator)


def _bilinear(values: torch.Tensor, filler: FillerParameter, generator: torch.Generator, shape: Shape) -> None:
    if values.dim() != 4 or values.shape[2] != values.shape[3]:
        raise NetError(f"bilinear filler: needs 4 axes and a square kernel, not shape {tuple(values.shape)}")
    kernel = values.shape[3]
    factor = math.ceil(kernel / 2)
    centre = (kernel - 1) / (2.0 * factor)
    line = 1 - (torch.arange(kernel, dtype=torch.float64) / factor - centre).abs()
    values.copy_(torch.outer(line, line).expand(values.shape))


# Each is given the shape of the whole blob, of which the values may be some rows.
_FILLERS: dict[str, Callable[[torch.Tensor, FillerParameter, torch.Generator, Shape], None]] = {
    "constant": _constant,
    "uniform": _uniform,
    "gaussian": _gaussian,
    "positive_unitball": _positive_unitball,
    "xavier": _xavier,
    "msra": _msra,
    "bilinear": _bilinear,
}


def check(filler: FillerParameter | None) -> None:
    """Raise NetError for a filler that does not exist, or a field that it cannot honour."""
    if filler is None:
        return
    if filler.type not in _FILLERS:
        near = difflib.get_close_matches(filler.type, _FILLERS, n=1)
        guess = f" Did you mean '{near[0]}'?" if near else ""
        raise NetError(f"unknown filler type '{filler.type}'.{guess}", hint=f"known types: {', '.join(_FILLERS)}")
    for name in ("value", "min", "max", "mean", "std"):
        if not math.isfinite(getattr(filler, name)):
            raise NetError(f"filler '{filler.type}': {name} is {getattr(filler, name):g}, but has to be finite")
    if filler.sparse != -1 and filler.type != "gaussian":
        raise NetError(f"filler '{filler.type}' cannot be sparse; only 'gaussian' can")
    if filler.sparse < -1:
        raise NetError(f"gaussian filler: sparse has to be -1 (off), 0 or more, not {filler.sparse}")
    if filler.type == "gaussian" and not filler.std >= 0:
        raise NetError(f"gaussian filler: std has to be 0 or more, not {filler.std:g}")
    if filler.type == "uniform" and not filler.min <= filler.max:
        raise NetError(f"uniform filler: min {filler.min:g} is more than max {filler.max:g}")
    if filler.type == "uniform" and filler.max - filler.min > _MAX_FLOAT32:
        raise NetError(f"uniform filler: from min {filler.min:g} to max {filler.max:g} is too wide for float32")
    if filler.scale != 1:
        raise NetError(f"filler '{filler.type}': scale is a field of another Caffe that has no meaning here")


def fill(values: torch.Tensor, filler: FillerParameter | None, generator: torch.Generator) -> None:
    """Initialise `values` in place as the FillerParameter message says; None means zeros.

    Raises:
        NetError: an unknown filler, or fields that it cannot honour.
    """
    if filler is None:
        values.zero_()
        return
    check(filler)
    if values.numel():
        _FILLERS[filler.type](values, filler, generator, tuple(values.shape))


def fill_rows(
    values: torch.Tensor, rows: range, shape: Shape, filler: FillerParameter | None, generator: torch.Generator
) -> None:
    """Initialise some rows of a blob with the values that `fill` gives them where it fills all, from the same stream.

    All rows are drawn, a piece at a time, so the stream goes on as it does there. A sparse filler, whose second draw
    comes after all of the first, needs memory for the whole blob meanwhile.

    Args:
        values: the rows.
        rows: their numbers.
        shape: the whole blob's: (all rows, length).
        filler, generator: as for `fill`.

    Raises:
        NetError: as for `fill`.
    """
    if filler is None or filler.type == "constant":
        fill(values, filler, generator)
        return
    check(filler)
    total, length = shape
    # PyTorch draws normal numbers by sixteens, and the last ones of a tensor again where it does not end with sixteen.
    step = max(_PIECE // max(length, 1) // 16, 1) * 16 if filler.sparse < 0 else max(total, 1)
    starts = list(range(0, total, step))
    if len(starts) > 1 and (total - starts[-1]) * length < 16:
        starts.pop()
    for start, end in pairwise([*starts, total]):
        piece = values.new_empty((end - start, length))
        if piece.numel():
            _FILLERS[filler.type](piece, filler, generator, shape)
        first, last = max(start, rows.start), min(end, rows.stop)
        if first < last:
            values[first - rows.start : last - rows.start] = piece[first - start : last - start]
