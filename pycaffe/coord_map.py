"""Which pixel of one blob lies over which of another, and the crops that this asks for (Caffe: coord_map.py).

A coordinate map says, for each spatial axis, that index i of a layer's top lies over index `scale i + shift` of its
bottom: a convolution of stride s shrinks coordinates, a deconvolution stretches them. Fully convolutional nets use
this to crop an upsampled score to the image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mgcaffe.pycaffe.net_spec import Function, Top, layers
from mgcaffe.pycaffe.problems import AxisMismatchError, CropError, UnconnectedTopsError, UndefinedMapError

AxisMismatchException = AxisMismatchError
UndefinedMapException = UndefinedMapError

# Layers whose tops have the coordinates of their bottoms.
PASS_THROUGH_LAYERS = frozenset(
    [
        "AbsVal",
        "BatchNorm",
        "Bias",
        "BNLL",
        "Clip",
        "Concat",
        "Dropout",
        "ELU",
        "Eltwise",
        "Exp",
        "GELU",
        "HardSigmoid",
        "HardSwish",
        "LRN",
        "Log",
        "MVN",
        "PReLU",
        "Power",
        "ReLU",
        "Scale",
        "Sigmoid",
        "Softmax",
        "Split",
        "Swish",
        "TanH",
        "Threshold",
    ]
)
_FIELDS = {
    "Convolution": "convolution_param",
    "Deconvolution": "convolution_param",
    "Im2col": "convolution_param",
    "Pooling": "pooling_param",
    "Crop": "crop_param",
}


@dataclass(frozen=True)
class CoordMap:
    """index -> scale * index + shift.

    Attributes:
        axis: the axis before the first spatial one; None where any will do.
        scale, shift: one a spatial axis, or one for all.
    """

    axis: int | None
    scale: NDArray[np.float64]
    shift: NDArray[np.float64]

    def after(self, first: CoordMap) -> CoordMap:
        """Return the map that applies `first`, then this one.

        Raises:
            AxisMismatchError: they belong to different axes.
        """
        axes = {axis for axis in (self.axis, first.axis) if axis is not None}
        if len(axes) > 1:
            raise AxisMismatchError(f"coordinate maps of the axes behind {self.axis} and {first.axis} cannot be joined")
        return CoordMap(next(iter(axes), None), self.scale * first.scale, self.scale * first.shift + self.shift)

    def inverse(self) -> CoordMap:
        """Return the map back."""
        return CoordMap(self.axis, 1 / self.scale, -self.shift / self.scale)


IDENTITY = CoordMap(None, np.ones(()), np.zeros(()))


def conv_params(fn: Function) -> tuple[int, NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return the axis before the spatial ones, and stride, kernel size (dilated) and padding, per axis or one for all.

    Raises:
        AxisMismatchError: they are given for several axes, but not equally many.
        UndefinedMapError: the kernel's size is not given (global pooling).
    """
    param = _fields(fn)
    axis = param.get("axis", 1)
    if "kernel_size" not in param and "kernel_h" not in param:
        raise UndefinedMapError(f"a layer of type {fn.type_name} without kernel_size has no coordinate map")
    kernel = np.array(param.get("kernel_size") or _two(param, "kernel_h", "kernel_w"), ndmin=1)
    stride = np.array(_two(param, "stride_h", "stride_w") or param.get("stride", 1), ndmin=1)
    padding = np.array(_two(param, "pad_h", "pad_w") or param.get("pad", 0), ndmin=1)
    dilation = np.array(param.get("dilation", 1), ndmin=1)
    if len({array.size for array in (kernel, stride, padding, dilation)} - {1}) > 1:
        raise AxisMismatchError(f"{fn.type_name}: kernel, stride, pad and dilation are not of equally many axes")
    return axis, stride, (kernel - 1) * dilation + 1, padding


def crop_params(fn: Function) -> tuple[int, NDArray[Any]]:
    """Return the axis and the offsets of a Crop layer."""
    param = _fields(fn)
    return param.get("axis", 2), np.array(param.get("offset", 0), ndmin=1)


def coord_map(fn: Function) -> tuple[int | None, NDArray[Any], NDArray[Any]]:
    """Return axis, scale and shift of the map from a layer's bottom to its top, the inverse of `layer_map`."""
    found = layer_map(fn).inverse()
    return found.axis, found.scale, found.shift


