"""transform_param: size, crop, mirror, mean and scale of a batch (Caffe: data_transformer.cpp).

    top = (pixel - mean) * scale

resize_param: see resizing.py. img_rand_resize_lower, img_rand_resize_upper, rand_resize_ratio_lower,
rand_resize_ratio_upper, vertical_stretch_lower, vertical_stretch_upper, horizontal_stretch_lower,
horizontal_stretch_upper, interpolation_algo_down, interpolation_algo_up, allow_upscale: see random_resizing.py.
crop_size (0: none): a square, or crop_h and crop_w: a rectangle, at random in the TRAIN phase and in the centre
otherwise; mirror (false): left to right for every other record, at random, in both phases; mean_file: a mean for every
pixel of the image, resized but before cropping, or mean_value: one, or one a channel; scale (1). Channels are in the
order B, G, R. The random numbers of a record follow from its global number (see random_numbers).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from mgcaffe.engine.data import random_numbers
from mgcaffe.engine.data.batches import BatchForm, empty
from mgcaffe.engine.data.images.random_resizing import RandomResizing
from mgcaffe.engine.data.images.resizing import Misfit, Resizing
from mgcaffe.engine.types import Array, Shape
from mgcaffe.errors import DataError

__all__ = ["Misfit", "Transformer"]

_MIRROR, _TOP, _LEFT, _RESIZED, _INTERPOLATION = 1, 2, 3, 4, 5
_STEPS = 1 << 24
# This many values go through all steps at a time, and stay in the second-level cache in between.
_VALUES_AT_ONCE = 1 << 17
# Reordering axes plane by plane is several times faster while there are few planes.
_FEW_PLANES = 4
Run = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]
"""Calls a function with each of these and returns the results in order; perhaps in several threads."""


def in_turn(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Call a function with each of the items."""
    return [function(item) for item in items]


