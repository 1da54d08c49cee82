"""Refuses blobs and parameters that the machine cannot hold before PyTorch is asked, and says whose allocation failed.

PyTorch's own words for both name neither layer nor blob; and where the kernel promises more memory than there is, it
kills the process instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from mgcaffe.engine.checks.memory import (
    HINT,
    MAX_BYTES,
    asked_for,
    blob_bytes,
    bytes_asked,
    device_memory,
    is_about_memory,
    is_about_range,
    shape_text,
    why_too_large,
    why_too_many_axes,
)
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.parameter import Parameter
from mgcaffe.engine.row_parameter import RowParameter
from mgcaffe.errors import EngineError, NetError


def check_top(layer: Layer, number: int, name: str, shape: Sequence[int], field: str = "top") -> None:
    """Refuse a top blob that cannot exist; of a net that is only looked at, nothing but what no machine can count.

    Raises:
        NetError: at the layer's place, with the blob's name, shape and size.
    """
    outline = layer.context.outline
    given = field if field != "top" or number < len(layer.param.top) else None
    if problem := why_too_many_axes(shape):
        layer.fail(f"top blob '{name}' {problem}", given, index=number)
    size = blob_bytes(shape, layer.context.dtype.itemsize)
    if size > (MAX_BYTES if outline else device_memory(layer.context.device)):
        _refuse(layer, f"top blob '{name}' of shape {shape_text(shape)}", size, given, number)


def check_inputs(layer: Layer) -> None:
    """Check an Input layer likewise, whose blobs are made before the net knows their shapes."""
    for number, shape in enumerate(layer.param.input_param.shape):
        if problem := why_too_many_axes(shape.dim):
            layer.fail(f"shape {number} {problem}", "input_param.shape", index=number)
        if all(size >= 0 for size in shape.dim) and number < len(layer.param.top):
            check_top(layer, number, layer.param.top[number], shape.dim, "input_param.shape")


def check_all(layers: Sequence[Layer], owned: Iterable[tuple[int, str, Parameter]]) -> None:
    """Refuse parameters that one by one fit into memory, but not together with their gradients.

    Raises:
        NetError: at the place of the layer with the largest one.
    """
    counts = [(math.prod(parameter.shape_here), index, parameter) for index, _, parameter in owned]
    if not counts:
        return
    _, index, largest = max(counts, key=lambda entry: entry[0])
    layer = layers[index]
    # The gradient of a table has only the rows that were looked up.
    values = sum(count if isinstance(parameter, RowParameter) else 2 * count for count, _, parameter in counts)
    size = values * layer.context.dtype.itemsize
    if size > device_memory(layer.context.device):
        number = next(place for place, parameter in enumerate(layer.parameters) if parameter is largest)
        what = f"all parameters with their gradients, the largest being parameter {number} of shape"
        _refuse(layer, f"{what} {shape_text(largest.shape_here)},", size)


@contextmanager
def named(layer: Layer, doing: str) -> Iterator[None]:
    """Give an allocation that fails in the block the layer's name; too slow for every pass (`explain`)."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        explain(layer, doing, error)
        raise


def explain(layer: Layer, doing: str, error: BaseException) -> None:
    """Raise an error that names the layer, if PyTorch has refused memory, or a number that its type cannot hold.

    Args:
        layer: that asked for it.
        doing: `forward`, `backward` or the like.
        error: what PyTorch raised.

    Raises:
        NetError: one allocation alone was for more than half of the machine's memory, or a number is too large.
        EngineError: with exit code 1, since it may be for want of memory that others use.
    """
    # Layers that run as one have the name, but not the type, of their first.
    first = getattr(layer, "members", [layer])[0]
    if is_about_range(error):
        kind = str(layer.context.dtype).removeprefix("torch.")
        first.fail(f"a number in its fields, or what follows from it, is too large for {kind} ({doing})")
    if is_about_memory(error):
        error_type = NetError if bytes_asked(error) > device_memory(layer.context.device) // 2 else EngineError
        tops = ", ".join(f"'{name}'" for name in layer.param.top)
        where = f" (top {tops})" if tops else ""
        first.fail(f"out of memory{asked_for(error)}, {doing}{where}", hint=HINT, error=error_type)


def _refuse(layer: Layer, what: str, size: int, field: str | None = None, number: int = 0) -> None:
    problem, hint = why_too_large(size, layer.context.device) or ("", None)
    layer.fail(f"{what} {problem}", field, index=number, hint=hint)
