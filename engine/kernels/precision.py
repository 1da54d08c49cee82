"""How exact a GPU's products of float32 are.

By default PyTorch lets cuDNN round the operands of a convolution to 10 bits of mantissa (TF32), which is a thousand
times what float32 rounds off: layers would not equal Caffe's to float32 rounding, and differences of losses would not
show gradients. Matrix products are exact by default.
"""

from __future__ import annotations

import functools
import warnings

import torch


@functools.cache
def keep_float32() -> None:
    """Let convolutions of float32 on GPUs be convolutions of float32, in this process; only the first call does.

    Who wants TF32 sets `torch.backends.cudnn.allow_tf32` after the first net on a GPU was built.
    """
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # some versions of PyTorch call this setting deprecated, older ones have no other
        torch.backends.cudnn.allow_tf32 = False
