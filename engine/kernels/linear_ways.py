"""The ways to compute an inner product's three products, and the rules that pick one where none was measured.

Shapes: x (M, K), weight (N, K), y and dy (M, N), bias (N).

| candidate | what it does |
|---|---|
| mm | PyTorch's `mm` or `addmm`, a gradient straight into its place |
| onednn | oneDNN's own operator; a gradient is made in pieces of 4 MiB, which are then added |
| exchanged | the same with its sides exchanged: a large weight is read as it lies, not packed anew |
| blocks | dx by `mm`, as a sum over blocks of the weight's rows that a cache holds (1 MiB of float32) |
| images | dx as oneDNN's gradient of filters of one pixel, the weight's rows being pixels of small images |

oneDNN keeps half a MiB for each shape of a product. Its time over that of PyTorch's own operator, float32, one core of
an AMD EPYC: 0.9 for M = 2048, K = 512, N = 256, and with 2^25 multiplications for K and N down to 64; 1.0 for M = 128
(2^24 multiplications); below that, with K and N from 128 to 800, mostly 1.0 to 1.2 for M = 64, 1.1 to 1.4 for M = 16.
A gradient of a weight takes 0.4 to 0.7 of the time on one of family 26 for M from 2 to 128, and 2 for one row.
With AVX2 alone (family 25, model 1) 1.0 to 1.35 for M from 64 to 256, 0.9 to 1.1 with weights of 64 MiB and more: there
only `exchanged` is used, whose time is 0.5 to 1.0 of that of `mm` for M from 4 to 32, and 1.0 to 2.4 below.
So it is on Intel's processors with AVX-512: on a Xeon (family 6, model 207) gradients of weights by oneDNN take 1.2 to
3.7 times as long as by `mm` for M from 8 to 2048, those of x 0.9 to 2.1, and `exchanged` 0.5 to 0.8 for M from 8 to 64.
There gradients of x come from `images` for M from 4 to 32 where the weight has 3 million values or more, else for M
from 16 to 128 from `blocks` where the weight is large and dx has no more than 5 times as many values as a block. On
another Xeon (model 167; on 207 it was not measured) `images` takes 0.4 to 0.9 of the time of `mm`, and mostly 0.5 to
0.8 of that of `blocks`; with a larger dx (a weight of 4096 x 25088, M = 64 and 128) `blocks` takes 1.8 to 2.4 times
as long as `mm`, and 1.1 times for M = 32.

The gradient of filters of one pixel is a sum over pixels, and oneDNN reads the pixels as they lie, where its product
packs the weight anew. `images` takes 0.8 to 0.9 of the time of `onednn` on the EPYC of family 26 for a weight of 4096 x
9216 and M = 16, 32 and 64, 0.7, 0.7 and 0.95 for one of 4096 x 4096, and 1.1 to 1.5 and 0.8 to 1.1 for M up to 12.
On the EPYC of family 25 with AVX-512, where the rule takes it as well, it was not measured.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from mgcaffe.engine.kernels import onednn, pointwise, processor, unfolded
from mgcaffe.engine.kernels.aten import convolution_backward
from mgcaffe.engine.kernels.choice.operation import Candidate, Key, Operation
from mgcaffe.engine.kernels.elementwise import relu_
from mgcaffe.engine.kernels.precision import is_narrow

_SMALL_BATCH = 64
_FEW_ROWS = 4
_FEW_ROWS_OF_16_BITS = 32
_ROWS_OF_BLOCKS = range(16, 129)
_ROWS_OF_IMAGES, _ROWS_OF_IMAGES_ON_INTELS = range(16, 65), range(4, 33)
_FEW_OUTPUTS, _FEW_OUTPUTS_ON_INTELS = 16, 32
_VERY_LARGE_WEIGHT, _VERY_LARGE_ON_INTELS = 1 << 24, 3 << 20
_MOST_BLOCKS_OF_DX = 5
_WORTH_A_PRIMITIVE = 1 << 24
_VECTOR = 16
LARGE_WEIGHT = 1 << 20
"""From how many values on reading a weight takes longer than the arithmetic of a few rows."""
PIECE = 1 << 20
"""How many values of a gradient oneDNN makes at a time."""
BLOCK = 1 << 18
"""How many values of a weight are read at a time where dx is a sum over blocks."""
FEW_PIXELS = 8
"""How many rows of a weight are an image where dx has few rows."""


class Forward(NamedTuple):
    """What y = x weight^T + bias is computed from, and with `relu` max(y, 0)."""

    x: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor | None
    relu: bool


class BackwardData(NamedTuple):
    """What dx = dy weight is computed from."""

    dy: torch.Tensor
    weight: torch.Tensor


class AddProduct(NamedTuple):
    """Total becomes beta total + left^T right; beta 0 replaces what it held."""

    total: torch.Tensor
    beta: float
    left: torch.Tensor
    right: torch.Tensor


def product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Return x weight^T + bias by PyTorch's own operators."""
    return torch.mm(x, weight.t()) if bias is None else torch.addmm(bias, x, weight.t())


