"""img_rand_resize_lower and the fields beside it: a size of its own for each image, before it is cropped.

(NVIDIA's Caffe: data_transformer.cpp, image_random_resize.)

    size  = a whole number from img_rand_resize_lower to img_rand_resize_upper; without them the shorter side as it is
    scale = size / shorter side, for both sides, so that proportions are kept
    ratio = from rand_resize_ratio_lower to rand_resize_ratio_upper (1 or more): the longer side becomes ratio times the
            shorter one, of a square one of the two at random
    then the height times vertical_stretch_lower (1) to vertical_stretch_upper (1),
         the width times horizontal_stretch_lower (1) to horizontal_stretch_upper (1)

Sides are rounded, at least those of the crop, and, without allow_upscale (false), at most those of the image. What
grows in neither direction is interpolated as interpolation_algo_down says (INTER_NEAREST), all else as
interpolation_algo_up says (INTER_CUBIC). Numbers are drawn in both phases, as in the fork; where lower and upper are
equal, nothing is random. It needs crop_size, or crop_h and crop_w, since a batch has one size. A mean_file may be
larger than the crop: its centre belongs to each window, wherever that was cut out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mgcaffe.engine.data import random_numbers
from mgcaffe.engine.data.images.interpolation import resize
from mgcaffe.engine.data.images.resizing import MAX_SIDE, Misfit
from mgcaffe.engine.types import Array
from mgcaffe.prototxt import TransformationParameter, has_field

FIELDS = (
    *("img_rand_resize_lower", "img_rand_resize_upper", "rand_resize_ratio_lower", "rand_resize_ratio_upper"),
    *("vertical_stretch_lower", "vertical_stretch_upper", "horizontal_stretch_lower", "horizontal_stretch_upper"),
    *("interpolation_algo_down", "interpolation_algo_up", "allow_upscale"),
)
_SIZE, _RATIO, _SIDE, _VERTICAL, _HORIZONTAL = 6, 7, 8, 9, 10
_STEPS = (1 << 31) - 1

Range = tuple[float, float]


@dataclass(frozen=True)
class RandomResizing:
    """What a transform_param asks for; every pair is a lower and an upper bound.

    Attributes:
        crop: height and width that an image has at least, as far as it may grow.
        sizes: of the shorter side, in pixels; None to keep it.
        ratios: of the longer side to the shorter one; None to keep it.
        vertical, horizontal: factors on height and width.
        down, up: interpolations for shrinking and for growing.
        may_grow: whether an image may become higher or wider than it is.
    """

    crop: tuple[int, int]
    sizes: tuple[int, int] | None = None
    ratios: Range | None = None
    vertical: Range = (1.0, 1.0)
    horizontal: Range = (1.0, 1.0)
    down: str = "NEAREST"
    up: str = "CUBIC"
    may_grow: bool = False

    def __call__(self, images: Sequence[Array], records: Sequence[int], stream: int) -> list[Array]:
        """Return the images (channels x height x width each) resized.

        Args:
            images: bytes or floats.
            records: their global numbers, from which each image's size follows.
            stream: of the layer's random numbers.
        """
        sizes = self._sizes([image.shape[1:] for image in images], records, stream)
        return [
            resize(image, height, width, self._interpolation(image, height, width))
            for image, (height, width) in zip(images, sizes.tolist(), strict=True)
        ]

    def _interpolation(self, image: Array, height: int, width: int) -> str:
        return self.down if height <= image.shape[1] and width <= image.shape[2] else self.up

    def _sizes(self, shapes: Sequence[tuple[int, ...]], records: Sequence[int], stream: int) -> NDArray[np.int64]:
        """Return the new height and width of each image, in float32 as the fork computes them."""
        given = np.array(shapes, np.int64).reshape(-1, 2)
        shorter = np.maximum(given.min(axis=1), 1)
        wanted = shorter
        if self.sizes is not None:
            low, high = self.sizes
            wanted = low + random_numbers.below(stream ^ _SIZE, records, np.full(len(given), high - low + 1))
        scale = wanted.astype(np.float32) / shorter.astype(np.float32)
        sides = scale[:, None] * given.astype(np.float32)
        if self.ratios is not None:
            self._set_ratio(sides, records, stream)
        sides[:, 0] *= _between(self.vertical, records, stream ^ _VERTICAL)
        sides[:, 1] *= _between(self.horizontal, records, stream ^ _HORIZONTAL)
        new = np.maximum(np.floor(sides + np.float32(0.5)).astype(np.int64), np.array(self.crop))
        limited: NDArray[np.int64] = np.minimum(new, MAX_SIDE if self.may_grow else given)
        return limited

    def _set_ratio(self, sides: NDArray[np.float32], records: Sequence[int], stream: int) -> None:
        assert self.ratios is not None
        ratio = _between(self.ratios, records, stream ^ _RATIO)
        heads = random_numbers.below(stream ^ _SIDE, records, np.full(len(sides), 2)) == 1
        height, width = sides[:, 0].copy(), sides[:, 1].copy()
        widens = (width > height) | ((width == height) & heads)
        sides[:, 1] = np.where(widens, height * ratio, width)
        sides[:, 0] = np.where(widens, height, width * ratio)


def _between(bounds: Range, records: Sequence[int], stream: int) -> NDArray[np.float32]:
    """Return for each record a number within the bounds, whichever of them is the lower one."""
    low, high = min(bounds), max(bounds)
    steps = random_numbers.below(stream, records, np.full(len(records), _STEPS))
    return (low + (high - low) * steps / (_STEPS - 1)).astype(np.float32)


def read_random_resizing(param: TransformationParameter, crop: tuple[int, int]) -> RandomResizing | None:
    """Return what a TransformationParameter message asks for, None if nothing of this kind.

    Args:
        param: the message.
        crop: height and width of the crop, zeros for none.

    Raises:
        Misfit: a field out of range, or no crop.
    """
    sizes = _sizes(param)
    ratios = _ratios(param)
    vertical, horizontal = (_stretch(param, f"{side}_stretch") for side in ("vertical", "horizontal"))
    if sizes is None and ratios is None and vertical == horizontal == (1, 1):
        return None
    field = next(name for name in FIELDS if has_field(param, name))
    if not any(crop):
        raise Misfit(
            field, f"{field} gives each image a size of its own", "set crop_size, so that a batch has one size"
        )
    if param.HasField("resize_param"):
        raise Misfit(field, f"{field} and resize_param exclude each other", "keep one of them")
    name = param.InterpolationAlgo.Name
    return RandomResizing(
        crop,
        sizes,
        ratios,
        vertical,
        horizontal,
        name(param.interpolation_algo_down).removeprefix("INTER_"),
        name(param.interpolation_algo_up).removeprefix("INTER_"),
        param.allow_upscale,
    )


def _sizes(param: TransformationParameter) -> tuple[int, int] | None:
    low, high = param.img_rand_resize_lower, param.img_rand_resize_upper
    if not low and not high:
        return None
    field = "img_rand_resize_upper" if high else "img_rand_resize_lower"
    if not low or not high:
        raise Misfit(field, "img_rand_resize_lower and img_rand_resize_upper go together", "give both or neither")
    if low > high:
        raise Misfit(field, f"img_rand_resize_upper is {high}, less than img_rand_resize_lower, {low}")
    if high > MAX_SIDE:
        raise Misfit(field, f"img_rand_resize_upper is {high}; images have at most {MAX_SIDE} pixels a side")
    return low, high


def _ratios(param: TransformationParameter) -> Range | None:
    low, high = param.rand_resize_ratio_lower, param.rand_resize_ratio_upper
    if not low and not high:
        return None
    if not 1 <= low <= high <= MAX_SIDE:
        raise Misfit(
            "rand_resize_ratio_upper" if high else "rand_resize_ratio_lower",
            f"rand_resize_ratio_lower is {low:g} and rand_resize_ratio_upper {high:g}; they go together, are at least"
            " 1, and the upper one is not below the lower one",
        )
    return None if high == 1 else (low, high)


def _stretch(param: TransformationParameter, name: str) -> Range:
    low, high = getattr(param, f"{name}_lower"), getattr(param, f"{name}_upper")
    for field, value in ((f"{name}_lower", low), (f"{name}_upper", high)):
        if not (0 < value <= MAX_SIDE and math.isfinite(value)):
            raise Misfit(field, f"{field} is {value:g} and must be above 0 and at most {MAX_SIDE}")
    return low, high
