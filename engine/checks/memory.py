"""How much memory a device has, what does not fit into it, and what PyTorch's words for a failed allocation mean."""

from __future__ import annotations

import functools
import math
import re
import resource
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

MAX_BYTES = 2**63 - 1
"""What a 64-bit machine can address, and PyTorch count."""
MAX_AXES = 32
"""The most axes of a blob (Caffe: blob.hpp, kMaxBlobAxes)."""
HINT = "lower batch_size (iter_size makes up for it), or num_output if it is larger than it should be"
"""What to do about memory that does not suffice."""

# How PyTorch's allocators say it, for the CPU and for CUDA; the libraries of CUDA that have memory of their own; and
# oneDNN, whose operations have been chosen by then, so that what they lack as they run is memory to work in.
_OUT_OF_MEMORY = re.compile(
    "can't allocate memory|out of memory|Storage size calculation overflowed|STATUS_ALLOC_FAILED"
    "|could not execute a primitive"
)
_ASKED_FOR = re.compile(r"[Tt]ried to allocate ([\d.]+ \w+)")
_OVERFLOW = re.compile("cannot be converted to type .* without overflow")
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_USED = ("/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory/memory.usage_in_bytes")
# What counts as used there and is given up when memory is asked for: pages of files, by the name of their line.
_FILE_PAGES = (
    ("/sys/fs/cgroup/memory.stat", "inactive_file"),
    ("/sys/fs/cgroup/memory/memory.stat", "total_inactive_file"),
)


def is_about_memory(error: BaseException) -> bool:
    """Return whether an error says that memory could not be had."""
    return isinstance(error, MemoryError) or _OUT_OF_MEMORY.search(str(error)) is not None


def is_about_range(error: BaseException) -> bool:
    """Return whether an error says that a number is too large for the type that PyTorch computes in."""
    return _OVERFLOW.search(str(error)) is not None


def bytes_asked(error: BaseException) -> int:
    """Return the bytes that an allocation on the CPU was for; 0 where the error does not tell."""
    asked = _ASKED_FOR.search(str(error))
    return int(asked[1].split()[0]) if asked and asked[1].endswith(" bytes") and asked[1][:-6].isdigit() else 0


def asked_for(error: BaseException) -> str:
    """Return `: tried to allocate 2.5 GiB`, or nothing where the error gives no size."""
    asked = _ASKED_FOR.search(str(error))
    if asked is None:
        return ""
    amount, unit = asked.group(1).split()
    text = gib(int(amount)) if unit == "bytes" and int(amount) >= 1 << 20 else asked.group(1)
    return f": tried to allocate {text}"


def gib(size: int) -> str:
    """Return a number of bytes in GiB: `23.5 GiB`, `3,725.3 GiB`, `3.73e+06 GiB`."""
    value = size / 2**30
    return f"{value:,.1f} GiB" if value < 1e6 else f"{value:.3g} GiB"


def blob_bytes(shape: Sequence[int], value_bytes: int) -> int:
    """Return the bytes of a blob; of one without values, those its strides would span if too many to count."""
    span = math.prod(max(1, size) for size in shape) * value_bytes
    return math.prod(shape) * value_bytes or (span if span > MAX_BYTES else 0)


def why_too_many_axes(shape: Sequence[int]) -> str | None:
    """Return None for a shape that a blob can have, else what is wrong with its number of axes."""
    return f"has {len(shape)} axes, and a blob has at most {MAX_AXES}" if len(shape) > MAX_AXES else None


def why_too_large(size: int, device: torch.device) -> tuple[str, str | None] | None:
    """Return None for so many bytes that a device can hold, else (what is wrong, what to do)."""
    if size <= device_memory(device):
        return None
    if size > MAX_BYTES:
        return f"would take {gib(size)}, more than any machine can address", None
    where = "the GPU has" if device.type == "cuda" else "this machine has"
    return f"would take {gib(size)}, and {where} {gib(device_memory(device))} of memory", HINT


def shape_text(shape: Iterable[int]) -> str:
    """Return `2x3x4`, or `()` for a shape without axes."""
    return "x".join(str(size) for size in shape) or "()"


@functools.cache
def device_memory(device: torch.device) -> int:
    """Return the bytes that a device has at most."""
    if device.type == "cuda":
        import torch

        return int(torch.cuda.get_device_properties(device).total_memory)
    return machine_memory() if device.type == "cpu" else MAX_BYTES


def machine_memory(root: Path = Path("/")) -> int:
    """Return the bytes of memory and swap, or fewer where a container's limit or that of the process (ulimit) says so.

    Args:
        root: where /proc and /sys are found.
    """
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        fields = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
        memory, swap = fields["MemTotal"] << 10, fields.get("SwapTotal", 0) << 10
    except (OSError, ValueError, KeyError, IndexError):
        return MAX_BYTES
    for path in _LIMITS:
        try:
            memory = min(memory, int((root / path.lstrip("/")).read_text()))
        except (OSError, ValueError):
            # No such limit, or the word `max`.
            continue
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        memory, swap = min(memory, max(0, limit - _mapped(root))), 0
    return memory + swap


def free_memory(root: Path = Path("/")) -> int:
    """Return the bytes that this process can take without swapping, by the system's, container's and its own limit.

    Args:
        root: where /proc and /sys are found.
    """
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        fields = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
        free = fields["MemAvailable"] << 10
    except (OSError, ValueError, KeyError, IndexError):
        return MAX_BYTES
    for limit_path, used_path, file_pages in zip(_LIMITS, _USED, _FILE_PAGES, strict=True):
        try:
            limit, used = (int((root / path.lstrip("/")).read_text()) for path in (limit_path, used_path))
        except (OSError, ValueError):
            continue
        free = min(free, max(0, limit - used + _file_pages(root, *file_pages)))
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return free if limit == resource.RLIM_INFINITY else min(free, max(0, limit - _mapped(root)))


def _file_pages(root: Path, path: str, name: str) -> int:
    """Return the bytes on a line of a container's statistics; 0 where it is not there."""
    try:
        lines = (root / path.lstrip("/")).read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.split()[:1] == [name])
    except (OSError, ValueError, IndexError, StopIteration):
        return 0


def _mapped(root: Path) -> int:
    """Return the bytes of address space that this process has taken already: of programs, mostly."""
    try:
        return int((root / "proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return 0