def add_product(total: torch.Tensor, left: torch.Tensor, right: torch.Tensor, beta: float) -> None:
    """Total = beta total + left^T right, in place; with beta 0 what `total` held does not matter.

    For a gradient of many megabytes this is several times faster than a product of its own, whose fresh pages
    cost more than the arithmetic.
    """
    if beta == 0:
        torch.mm(left.t(), right, out=total)  # the same sum, 5 to 8 % faster with a batch of 128
    else:
        total.addmm_(left.t(), right, beta=beta)


def rows_of_piece(total: torch.Tensor) -> int:
    """Return how many rows of a weight's gradient are made at a time where it is made in pieces.

    From 16 on they are a multiple of 16, so that updates compute all values of a piece by vectors but the last one's.
    """
    rows = max(1, PIECE // max(1, total.shape[1]))
    return rows if rows < _VECTOR else rows // _VECTOR * _VECTOR


def suits_float32(rows: torch.Tensor) -> bool:
    """Return whether the gradient of a large weight from so many rows of 16 bits takes less time in float32, by rule.

    Over few rows writing it takes most of the time, and `mm` of float32 writes it into its place. On an Intel Xeon with
    AMX (family 6, model 207) that takes 0.37 to 0.50 of the time for 1 to 32 rows, and 1.09 to 1.15 for 64.
    """
    return is_narrow(rows) and processor.is_intels() and len(rows) <= _FEW_ROWS_OF_16_BITS


def is_large(weight: torch.Tensor) -> bool:
    """Return whether a weight is so large that reading it takes longer than the arithmetic of a few rows."""
    return weight.numel() >= LARGE_WEIGHT


def _suits_onednn(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Return whether oneDNN makes the product, or the gradient of its x, in less time, by rule."""
    is_worth_it = is_large(weight) or x.shape[0] * weight.numel() > _WORTH_A_PRIMITIVE
    return is_worth_it and not _has_fast_mm(x) and onednn.serves(x)


def _has_fast_mm(x: torch.Tensor) -> bool:
    # Products of 16 bits are other operators, which were not measured on Intel's processors.
    return processor.ON_AVX2 or (processor.FAST_MM and not is_narrow(x))


def _forward_rule(call: Forward) -> str:
    rows = call.x.shape[0]
    least = _FEW_ROWS if _has_fast_mm(call.x) else 1
    if least <= rows <= _SMALL_BATCH and is_large(call.weight) and onednn.serves(call.x):
        return "exchanged"
    return "onednn" if _suits_onednn(call.x, call.weight) else "mm"


def _forward_key(call: Forward) -> Key:
    x, weight, bias, relu = call
    return x.shape, weight.shape, weight.is_contiguous(), bias is not None, relu, x.dtype, x.device.type


def _forward_mm(call: Forward) -> torch.Tensor:
    y = product(call.x, call.weight, call.bias)
    return relu_(y) if call.relu else y


def _forward_onednn(call: Forward) -> torch.Tensor:
    y = onednn.linear(call.x, call.weight, call.bias)
    return relu_(y) if call.relu else y


def _forward_exchanged(call: Forward) -> torch.Tensor:
    transposed = onednn.linear(call.weight, call.x)
    y = call.x.new_empty(call.x.shape[0], call.weight.shape[0])
    y = y.copy_(transposed.t()) if call.bias is None else torch.add(transposed.t(), call.bias, out=y)
    return relu_(y) if call.relu else y


def _serves_forward(call: Forward) -> bool:
    return onednn.serves(call.x) and call.weight.numel() > 0


FORWARD = Operation(
    "inner product forward",
    [
        Candidate("mm", lambda call: True, _forward_mm),
        Candidate("onednn", _serves_forward, _forward_onednn),
        Candidate("exchanged", _serves_forward, _forward_exchanged),
    ],
    _forward_rule,
    _forward_key,
    ("x", "weight", "in order", "bias", "relu", "", "on"),
)


def _data_rule(call: BackwardData) -> str:
    rows, values = call.dy.shape[0], call.weight.numel()
    if processor.is_intels() and call.dy.dtype == torch.float32:
        if rows in _ROWS_OF_IMAGES_ON_INTELS and values >= _VERY_LARGE_ON_INTELS and _has_images(call):
            return "images"
        # On model 207 `blocks` takes 0.56 to 0.98 of the time of `mm` for M from 16 to 128, else 0.8 to 1.2.
        is_small = rows * call.weight.shape[1] <= _MOST_BLOCKS_OF_DX * BLOCK
        if rows in _ROWS_OF_BLOCKS and is_small and is_large(call.weight) and _has_blocks(call):
            return "blocks"
    if not _suits_onednn(call.dy, call.weight):
        return "mm"
    is_very_large = values >= _VERY_LARGE_WEIGHT
    return "images" if is_very_large and rows in _ROWS_OF_IMAGES and _has_images(call) else "onednn"


def _data_key(call: BackwardData) -> Key:
    dy, weight = call
    return dy.shape, weight.shape, weight.is_contiguous(), dy.dtype, dy.device.type


def _serves_data(call: BackwardData) -> bool:
    return onednn.serves(call.dy) and call.weight.numel() > 0


def _data_blocks(call: BackwardData) -> torch.Tensor:
    rows = max(1, BLOCK // call.weight.shape[1])
    blocks = zip(call.dy.split(rows, 1), call.weight.split(rows), strict=True)
    dx = torch.mm(*next(blocks))
    for dy, weight in blocks:
        dx.addmm_(dy, weight)
    return dx


def _has_blocks(call: BackwardData) -> bool:
    # It adds up in the type of dy.
    return call.dy.is_cpu and not is_narrow(call.dy) and call.weight.numel() > BLOCK and call.weight.is_contiguous()


def _count_images(call: BackwardData) -> int:
    """Return how many images the weight's rows are: with few outputs of 8 pixels, else of about 256; 0 for none."""
    rows = call.weight.shape[0]
    if len(call.dy) > (_FEW_OUTPUTS_ON_INTELS if processor.is_intels() else _FEW_OUTPUTS):
        return pointwise.count_images(rows)
    return rows // FEW_PIXELS if rows % FEW_PIXELS == 0 else 0


def _data_images(call: BackwardData) -> torch.Tensor:
    images, outputs = _count_images(call), len(call.dy)
    # The filters lend their shape and format only.
    lent = call.dy.new_empty(outputs, 1, 1, call.weight.shape[1]).permute(0, 3, 1, 2)
    dy, weight = (pointwise.as_images(rows, images) for rows in (call.dy.t().contiguous(), call.weight))
    dx = convolution_backward(dy, weight, lent, pointwise.PLAIN, [False, True, False])[1]
    return dx.reshape(outputs, -1)


def _has_images(call: BackwardData) -> bool:
    is_served = _serves_data(call) and not is_narrow(call.dy) and call.weight.is_contiguous()
    return is_served and _count_images(call) >= pointwise.FEWEST_IMAGES


BACKWARD_DATA = Operation(
    "inner product backward data",
    [
        Candidate("mm", lambda call: True, lambda call: torch.mm(call.dy, call.weight)),
        Candidate("onednn", _serves_data, lambda call: onednn.linear(call.dy, call.weight.t())),
        Candidate("exchanged", _serves_data, lambda call: onednn.linear(call.weight.t(), call.dy).t().contiguous()),
        Candidate("blocks", _has_blocks, _data_blocks),
        Candidate("images", _has_images, _data_images),
    ],
    _data_rule,
    _data_key,
    ("dy", "weight", "in order", "", "on"),
)


def _add_rule(call: AddProduct) -> str:
    # Of 16-bit numbers `mm` is as fast as oneDNN's product; of one row it writes each value straight into its place.
    if is_narrow(call.left) or len(call.left) == 1:
        return "mm"
    return "onednn" if _suits_onednn(call.left, call.total) else "mm"


def _add_key(call: AddProduct) -> Key:
    left, right = call.left, call.right
    return left.shape, right.shape, left.dtype, left.device.type


def _add_onednn(call: AddProduct) -> None:
    right = call.right.t()
    rows = rows_of_piece(call.total)
    for total, left in zip(call.total.split(rows), call.left.t().split(rows), strict=True):
        unfolded.add(total, onednn.linear(left, right), call.beta)


ADD_PRODUCT = Operation(
    "inner product backward weight",
    [
        Candidate("mm", lambda call: True, lambda call: add_product(call.total, call.left, call.right, call.beta)),
        Candidate("onednn", lambda call: onednn.serves(call.left) and call.right.numel() > 0, _add_onednn),
    ],
    _add_rule,
    _add_key,
    ("left", "right", "", "on"),
    accumulates=True,
)