def layer_map(fn: Function) -> CoordMap:
    """Return which coordinates of a layer's bottom its top's lie over.

    Raises:
        UndefinedMapError: the layer has no such map (InnerProduct).
    """
    if fn.type_name in ("Convolution", "Pooling", "Im2col"):
        axis, stride, kernel, padding = conv_params(fn)
        return CoordMap(axis, stride.astype(float), (kernel - 1) / 2 - padding)
    if fn.type_name == "Deconvolution":
        axis, stride, kernel, padding = conv_params(fn)
        return CoordMap(axis, stride.astype(float), (kernel - 1) / 2 - padding).inverse()
    if fn.type_name in PASS_THROUGH_LAYERS:
        return IDENTITY
    if fn.type_name == "Crop":
        first_cropped, offset = crop_params(fn)
        return CoordMap(first_cropped - 1, np.ones(()), offset.astype(float))
    raise UndefinedMapError(f"layers of type {fn.type_name} have no coordinate map")


Map = tuple[int | None, Any, Any]
"""Axis, scale and shift, as scripts see a coordinate map."""


def compose(base_map: Map, next_map: Map) -> Map:
    """Return the map that applies the second one, then the first.

    Raises:
        AxisMismatchError: they belong to different axes.
    """
    found = _of_script(base_map).after(_of_script(next_map))
    return found.axis, found.scale, found.shift


def inverse(coord_map: Map) -> Map:
    """Return the map back."""
    found = _of_script(coord_map).inverse()
    return found.axis, found.scale, found.shift


def _of_script(given: Map) -> CoordMap:
    axis, scale, shift = given
    return CoordMap(axis, np.asarray(scale, float), np.asarray(shift, float))


def _maps_down(top: Top) -> dict[Top, CoordMap]:
    """From a top to each blob that it is made from, nearest first: which coordinates of that it lies over."""
    maps = {top: IDENTITY}
    waiting = [top]
    while waiting:
        current = waiting.pop(0)
        for bottom in _bottoms(current.fn):
            if bottom in maps:
                continue
            try:
                maps[bottom] = layer_map(current.fn).after(maps[current])
            except UndefinedMapError:
                continue
            waiting.append(bottom)
    return maps


def _bottoms(fn: Function) -> list[Top]:
    """Return the bottoms that values come from: of a Crop, bottom 0 alone."""
    return fn.inputs[:1] if fn.type_name == "Crop" else fn.inputs


def coord_map_from_to(top_from: Top, top_to: Top) -> tuple[int | None, NDArray[Any], NDArray[Any]]:
    """Return which coordinates of `top_to` the coordinates of `top_from` lie over.

    Returns:
        axis, scale, shift: index i of `top_from` lies over index scale * i + shift of `top_to`.

    Raises:
        UnconnectedTopsError: they have no common ancestor that coordinate maps lead to.
        AxisMismatchError: the layers between belong to different axes.
    """
    down_from, down_to = _maps_down(top_from), _maps_down(top_to)
    for blob, to_blob in down_to.items():
        if blob in down_from:
            found = to_blob.inverse().after(down_from[blob])
            return found.axis, found.scale, found.shift
    raise UnconnectedTopsError(
        "there is no coordinate map between the two tops",
        hint="both have to be made from one blob, by layers that keep an image's geometry",
    )


def crop_offsets(top_from: Top, top_to: Top) -> tuple[int | None, NDArray[np.int64]]:
    """Return the axis before the cropped ones and the offsets of the Crop that lays `top_from` over `top_to`.

    Raises:
        CropError: the two differ in scale, or the offset is negative or no whole number.
    """
    axis, scale, shift = coord_map_from_to(top_from, top_to)
    if not np.allclose(scale, 1):
        raise CropError(f"the tops differ in scale, by {scale}: cropping cannot make up for that")
    if not (shift <= 0).all():
        raise CropError(f"the offset would be {-shift}: a crop cannot begin before the blob does")
    offset = -np.round(shift)
    if not np.allclose(offset, -shift):
        raise CropError(f"the offset would be {-shift}, which is no whole number of pixels")
    return axis, offset.astype(np.int64)


def crop(top_from: Top, top_to: Top) -> Top:
    """Return a Crop layer that lays `top_from` over `top_to`, and cuts it to that one's size."""
    axis, offset = crop_offsets(top_from, top_to)
    param = dict(axis=2 if axis is None else axis + 1, offset=np.atleast_1d(offset).tolist())
    result: Top = layers.Crop(top_from, top_to, crop_param=param)
    return result


def _fields(fn: Function) -> Mapping[str, Any]:
    """Return the fields of a layer's own message, however they were given."""
    fields = fn.params.get(_FIELDS[fn.type_name])
    return {**fn.params, **(fields or {})}


def _two(param: Mapping[str, Any], height: str, width: str) -> list[Any] | None:
    return [param.get(height, 0), param.get(width, 0)] if height in param else None
