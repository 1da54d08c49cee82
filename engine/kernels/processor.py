"""What the operating system says of this processor, and the classes of processors that rules tell apart.

Fields and flags are those of /proc/cpuinfo; where there is none, nothing is known.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path

import torch

_INTEL = "GenuineIntel"
_OF_MODEL = {"cpu family": "family", "model": "model"}


@functools.cache
def fields() -> Mapping[str, str]:
    """Return the fields of the first processor."""
    found: dict[str, str] = {}
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return found
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip(), value.strip())
    return found


@functools.cache
def flags() -> frozenset[str]:
    """Return what the processor can do; Linux calls it "Features" on ARM."""
    known = fields()
    return frozenset(f"{known.get('flags', '')} {known.get('Features', '')}".split())


def name() -> str:
    """Return the CPU's model; virtual machines often hide all but family and model."""
    known = fields()
    numbers = ", ".join(f"{label} {known[field]}" for field, label in _OF_MODEL.items() if field in known)
    return f"{known.get('model name', os.uname().machine)}{f' ({numbers})' if numbers else ''}"


def multiplies_bf16() -> bool:
    """Return whether the processor has instructions for products in bfloat16 that are faster than those in float32.

    Those of AVX-512 ("avx512_bf16") reach twice the rate of float32 on EPYCs, but on a Xeon (family 6, model 207) half
    of it: 93 GFLOP/s, and 173 in float32. Those of AMX reach 1,200 to 1,300 there. ARM's ("bf16") were not measured.
    """
    if not flags().isdisjoint(("amx_bf16", "bf16")):
        return True
    return "avx512_bf16" in flags() and fields().get("vendor_id") != _INTEL


def multiplies_fast(known: Mapping[str, str], capability: str, has_mkl: bool) -> bool:
    """Return whether PyTorch's `mm` is about as fast as oneDNN's products in float32, or faster.

    Args:
        known: the processor's fields.
        capability: what PyTorch computes with, as `torch.backends.cpu.get_cpu_capability` calls it.
        has_mkl: whether PyTorch's BLAS is Intel's, which is fast with AVX-512 on Intel's processors alone.
    """
    if capability != "AVX512":
        return capability == "AVX2"
    return has_mkl and known.get("vendor_id") == _INTEL


def is_intels() -> bool:
    """Return whether this is one of Intel's processors, and PyTorch computes with AVX-512 and MKL."""
    return FAST_MM and not ON_AVX2


ON_AVX2 = torch.backends.cpu.get_cpu_capability() == "AVX2"
"""Whether PyTorch computes with AVX2 and not with AVX-512: oneDNN's gradients for filters are slow with it.

The memory format of blobs and parameters depends neither on it nor on FAST_MM: ranks may run on different processors.
"""

FAST_MM = multiplies_fast(fields(), torch.backends.cpu.get_cpu_capability(), torch.backends.mkl.is_available())
"""Whether rules leave products of float32 to `mm`, but for those of few rows with a large weight."""
