"""oneDNN's own operators, called by name: whether they can serve a tensor, and the two that are used.

With one thread and a small batch, `torch.conv2d` and `torch.mm` hand filters of one pixel and matrix products to
the BLAS that PyTorch was built with, which on some processors runs at half of oneDNN's speed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels.geometry import Geometry
from mgcaffe.engine.kernels.precision import is_narrow


def _available() -> bool:
    return torch.backends.mkldnn.is_available() and all(
        hasattr(torch.ops.mkldnn, name) for name in ("_convolution_pointwise", "_linear_pointwise")
    )


AVAILABLE = _available()
"""Whether this PyTorch has the operators (CPU builds for x86 do)."""


def _types() -> tuple[torch.dtype, ...]:
    has_bf16 = AVAILABLE and getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", bool)()
    return (torch.float32, torch.bfloat16) if has_bf16 else (torch.float32,)


TYPES = _types()
"""What the operators compute with on this processor."""


def serves(tensor: torch.Tensor) -> bool:
    """Return whether the tensor is of one of `TYPES` on the CPU, holds something, and the operators exist."""
    return AVAILABLE and tensor.dtype in TYPES and tensor.is_cpu and tensor.numel() > 0


def miscomputes(operand: torch.Tensor, size: Sequence[int], geometry: Geometry) -> bool:
    """Return whether a convolution of 16 bits or one of its gradients would be wrong, so that operands are widened.

    oneDNN 3.12 (of PyTorch 2.13) leaves results unwritten, or reads or writes beyond its memory, for some volumes, for
    some images that are smaller than the filter or its stride, where the stride or the dilation is above 1, and where a
    stride above 1 leaves one column (PyTorch's issue 169688). `tests/soak/convolutions.py` finds such calls.

    Args:
        operand: x or dy.
        size: the spatial size of x.
        geometry: the filters' walk over x.
    """
    if not (operand.is_cpu and is_narrow(operand)):
        return False
    is_column = geometry.stride[-1] > 1 and geometry.output_size(size)[-1] == 1
    is_plain = max(*geometry.stride, *geometry.dilation) == 1
    return geometry.rank == 3 or is_column or not (is_plain or geometry.fits(size))


def miscomputes_filters(x: torch.Tensor, geometry: Geometry) -> bool:
    """Return whether the gradient for filters over x would be wrong, as `miscomputes` says.

    For filters that see one channel each with a dilation it is wrong where dy has more than 28 columns, and slower than
    in float32 anyway.
    """
    if miscomputes(x, x.shape[2:], geometry):
        return True
    return x.is_cpu and is_narrow(x) and max(geometry.dilation) > 1 and 1 < geometry.groups == x.shape[1]


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """x (M, K) times weight (N, K) transposed, plus bias (N), as a new (M, N) tensor."""
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product


def convolution(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, geometry: Geometry) -> torch.Tensor:
    """`torch.conv2d` without the detour through BLAS."""
    y: torch.Tensor = torch.ops.mkldnn._convolution_pointwise(
        x,
        weight,
        bias,
        list(geometry.pad),
        list(geometry.stride),
        list(geometry.dilation),
        geometry.groups,
        "none",
        [],
        "",
    )
    return y
