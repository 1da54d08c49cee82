"""Contiguous buffers as numpy arrays that share their memory, so that MPI can read and write them in place.

numpy rather than torch does the arithmetic on the communication thread: a torch operation there would start a
second team of OpenMP threads beside the one that computes the backward pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy

from mgcaffe.errors import CommError


def is_on_device(buffer: Any) -> bool:
    """Return whether the buffer is a tensor outside the host's memory."""
    return not isinstance(buffer, numpy.ndarray) and buffer.device.type != "cpu"


def host_view(buffer: Any) -> numpy.ndarray:
    """Return the buffer, a numpy array or a CPU tensor, as a flat numpy array over the same memory.

    Raises:
        CommError: the buffer isn't contiguous, or its type has no counterpart in MPI (16-bit floats).
    """
    contiguous = buffer.flags.c_contiguous if isinstance(buffer, numpy.ndarray) else buffer.is_contiguous()
    if not contiguous:
        raise CommError(f"a buffer of shape {tuple(buffer.shape)} is not contiguous, so ranks cannot exchange it")
    try:
        array = buffer if isinstance(buffer, numpy.ndarray) else buffer.detach().numpy()
    except TypeError:
        raise CommError(f"ranks cannot reduce buffers of type {buffer.dtype}") from None
    if array.dtype.kind not in "fiu" or array.dtype == numpy.float16:
        raise CommError(f"ranks cannot reduce buffers of type {array.dtype}")
    return array.reshape(-1)


@contextmanager
def on_host(buffer: Any) -> Iterator[numpy.ndarray]:
    """Give the buffer as a flat host array; a device tensor is copied to pinned memory and back."""
    if not is_on_device(buffer):
        yield host_view(buffer)
        return
    import torch

    staging = torch.empty(buffer.shape, dtype=buffer.dtype, pin_memory=True)
    staging.copy_(buffer)
    yield host_view(staging)
    buffer.copy_(staging)
