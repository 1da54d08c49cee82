"""Makes this process ready to compute: threads, memory allocation, the device, and what this machine has.

Memory: glibc maps every tensor above 32 MiB anew and gives it back when it is freed, so each pass touches fresh pages
of 4 KiB, and the kernel has to clear and enter each. Pages of 2 MiB take most of that away, but cost small tensors
time; so those below 8 MiB come from memory that malloc keeps. Where the kernel has no huge pages, all memory is kept.
What trains does otherwise: `steady_memory.py`.
"""

from __future__ import annotations

import logging
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from mgcaffe.engine.heap import HUGE_PAGES, MAX_BYTES, keep_freed_memory
from mgcaffe.errors import UsageError
from mgcaffe.tools.flags.computing_flags import MAX_THREADS
from mgcaffe.tools.running.cores import find_share

if TYPE_CHECKING:
    import torch

    from mgcaffe.engine.kernels.precision import Precision

_MAPPED_FROM = 8 << 20

_log = logging.getLogger(__name__)


def calm_waiting_threads() -> None:
    """Have idle OpenMP threads spin for some ten microseconds only; to be called before PyTorch is imported.

    By default they spin for milliseconds, on cores that other threads need: those that read data or reduce
    gradients, and other programs. Measured on two cores that others use as well, digits example, two threads:
    450 images/s by default, 12,000 with this; 6,000 without any spinning (OMP_WAIT_POLICY=PASSIVE).
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "20000")


def speed_up_memory() -> str:
    """Make big tensors cheap to allocate; to be called before PyTorch allocates its first one.

    Returns:
        What was done: `huge pages`, `kept` (freed memory is not returned to the kernel), or `nothing`.
    """
    if _kernel_offers_huge_pages():
        # Read by PyTorch's CPU allocator, which then asks for huge pages from 2 MiB on.
        os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
        keep_freed_memory(_MAPPED_FROM)
        return "huge pages"
    return "kept" if keep_freed_memory(MAX_BYTES) else "nothing"


def _kernel_offers_huge_pages() -> bool:
    try:
        return "[never]" not in HUGE_PAGES.read_text()
    except OSError:
        return False


def set_threads(asked: int | None, local_size: int) -> int:
    """Set how many threads compute, and warn of a launcher that has bound this rank to too few cores.

    Args:
        asked: `--threads`; otherwise OMP_NUM_THREADS decides, and without it the cores over the local ranks.
        local_size: number of ranks on this host.

    Returns:
        The number of threads.

    Raises:
        UsageError: OMP_NUM_THREADS asks for more than `MAX_THREADS`.
    """
    import torch

    share = find_share(local_size)
    threads = asked or _threads_of_environment() or share.threads
    if threads > MAX_THREADS:
        raise UsageError(f"OMP_NUM_THREADS asks for {threads} compute threads; {MAX_THREADS} are the most")
    torch.set_num_threads(threads)
    if share.warning:
        _log.warning("%s", share.warning)
    return threads


def _threads_of_environment() -> int | None:
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(first) if first.isdigit() and int(first) > 0 else None


def pick_device(gpu: str | None, local_rank: int = 0, local_size: int = 1, *, flag: str = "--gpu") -> torch.device:
    """Return the device of this rank.

    Args:
        gpu: an id, a list with one for each local rank, or `all`; None means the CPU.
        local_rank, local_size: this rank among those of its host.
        flag: the flag or word that `gpu` was given by, for messages.

    Raises:
        UsageError: a GPU that does not exist, or several for one rank.
    """
    import torch

    if not gpu:
        return torch.device("cpu")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    chosen = _gpu_of_rank(gpu, count, local_rank, local_size, flag)
    torch.cuda.set_device(chosen)
    return torch.device("cuda", chosen)


def pick_precision(asked: str | None, dtype: torch.dtype, device: torch.device) -> Precision:
    """Return in how many bits a net computes products, and warn where that is slow.

    Args:
        asked: `--precision`; None: float32.
        dtype: the type of its blobs.
        device: where it computes.

    Raises:
        UsageError: it cannot.
    """
    from mgcaffe.solvers.setup.precision import precision_named

    precision, warning = precision_named(asked or "float32", device, dtype, UsageError)
    if warning:
        _log.warning("%s", warning)
    return precision


def _gpu_of_rank(gpu: str, count: int, local_rank: int, local_size: int, flag: str) -> int:
    if not count:
        raise UsageError(f"{flag} {gpu}: PyTorch finds no CUDA device here", hint=f"leave {flag} out for the CPU")
    try:
        ids = list(range(count)) if gpu == "all" else [int(word) for word in gpu.split(",")]
    except ValueError:
        raise UsageError(f"{flag} {gpu}: neither 'all' nor a list of numbers like 0,1") from None
    missing = [number for number in ids if not 0 <= number < count]
    if missing:
        raise UsageError(f"{flag} {gpu}: device {missing[0]} does not exist, this machine has {_devices(count)}")
    if len(ids) > 1 and local_size == 1:
        if gpu == "all":
            return ids[0]
        raise UsageError(
            f"{flag} {gpu} names {len(ids)} devices for one rank",
            hint=f"one rank uses one device; start {len(ids)} of them: mpirun -n {len(ids)} engine ...",
        )
    if local_rank >= len(ids):
        _log.warning("%d ranks share the %d GPUs of %s %s", local_size, len(ids), flag, gpu)
    return ids[local_rank % len(ids)]


def _devices(count: int) -> str:
    return "device 0 only" if count == 1 else f"devices 0 to {count - 1}"


def processor_name() -> str:
    """Return the CPU's model as the kernel calls it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def dtype_named(name: str) -> torch.dtype:
    """`float32` or `float64` as PyTorch's type."""
    import torch

    return {"float32": torch.float32, "float64": torch.float64}[name]
