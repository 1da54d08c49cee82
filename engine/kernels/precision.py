"""In how many bits products are computed, and where values are rounded and widened for it.

| precision | operands of products | on |
|---|---|---|
| float32 | as they are | any device |
| tf32 | float32; a GPU rounds them to 10 bits of mantissa inside the product | a GPU |
| bf16 | bfloat16: 7 bits of mantissa, float32's range | any device; faster with fast instructions for it |
| fp16 | IEEE half precision: 10 bits of mantissa, up to 65504; gradients need a scaled loss | a GPU; slow on CPUs |

A product in 16 bits rounds its operands (values, weights, biases) once, adds up in float32 and rounds its result once,
but for some gradients of large weights (`linear.add_product`).
Parameters, their gradients and statistics stay in float32. What comes out of a product stays in 16 bits until a layer
reads it that needs more (`Layer.takes_narrow`); the net widens it there, which changes no value. A CPU without
fast instructions for such a product makes it in float32, of the rounded operands (`needs_float32`). docs/precision.md.

By default PyTorch lets cuDNN round the operands of a float32 convolution to TF32, which is a thousand times what
float32 rounds off: layers would not equal Caffe's to float32 rounding, and differences of losses would not show
gradients.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch

from mgcaffe.engine.kernels import processor

_NARROW = (torch.bfloat16, torch.float16)
_GPU_WITH_BOTH = (8, 0)  # the compute capability that bfloat16 and TF32 came with


@dataclass(frozen=True)
class Precision:
    """How products are computed.

    Attributes:
        name: what flags and messages call it.
        operands: the type that operands of float32 are rounded to; None: they stay as they are.
    """

    name: str
    operands: torch.dtype | None = None

    def narrow(self, x: torch.Tensor) -> torch.Tensor:
        """Return x as an operand of a product: rounded if it is of float32 and products are in 16 bits."""
        return x.to(self.operands) if self.operands is not None and x.dtype == torch.float32 else x


FLOAT32 = Precision("float32")
TF32 = Precision("tf32")
BF16 = Precision("bf16", torch.bfloat16)
FP16 = Precision("fp16", torch.float16)
PRECISIONS = {precision.name: precision for precision in (FLOAT32, BF16, FP16, TF32)}


def is_narrow(x: torch.Tensor) -> bool:
    """Return whether x holds numbers of 16 bits."""
    return x.dtype in _NARROW


def widened(x: torch.Tensor) -> torch.Tensor:
    """Return x, in float32 if it holds numbers of 16 bits."""
    return x.float() if is_narrow(x) else x


def why_not(precision: Precision, device: torch.device, dtype: torch.dtype) -> tuple[str, str] | None:
    """Return why a net cannot compute so, and what to do; None if it can.

    Args:
        precision: the one asked for.
        device: where the net's tensors live.
        dtype: the type of its blobs.
    """
    if precision != FLOAT32 and dtype != torch.float32:
        return "it rounds operands of float32, and the blobs are of float64", "take float32 blobs, or leave it out"
    if precision == TF32 and device.type == "cpu":
        return "only GPUs compute products in TF32", "take a GPU (--gpu), bf16 or float32"
    is_new = precision in (BF16, TF32)
    if is_new and device.type == "cuda" and torch.cuda.get_device_capability(device) < _GPU_WITH_BOTH:
        return f"this GPU has no products in {'TF32' if precision == TF32 else 'bfloat16'}", "take fp16 or float32"
    return None


def is_slow(precision: Precision, device: torch.device) -> bool:
    """Return whether the processor has no fast instructions for these products: they take longer than float32's."""
    return precision.operands is not None and device.type == "cpu" and not _has_products(precision.operands)


def needs_float32(x: torch.Tensor) -> bool:
    """Return whether products of operands like x are to be made in float32, from the rounded values.

    On a CPU PyTorch's kernels for IEEE half precision add up in it, and slowly. Without fast instructions for bfloat16
    its products of such operands take 1.7 to 150 times as long as those of float32.
    """
    return x.is_cpu and is_narrow(x) and not _has_products(x.dtype)


def _has_products(operands: torch.dtype) -> bool:
    """Return whether the CPU has fast instructions for products of such operands that add up in float32."""
    return operands == torch.bfloat16 and processor.multiplies_bf16()


def set_gpu_products(precision: Precision) -> None:
    """Let GPUs round the operands of float32 products to TF32 if this precision says so, else not.

    And let them add up products of 16-bit operands in float32, where PyTorch lets cuBLAS round sums of parts as well.
    In the whole process: the nets of one run have one precision, and a net of another switches anew when it is built.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some versions of PyTorch call these settings deprecated, older have no other
        torch.backends.cudnn.allow_tf32 = precision == TF32
        torch.backends.cuda.matmul.allow_tf32 = precision == TF32
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
