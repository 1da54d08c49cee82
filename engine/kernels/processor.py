"""What the kernel says of this processor, and the classes of processors that rules tell apart.

Fields and flags are those of /proc/cpuinfo; where there is none, nothing is known.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path

import torch

_OF_MODEL = {"cpu family": "family", "model": "model"}


@functools.cache
def fields() -> Mapping[str, str]:
    """Return the fields of the first processor, by name in small letters."""
    found: dict[str, str] = {}
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return found
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip().lower(), value.strip())
    return found


def flags() -> frozenset[str]:
    """Return what the processor can do; "features" is what ARM's kernels call it."""
    known = fields()
    return frozenset(f"{known.get('flags', '')} {known.get('features', '')}".split())


def name() -> str:
    """Return the CPU's model; virtual machines often hide all but family and model."""
    known = fields()
    numbers = ", ".join(f"{label} {known[field]}" for field, label in _OF_MODEL.items() if field in known)
    return f"{known.get('model name', os.uname().machine)}{f' ({numbers})' if numbers else ''}"


def multiplies_fast(known: Mapping[str, str], capability: str, has_mkl: bool) -> bool:
    """Return whether PyTorch's `mm` is about as fast as oneDNN's products, or faster.

    Args:
        known: the processor's fields.
        capability: what PyTorch computes with, as `torch.backends.cpu.get_cpu_capability` calls it.
        has_mkl: whether its BLAS is Intel's, which is fast with AVX-512 on Intel's processors alone.
    """
    return capability == "AVX2" or (has_mkl and known.get("vendor_id") == "GenuineIntel")


ON_AVX2 = torch.backends.cpu.get_cpu_capability() == "AVX2"
"""Whether PyTorch computes with AVX2 and not with AVX-512, where oneDNN's gradients for filters are slow.

The memory format of blobs and parameters does not depend on it, nor on the next: ranks may run on different processors.
"""

FAST_MM = multiplies_fast(fields(), torch.backends.cpu.get_cpu_capability(), torch.backends.mkl.is_available())
"""Whether rules leave products to `mm` where there is no other reason for oneDNN's."""