class Transformer:
    """Makes arrays for the net out of images.

    Args:
        crop_size: edge of the square that is cut out, or height and width of the rectangle; 0 for none.
        mirror: whether records are mirrored at random.
        scale: factor on everything.
        mean: an array of the shape of the uncropped image, or values (one, or one a channel), or None.
        random_crop: crop at random rather than in the centre.
        resizing: how images are resized first.
        random_resizing: how they are resized first, each to a size of its own.
    """

    def __init__(
        self,
        *,
        crop_size: int | tuple[int, int] = 0,
        mirror: bool = False,
        scale: float = 1.0,
        mean: Array | None = None,
        random_crop: bool = False,
        resizing: Resizing | None = None,
        random_resizing: RandomResizing | None = None,
    ) -> None:
        self._is_square = isinstance(crop_size, int)
        self._crop = (crop_size, crop_size) if isinstance(crop_size, int) else crop_size
        self._mirror, self._scale, self._resizing = mirror, scale, resizing
        self._mean_image = mean if mean is not None and mean.ndim == 3 else None
        self._mean_values = mean if mean is not None and mean.ndim == 1 else None
        self._random_crop, self._random_resizing = random_crop, random_resizing
        self._means: dict[object, Array] = {}

    def output_shape(self, shape: Shape) -> Shape:
        """Return the shape that an image of `shape` (channels, height, width) gets.

        Raises:
            Misfit: the image is smaller than the crop, or the mean does not fit it.
        """
        if self._random_resizing is not None and self._random_resizing.may_grow:
            return self._window_shape((shape[0], *(max(pair) for pair in zip(shape[1:], self._crop, strict=True))))
        return self._window_shape(self._resizing.output_shape(shape) if self._resizing else shape)

    def _window_shape(self, shape: Shape) -> Shape:
        """Return the shape of the window that is cut out of a resized image of `shape`."""
        channels, height, width = shape
        if self._mean_image is not None and self._random_resizing is not None:
            self._check_mean_of_window(channels)
        elif self._mean_image is not None and self._mean_image.shape != shape:
            raise Misfit(
                "mean_file",
                f"the mean file has shape {_times(self._mean_image.shape)}, the image (before cropping) has"
                f" {_times(shape)}{' after resizing' if self._resizing else ''}",
            )
        if self._mean_values is not None and len(self._mean_values) not in (1, channels):
            raise Misfit(
                "mean_value",
                f"mean_value is given {len(self._mean_values)} times, but images have {channels} channel(s)",
                "give it once, or once for every channel",
            )
        if not any(self._crop):
            return shape
        if self._crop[0] > height or self._crop[1] > width:
            field = "crop_size" if self._is_square else "crop_h"
            what = f"crop_size {self._crop[0]}" if self._is_square else f"crop_h x crop_w {_times(self._crop)}"
            raise Misfit(field, f"{what} is larger than the image, {height} x {width}")
        return (channels, *self._crop)

    def _check_mean_of_window(self, channels: int) -> None:
        """Check that the mean image covers a window: its centre belongs to each where images differ in size."""
        assert self._mean_image is not None
        mean_channels, height, width = self._mean_image.shape
        if mean_channels != channels or height < self._crop[0] or width < self._crop[1]:
            raise Misfit(
                "mean_file",
                f"the mean file has shape {_times(self._mean_image.shape)}, and with a random size of images it needs"
                f" {channels} channel(s) and at least the crop's size, {_times(self._crop)}",
            )

    def __call__(
        self,
        images: Sequence[Array],
        records: Sequence[int],
        form: BatchForm,
        describe: Callable[[int], str],
        run: Run = in_turn,
    ) -> Array:
        """Return the batch of these images.

        Args:
            images: channels x height x width each, uint8 or float.
            records: their global numbers.
            form: what the batch has to look like.
            describe: what to call an image of the batch in a message.
            run: goes through parts of the batch, each of which is written by itself.

        Raises:
            DataError: images that do not fit the transformation, or each other.
        """
        resized = self._resized(images, records, form, describe, run)
        self._check(resized, describe)
        windows = self._windows(resized, records, form)
        self._prepare_means(resized[0].shape, windows, form)
        values = form.empty((len(resized), *self._window_shape(resized[0].shape)))
        step = max(1, _VALUES_AT_ONCE // max(1, values[0].size))

        def fill(start: int) -> None:
            chunk = slice(start, start + step)
            self._fill(values[chunk], resized[chunk], windows[chunk], form)

        run(fill, range(0, len(resized), step))
        return values

    def _fill(
        self, values: Array, images: Sequence[Array], windows: Sequence[tuple[int, int, bool]], form: BatchForm
    ) -> None:
        """Transform some of a batch's images."""
        values[...] = self._stage(images, windows, form)
        self._subtract_mean(values, windows, form)
        if self._scale != 1:
            np.multiply(values, form.dtype.type(self._scale), out=values)

    def _prepare_means(self, shape: Shape, windows: Sequence[tuple[int, int, bool]], form: BatchForm) -> None:
        """Make the means that the batch needs before several threads ask for them."""
        if self._mean_values is not None:
            self._constant_mean(self._window_shape(shape), form)
        if self._mean_image is not None:
            for mirrored in {mirrored for _, _, mirrored in windows}:
                self._oriented_mean(mirrored, form)

    def _resized(
        self,
        images: Sequence[Array],
        records: Sequence[int],
        form: BatchForm,
        describe: Callable[[int], str],
        run: Run,
    ) -> Sequence[Array]:
        if self._random_resizing is not None:
            resize_all = partial(self._random_resizing, images, records)
            (together,) = run(resize_all, [form.stream])
            return list(together)
        if self._resizing is None:
            return images
        resizing = self._resizing
        count, choices = len(images), len(self._resizing.interpolations)
        choice = random_numbers.below(form.stream ^ _INTERPOLATION, records, np.full(count, choices)).tolist()
        draws = random_numbers.below(form.stream ^ _RESIZED, records, np.full(count, _STEPS))
        wanted = (draws < self._resizing.probability * _STEPS).tolist()

        def resize(number: int) -> Array:
            image = images[number]
            try:
                resizing.output_shape(image.shape)
            except Misfit as error:
                raise DataError(f"{describe(number)}: {error.message}", hint=error.hint) from error
            return resizing(image, choice[number]) if wanted[number] else image

        return list(run(resize, range(count)))

    def _check(self, images: Sequence[Array], describe: Callable[[int], str]) -> None:
        first, expected = None, None
        for number, image in enumerate(images):
            if image.shape == first:
                continue
            try:
                shape = self._window_shape(image.shape)
            except Misfit as error:
                raise DataError(f"{describe(number)}: {error.message}", hint=error.hint) from error
            if first is None:
                first, expected = image.shape, shape
            elif shape != expected:
                raise DataError(
                    f"{describe(number)} has shape {_times(image.shape)}, the batch's first {_times(first)}",
                    hint="give all images one size, crop them (crop_size), resize them (resize_param), or use a"
                    " batch_size of 1",
                )

    def _windows(self, images: Sequence[Array], records: Sequence[int], form: BatchForm) -> list[tuple[int, int, bool]]:
        """Top, left and mirror flag of every image's window."""
        count = len(images)
        mirrored = np.zeros(count, bool)
        if self._mirror:
            mirrored = random_numbers.below(form.stream ^ _MIRROR, records, np.full(count, 2)) == 1
        if not any(self._crop):
            return [(0, 0, flag) for flag in mirrored.tolist()]
        spare = np.array([image.shape[1:] for image in images]) - np.array(self._crop)
        offsets = spare // 2
        if self._random_crop:
            offsets[:, 0] = random_numbers.below(form.stream ^ _TOP, records, spare[:, 0] + 1)
            offsets[:, 1] = random_numbers.below(form.stream ^ _LEFT, records, spare[:, 1] + 1)
        return list(zip(offsets[:, 0].tolist(), offsets[:, 1].tolist(), mirrored.tolist(), strict=True))

    def _stage(self, images: Sequence[Array], windows: Sequence[tuple[int, int, bool]], form: BatchForm) -> Array:
        """Return windows side by side, still in the images' own type, which is quick to move about."""
        channels, height, width = self._window_shape(images[0].shape)
        dtype = np.dtype(np.uint8) if all(image.dtype == np.uint8 for image in images) else form.dtype
        staged = empty((len(images), channels, height, width), dtype, form.channels_last)
        for slot, image, (top, left, mirrored) in zip(staged, images, windows, strict=True):
            window = image[:, top : top + height, left : left + width]
            _copy(slot, window[:, :, ::-1] if mirrored else window)
        return staged

    def _subtract_mean(self, values: Array, windows: Sequence[tuple[int, int, bool]], form: BatchForm) -> None:
        if self._mean_values is not None:
            values -= self._constant_mean(values.shape[1:], form)
        if self._mean_image is None:
            return
        height, width = values.shape[2:]
        for image, (top, left, mirrored) in zip(values, windows, strict=True):
            mean = self._oriented_mean(mirrored, form)
            if self._random_resizing is not None:
                top, left = (mean.shape[1] - height) // 2, (self._mean_image.shape[2] - width) // 2
            if mirrored:
                left = mean.shape[2] - width - left
            image -= mean[:, top : top + height, left : left + width]

    def _constant_mean(self, shape: Shape, form: BatchForm) -> Array:
        """Return the mean values spread out to a whole image, which is subtracted faster than a value a channel."""
        key = (shape, form.dtype, form.channels_last)
        if key not in self._means:
            assert self._mean_values is not None
            self._means = {key: empty((1, *shape), form.dtype, form.channels_last)}
            self._means[key][...] = self._mean_values.reshape(1, -1, 1, 1)
        return self._means[key]

    def _oriented_mean(self, mirrored: bool, form: BatchForm) -> Array:
        """Return the mean image as it is or mirrored, in the batch's type and memory order."""
        key = (mirrored, form.dtype, form.channels_last)
        if key not in self._means:
            assert self._mean_image is not None
            mean = empty((1, *self._mean_image.shape), form.dtype, form.channels_last)
            mean[...] = self._mean_image[:, :, ::-1] if mirrored else self._mean_image
            self._means[key] = mean[0]
        return self._means[key]


def _copy(target: Array, source: Array) -> None:
    if len(target) > _FEW_PLANES:
        target[...] = source
        return
    for target_plane, source_plane in zip(target, source, strict=True):
        target_plane[...] = source_plane


def _times(shape: Shape) -> str:
    return " x ".join(map(str, shape))
