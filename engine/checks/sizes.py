"""Refuses blobs and parameters that the machine cannot hold before PyTorch is asked, and says whose allocation failed.

PyTorch's own words for both name neither layer nor blob; and where the kernel promises more memory than there is, it
kills the process instead.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mgcaffe.errors import EngineError

if TYPE_CHECKING:
    from mgcaffe.engine.layer import Layer
    from mgcaffe.engine.parameter import Parameter

LARGEST_BYTES = 2**63 - 1
"""What a 64-bit machine can address, and PyTorch count."""
HINT = "lower batch_size (iter_size makes up for it), or num_output if it is larger than it should be"
"""What to do about memory that does not suffice."""

# How PyTorch's allocators say it, for the CPU and for CUDA.
_OUT_OF_MEMORY = re.compile("can't allocate memory|out of memory|Storage size calculation overflowed")
_ASKED_FOR = re.compile(r"[Tt]ried to allocate ([\d.]+ \w+)")
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def check_top(layer: Layer, number: int, name: str, shape: Sequence[int], field: str = "top") -> None:
    """Refuses a top blob that cannot exist; of a net that is only looked at, nothing but what no machine can count.

    Raises:
        NetError: at the layer's place, with the blob's name, shape and size.
    """
    outline = layer.context.outline
    size = math.prod(shape) * layer.context.dtype.itemsize
    if size > (LARGEST_BYTES if outline else _memory(layer.context.device)):
        given = field != "top" or number < len(layer.param.top)
        _refuse(layer, f"top blob '{name}' of shape {_text(shape)}", size, field if given else None, number)


def check_inputs(layer: Layer) -> None:
    """The same for an Input layer, whose blobs are made before the net knows their shapes."""
    for number, shape in enumerate(layer.param.input_param.shape):
        if all(size >= 0 for size in shape.dim) and number < len(layer.param.top):
            check_top(layer, number, layer.param.top[number], shape.dim, "input_param.shape")


def check_parameter(layer: Layer, number: int, shape: Sequence[int]) -> None:
    """Refuses a parameter that cannot exist.

    Raises:
        NetError: at the layer's place, with the parameter's number, shape and size.
    """
    size = math.prod(shape) * layer.context.dtype.itemsize
    if size > _memory(layer.context.device):
        _refuse(layer, f"parameter {number} of shape {_text(shape)}", size)


def check_all(layers: Sequence[Layer], owned: Iterable[tuple[int, str, Parameter]]) -> None:
    """Refuses parameters that one by one fit into memory, but not together with their gradients.

    Raises:
        NetError: at the place of the layer with the largest one.
    """
    counts = [(parameter.count, index, parameter) for index, _, parameter in owned]
    if not counts:
        return
    _, index, largest = max(counts, key=lambda entry: entry[0])
    layer = layers[index]
    size = 2 * sum(count for count, _, _ in counts) * layer.context.dtype.itemsize
    if size > _memory(layer.context.device):
        number = next(place for place, parameter in enumerate(layer.parameters) if parameter is largest)
        what = f"all parameters with their gradients, the largest being parameter {number} of shape"
        _refuse(layer, f"{what} {_text(largest.shape)},", size)


@contextmanager
def named(layer: Layer, doing: str) -> Iterator[None]:
    """Gives an allocation that fails in the block the layer's name; too slow for every pass (`explain`)."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        explain(layer, doing, error)
        raise


def explain(layer: Layer, doing: str, error: BaseException) -> None:
    """Raises an error that names the layer if `error` says that memory could not be had; returns if it does not.

    Args:
        layer: that asked for it.
        doing: `forward`, `backward` or the like.
        error: what PyTorch raised.

    Raises:
        EngineError: with exit code 1, since it may be for want of memory that others use.
    """
    if is_about_memory(error):
        # Layers that run as one have the name, but not the type, of their first.
        first = getattr(layer, "members", [layer])[0]
        tops = ", ".join(f"'{name}'" for name in layer.param.top)
        where = f" (top {tops})" if tops else ""
        first.fail(f"out of memory{asked_for(error)}, {doing}{where}", hint=HINT, error=EngineError)


def is_about_memory(error: BaseException) -> bool:
    """Whether an error says that memory could not be had."""
    return isinstance(error, MemoryError) or _OUT_OF_MEMORY.search(str(error)) is not None


def asked_for(error: BaseException) -> str:
    """`: 2.5 GiB were asked for at once`, or nothing where the error does not tell."""
    asked = _ASKED_FOR.search(str(error))
    if asked is None:
        return ""
    amount, unit = asked.group(1).split()
    text = gib(int(amount)) if unit == "bytes" and int(amount) >= 1 << 20 else asked.group(1)
    return f": {text} were asked for at once"


def gib(size: int) -> str:
    """A number of bytes in GiB: `23.5 GiB`, `3,725.3 GiB`, `3.73e+06 GiB`."""
    value = size / 2**30
    return f"{value:,.1f} GiB" if value < 1e6 else f"{value:.3g} GiB"


def _refuse(layer: Layer, what: str, size: int, field: str | None = None, number: int = 0) -> None:
    if size > LARGEST_BYTES:
        layer.fail(f"{what} would take {gib(size)}, more than any machine can address", field, index=number)
    where = "the GPU has" if layer.context.device.type == "cuda" else "this machine has"
    text = f"{what} would take {gib(size)}, and {where} {gib(_memory(layer.context.device))} of memory"
    layer.fail(text, field, index=number, hint=HINT)


def _text(shape: Iterable[int]) -> str:
    return "x".join(str(size) for size in shape) or "()"


@functools.cache
def _memory(device: Any) -> int:
    """The bytes that a device has at most."""
    if device.type == "cuda":
        import torch

        return int(torch.cuda.get_device_properties(device).total_memory)
    return machine_memory() if device.type == "cpu" else LARGEST_BYTES


def machine_memory(root: Path = Path("/")) -> int:
    """The bytes of memory and swap, or fewer where a container's limit says so.

    Args:
        root: where /proc and /sys are found.
    """
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        fields = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
        memory, swap = fields["MemTotal"] << 10, fields.get("SwapTotal", 0) << 10
    except (OSError, ValueError, KeyError, IndexError):
        return LARGEST_BYTES
    for path in _LIMITS:
        try:
            memory = min(memory, int((root / path.lstrip("/")).read_text()))
        except (OSError, ValueError):
            # No such limit, or the word `max`.
            continue
    return memory + swap
