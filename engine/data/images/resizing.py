"""resize_param: brings images to a size before they are cropped (SSD's Caffe: im_transforms.cpp, ApplyResize).

resize_mode (WARP): WARP: to height x width; FIT_SMALL_SIZE: with its proportions kept, so that one side is as given and
the other not smaller; FIT_LARGE_SIZE_AND_PAD: with its proportions kept, so that it fits into height x width, in the
middle, the rest filled as pad_mode says: CONSTANT with pad_value (0; one, or one a channel), MIRRORED about the last
pixel, REPEAT_NEAREST. interp_mode (LINEAR; AREA, NEAREST, CUBIC, LANCZOS4): where several are given, one of them at
random for each image. prob (1): how probable it is that an image is resized at all. height_scale and width_scale are
about boxes and have no effect.
SSD's own code reads no prob, and resizes encoded images only; here raw ones are resized as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mgcaffe.engine.data.images.interpolation import resize
from mgcaffe.engine.types import Array, Shape
from mgcaffe.errors import DataError
from mgcaffe.prototxt import ResizeParameter

MAX_SIDE = 1 << 16
"""The most pixels of a side that an image is resized to."""
_NUMPY_PADS = {"MIRRORED": "reflect", "REPEAT_NEAREST": "edge"}


class Misfit(DataError):
    """An image that a transformation cannot take. `field` says which field of transform_param is why."""

    def __init__(self, field: str, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.field = field


@dataclass(frozen=True)
class Resizing:
    """What a resize_param asks for; names as there.

    Attributes:
        mode: WARP, FIT_SMALL_SIZE or FIT_LARGE_SIZE_AND_PAD.
        height: rows that the mode aims at.
        width: columns that the mode aims at.
        pad_mode: CONSTANT, MIRRORED or REPEAT_NEAREST.
        pad_value: none, one, or one a channel.
        interpolations: to choose from.
        probability: of resizing an image at all.
    """

    mode: str
    height: int
    width: int
    pad_mode: str = "CONSTANT"
    pad_value: tuple[float, ...] = ()
    interpolations: tuple[str, ...] = ("LINEAR",)
    probability: float = 1.0

    def output_shape(self, shape: Shape) -> Shape:
        """Return the shape that an image of `shape` (channels, height, width) gets.

        Raises:
            Misfit: there are pad values for another number of channels.
        """
        if len(self.pad_value) not in (0, 1, shape[0]):
            raise Misfit(
                "resize_param.pad_value",
                f"pad_value is given {len(self.pad_value)} times, but images have {shape[0]} channel(s)",
                "give it once, or once for every channel",
            )
        if self.mode == "FIT_SMALL_SIZE":
            return (shape[0], *self._scaled(*shape[1:]))
        return shape[0], self.height, self.width

    def _scaled(self, rows: int, columns: int) -> tuple[int, int]:
        """Return the size of the image itself, without padding."""
        if self.mode == "WARP":
            return self.height, self.width
        # In float32, as in SSD's code, where rounding can tip a size over.
        proportion = np.float32(columns) / np.float32(rows)
        is_wide = bool(proportion > np.float32(self.width) / np.float32(self.height))
        if self.mode == "FIT_SMALL_SIZE":
            is_narrow = bool(proportion < np.float32(self.width) / np.float32(self.height))
            width_counts = is_narrow
        else:
            width_counts = is_wide
        if width_counts:
            return max(1, math.floor(np.float32(self.width) / proportion)), self.width
        return self.height, max(1, math.floor(proportion * np.float32(self.height)))

    def __call__(self, image: Array, choice: int) -> Array:
        """Return the image (channels x height x width) resized.

        Args:
            image: bytes or floats.
            choice: which of the interpolations.
        """
        height, width = self._scaled(*image.shape[1:])
        resized = resize(image, height, width, self.interpolations[choice])
        if self.mode != "FIT_LARGE_SIZE_AND_PAD" or (height, width) == (self.height, self.width):
            return resized
        above, left = (self.height - height) // 2, (self.width - width) // 2
        margins = ((0, 0), (above, self.height - height - above), (left, self.width - width - left))
        if self.pad_mode in _NUMPY_PADS:
            padded: Array = np.pad(resized, margins, mode=_NUMPY_PADS[self.pad_mode])  # type: ignore[call-overload]
            return padded
        return self._on_ground(resized, above, left)

    def _on_ground(self, image: Array, above: int, left: int) -> Array:
        values = np.asarray(self.pad_value or (0.0,))
        if image.dtype == np.uint8:
            values = np.clip(np.rint(values), 0, 255)
        padded = np.empty((len(image), self.height, self.width), image.dtype)
        padded[...] = values.reshape(-1, 1, 1)
        padded[:, above : above + image.shape[1], left : left + image.shape[2]] = image
        return padded


def read_resizing(param: ResizeParameter) -> Resizing:
    """Return what a ResizeParameter message asks for.

    Raises:
        Misfit: a field out of range.
    """
    for side in ("height", "width"):
        if not getattr(param, side):
            raise Misfit(f"resize_param.{side}", f"resize_param needs a {side} above 0")
        if getattr(param, side) > MAX_SIDE:
            given = f"resize_param's {side} is {getattr(param, side)}"
            raise Misfit(f"resize_param.{side}", f"{given}; images have at most {MAX_SIDE} pixels a side")
    if not 0 <= param.prob <= 1:
        raise Misfit("resize_param.prob", f"prob has to be from 0 to 1, not {param.prob:g}")
    if not all(map(math.isfinite, param.pad_value)):
        raise Misfit("resize_param.pad_value", "a pad_value has to be finite")
    names = param.Interp_mode.Name
    return Resizing(
        mode=param.Resize_mode.Name(param.resize_mode),
        height=param.height,
        width=param.width,
        pad_mode=param.Pad_mode.Name(param.pad_mode),
        pad_value=tuple(param.pad_value),
        interpolations=tuple(map(names, param.interp_mode)) or ("LINEAR",),
        probability=param.prob,
    )
