"""What glibc's malloc does with memory that is freed, and with large blocks (mallopt(3)); in the whole process."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager

_M_MXFAST = 1
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_NEVER = -1
_MAPPED_FROM = 128 << 10
MAX_BYTES = 2**31 - 1
"""The largest bound that malloc takes: blocks of all sizes are kept."""

_bound = 0
"""From how many bytes on malloc maps blocks, as far as it was asked here; 0: it was not."""


def keep_freed_memory(mapped_from: int) -> bool:
    """Have malloc keep what is freed for the next allocation, up to blocks of `mapped_from` bytes.

    Freed blocks of up to 128 bytes are joined with what is free beside them as well. By default glibc keeps them apart
    (fastbins), and one that lies between two large free blocks keeps these from being joined.

    Returns:
        False where the C library is not glibc, or refuses.
    """
    global _bound
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(_M_MXFAST, 0)
    is_done = bool(mallopt(_M_MMAP_THRESHOLD, mapped_from) and mallopt(_M_TRIM_THRESHOLD, _NEVER))
    if is_done:
        _bound = mapped_from
    return is_done


def map_blocks() -> None:
    """Have malloc map larger blocks, outside its heap, and give back to the kernel what is free in the heap.

    An older glibc, which refuses to keep blocks above 32 MiB (`keep_blocks`), stays as it is.
    """
    if keep_freed_memory(MAX_BYTES) and keep_freed_memory(_MAPPED_FROM):
        ctypes.CDLL(None).malloc_trim(0)


def keep_blocks() -> None:
    """Have malloc keep all that is freed, of whatever size."""
    keep_freed_memory(MAX_BYTES)


@contextmanager
def blocks_mapped() -> Iterator[None]:
    """Map larger blocks for a while, if malloc keeps all that is freed: what stays then lies together in its heap."""
    if _bound != MAX_BYTES:
        yield
        return
    map_blocks()
    try:
        yield
    finally:
        keep_blocks()
