"""Reads kernel, stride, pad and dilation of convolution_param, with all of Caffe's checks.

Each is a repeated field with one number for all spatial axes or one for each; with two spatial axes kernel,
stride and pad may be given as `_h` and `_w` fields instead, never both ways at once. DeepLab's nets call dilation hole.
(Caffe: base_conv_layer.cpp.)
"""

from __future__ import annotations

from mgcaffe.engine.kernels.geometry import Geometry
from mgcaffe.engine.layer import Layer
from mgcaffe.prototxt import ConvolutionParameter, has_field

_PATH = "convolution_param"


def read_geometry(layer: Layer, spatial_axes: int) -> Geometry:
    """Return the geometry that the layer's convolution_param describes for that many spatial axes.

    Raises:
        NetError: a missing, zero, doubled or miscounted field.
    """
    message = layer.param.convolution_param
    kernel = _read(layer, message, "kernel_size", "kernel", spatial_axes, None, 1)
    stride = _read(layer, message, "stride", "stride", spatial_axes, 1, 1)
    pad = _read(layer, message, "pad", "pad", spatial_axes, 0, 0)
    dilation = _read(layer, message, "dilation", None, spatial_axes, 1, 1)
    given = ["hole"] if message.hole else [name for name in ("hole_h", "hole_w") if has_field(message, name)]
    if given:
        if message.dilation:
            layer.fail(f"{given[0]} is dilation by another name: give one of them only", f"{_PATH}.{given[0]}")
        dilation = _read(layer, message, "hole", "hole", spatial_axes, 1, 1)
    return Geometry(kernel, stride, pad, dilation, message.group)


def _read(
    layer: Layer,
    message: ConvolutionParameter,
    field: str,
    short: str | None,
    axes: int,
    default: int | None,
    least: int,
) -> tuple[int, ...]:
    """Return one number an axis; `default` None means that the field has to be given, `short` names its _h and _w."""
    values = [int(value) for value in getattr(message, field)]
    names = [field] * len(values)
    pair = [f"{short}_{side}" for side in "hw"] if short else []
    given = [name for name in pair if has_field(message, name)]
    if given:
        if axes != 2:
            layer.fail(f"{' and '.join(pair)} need 2 spatial axes, the bottom has {axes}", f"{_PATH}.{given[0]}")
        if values:
            layer.fail(f"give either {field} or {' and '.join(pair)}, not both", f"{_PATH}.{given[0]}")
        names, values = pair, [int(getattr(message, name)) for name in pair]
    if not values and default is not None:
        names, values = [field], [default]
    where = f"{_PATH}.{(given or names)[0]}" if values else _PATH
    if len(values) not in (1, axes):
        wanted = "one number" if axes == 1 else f"one number, or {axes}"
        layer.fail(f"{field} needs {wanted} for {axes} spatial axes, not {len(values)}", where)
    for name, value in zip(names, values, strict=True):
        if value < least:
            layer.fail(f"{name} has to be at least {least}, not {value}", where)
    return tuple(values if len(values) == axes else values * axes)
