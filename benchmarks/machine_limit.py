"""What a machine reaches at most: its best matrix product, and its best copy.

python benchmarks/machine_limit.py --threads 1
python benchmarks/machine_limit.py --device cuda --precision tf32
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

PRECISIONS = ("float32", "tf32", "bf16", "fp16")
_OPERANDS = {"bf16": "bfloat16", "fp16": "float16"}
_CPU_SIZES, _GPU_SIZES = (512, 1024), (2048, 4096, 8192)
_CPU_COPY, _GPU_COPY = 1 << 26, 1 << 30
_SECONDS = 0.5


def set_precision(device: str, precision: str) -> None:
    """Let products of float32 on a GPU be exact, or rounded to TF32; for bf16 and fp16 they are as PyTorch has them."""
    import torch

    if device == "cuda" and precision not in _OPERANDS:
        torch.backends.cudnn.allow_tf32 = precision == "tf32"
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"


def measure(device: str, precision: str, threads: int) -> dict[str, Any]:
    """Return the best product in GFLOP/s and the best copy in GB/s (read and written), over some sizes and repeats."""
    import torch

    torch.set_num_threads(threads)
    set_precision(device, precision)
    dtype = getattr(torch, _OPERANDS.get(precision, "float32"))
    synchronize: Callable[[], None] = torch.cuda.synchronize if device == "cuda" else _nothing
    products = {}
    for size in _GPU_SIZES if device == "cuda" else _CPU_SIZES:
        a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
        out = torch.empty(size, size, device=device, dtype=dtype)
        ways = [lambda a=a, b=b, out=out: torch.mm(a, b, out=out)]
        if device == "cpu" and hasattr(torch.ops.mkldnn, "_linear_pointwise"):
            # PyTorch's own product goes to a BLAS that on some processors runs at half of oneDNN's speed.
            ways.append(lambda a=a, b=b: torch.ops.mkldnn._linear_pointwise(a, b, None, "none", [], ""))
        products[size] = 2e-9 * size**3 / min(_best(way, synchronize) for way in ways)
    source = torch.ones((_GPU_COPY if device == "cuda" else _CPU_COPY) // 4, device=device)
    target = torch.empty_like(source)
    copy = 2e-9 * source.nbytes / _best(lambda: target.copy_(source), synchronize)
    size = max(products, key=lambda each: products[each])
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "precision": precision, "threads": threads, "gflops": products[size], "size": size, "gbytes": copy,
    }  # fmt: skip


def _nothing() -> None:
    """Do nothing: the CPU has finished when a call returns."""


def _best(work: Callable[[], object], synchronize: Callable[[], None]) -> float:
    """Return the shortest of as many repeats as fit into half a second, at least three, after one that warms up."""
    work()
    synchronize()
    began, times = time.perf_counter(), []
    while len(times) < 3 or time.perf_counter() - began < _SECONDS:
        start = time.perf_counter()
        work()
        synchronize()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Print what was measured as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=PRECISIONS, default="float32")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    print(json.dumps(measure(options.device, options.precision, options.threads)))


if __name__ == "__main__":
    main()
