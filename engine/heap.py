"""What glibc's malloc does with memory that is freed, and with large blocks (mallopt(3)); in the whole process.

Where all that is freed is kept, the main heap has pages of 2 MiB if the kernel gives them on request; threads with
heaps of their own have small ones. With pages of 4 KiB a step of training takes longer, since addresses are translated
more often, most of all in a virtual machine (docs/step_times.md).
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import platform
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_M_MXFAST = 1
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_NEVER = -1
_MAPPED_FROM = 128 << 10
_M_MMAP_MAX = -4
_MAPPED_BLOCKS = 65536  # glibc's default
_MADV_HUGEPAGE = 14
_HUGE = 2 << 20
_STRICT = "2"
MAX_BYTES = 2**31 - 1
"""The largest bound that malloc takes: blocks of all sizes are kept."""

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
"""When the kernel gives huge pages: `always [madvise] never`, the one in brackets."""

HUGE_PAGE_SIZE = HUGE_PAGES.with_name("hpage_pmd_size")
"""How many bytes such a page has: 2 MiB, and up to 512 where small pages have 64 KiB."""

OVERCOMMIT = Path("/proc/sys/vm/overcommit_memory")
"""2: the kernel counts address space as memory."""

_bound = 0
"""From how many bytes on malloc maps blocks, as far as it was asked here; 0: it was not."""

_is_advised = False
"""Whether the free end of the heap gets pages of 2 MiB."""


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
    global _is_advised
    if keep_freed_memory(MAX_BYTES) and keep_freed_memory(_MAPPED_FROM):
        ctypes.CDLL(None).malloc_trim(0)
        _is_advised = False


def keep_blocks() -> bool:
    """Have malloc keep all that is freed, of whatever size, in pages of 2 MiB where the kernel gives them on request.

    Returns:
        False where the C library is not glibc, or refuses.
    """
    is_done = keep_freed_memory(MAX_BYTES)
    if is_done and not _is_advised and _may_grow_ahead():
        _advise_huge_pages()
    return is_done


def _may_grow_ahead() -> bool:
    """Return whether the kernel gives pages of 2 MiB on request, and address space that is not used costs nothing.

    It does where it is limited, where the kernel counts it as memory, and where malloc writes to what it hands out.
    """
    try:
        if "[madvise]" not in HUGE_PAGES.read_text() or int(HUGE_PAGE_SIZE.read_text()) != _HUGE:
            return False
        if OVERCOMMIT.read_text().strip() == _STRICT:
            return False
    except (OSError, ValueError):
        return False
    limits = (resource.getrlimit(limit)[0] for limit in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
    is_written = "MALLOC_PERTURB_" in os.environ or "perturb" in os.environ.get("GLIBC_TUNABLES", "")
    return all(limit == resource.RLIM_INFINITY for limit in limits) and not is_written


def _advise_huge_pages() -> None:
    """Let the heap grow by half of the machine's memory, ask for huge pages there, and free it again.

    That takes address space alone: what malloc has not handed out yet has no pages, and trimming, which would give the
    address space back, is off. The kernel's advice holds for what is mapped, so it has to be mapped before.
    """
    global _is_advised
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    ahead = os.sysconf("SC_PHYS_PAGES") // 2 * resource.getpagesize()
    libc.mallopt(_M_MMAP_MAX, 0)  # or a block of this size would be mapped outside the heap
    block = libc.malloc(ctypes.c_size_t(ahead))
    libc.mallopt(_M_MMAP_MAX, _MAPPED_BLOCKS)
    if block:
        begin = -(-block // _HUGE) * _HUGE
        libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(block + ahead - begin), _MADV_HUGEPAGE)
        libc.free(ctypes.c_void_p(block))
    _is_advised = True


def zeros_on_demand(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return zeros, at least one, outside malloc's heap on a CPU, that take no memory before they are written.

    They get pages of 2 MiB where the heap does (`keep_blocks`). The tensor's storage cannot grow.

    Raises:
        MemoryError: the kernel refuses.
    """
    import torch

    size = math.prod(shape) * dtype.itemsize
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"cannot map {size} bytes: {error.strerror}") from None
    if _is_advised:
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype).view(tuple(shape))


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
