"""WindowData: windows of images, some with an object and some without, as R-CNN is trained on.

Every record is a window drawn at random: the last batch_size x fg_fraction of a batch, rounded down, are foreground
windows, those before background windows, whose label is 0. Where ranks train in step, a batch is that of all ranks.

Fields of `window_data_param` (default): source: a window file, see window_data_file.py; root_folder: put in front of
each path; batch_size; fg_threshold (0.5): the overlap from which on a window is foreground; bg_threshold (0.5): the
overlap below which it is background; fg_fraction (0.25): the share of foreground in a batch; context_pad (0) and
crop_mode ("warp"; "square"): see window_data_cut.py; cache_images (false): image files stay in memory. scale (1) may
stand here too, and in nets with `layers` also mirror, crop_size and mean_file.
Fields of `transform_param` (default): crop_size: required; mirror (false): left to right for every other record, at
random, in both phases; mean_file, whose middle counts, or mean_value, one or one a channel; scale (1). All others are
refused.
Fields of `data_param` (default): prefetch (4), parser_threads (0), bad_record (STOP) and bad_record_limit (100), like
those of a Data layer.
No bottoms. Tops: windows, batch x channels x crop_size x crop_size; labels, batch.
Differences from Caffe: ranks that train in step share the windows out. A window belongs to the image above it, whatever
number that has. scale may stand in transform_param too, where Caffe reads it in window_data_param only. The middle of a
mean file is taken in rows and columns, where Caffe takes the columns' for both. A window that lies outside its image,
or a file without foreground or background windows, is a located error.
(Caffe: window_data_layer.cpp.)
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mgcaffe.engine.checks.said_once import warn_once
from mgcaffe.engine.data import random_numbers
from mgcaffe.engine.data.batches import BatchForm
from mgcaffe.engine.data.data_layer import DataLayer
from mgcaffe.engine.data.images.decoding import decode_image
from mgcaffe.engine.data.images.transform_fields import read_mean, refuse_other_fields
from mgcaffe.engine.data.record_loader import BadRecordRule, RecordLoader, bad_record_rule, decode_threads
from mgcaffe.engine.data.window_data_cut import Cutter
from mgcaffe.engine.data.window_data_file import Window, WindowFile, WindowImage, read_window_file
from mgcaffe.engine.layer import exactly
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Array, Shape
from mgcaffe.errors import DataError, Location
from mgcaffe.errors.file_names import found_name, refuse_device
from mgcaffe.prototxt import has_field

_log = logging.getLogger("mgcaffe.engine")

_TRANSFORM_FIELDS = {"scale", "mean_file", "mean_value", "crop_size", "mirror"}
_READING_FIELDS = {"prefetch", "parser_threads", "bad_record", "bad_record_limit"}


class LoadedWindow(NamedTuple):
    """A window and its decoded image, uint8, channels x height x width."""

    window: Window
    image: Array


class Sampling(NamedTuple):
    """How batches are mixed.

    Attributes:
        batch: records in a batch of all ranks that train in step.
        foreground: how many of them, the last ones, are foreground.
        mirror: whether records are mirrored at random.
    """

    batch: int
    foreground: int
    mirror: bool


class WindowReader:
    """Draws windows of a window file, cuts them out, and subtracts the mean."""

    def __init__(
        self,
        file: WindowFile,
        cutter: Cutter,
        sampling: Sampling,
        *,
        mean: Array | None,
        scale: float,
        cache: bool,
        rule: BadRecordRule,
        threads: int = 1,
    ) -> None:
        self._file, self._cutter, self._sampling = file, cutter, sampling
        self._mean, self._scale = mean, scale
        self._cached: dict[str, bytes] | None = {} if cache else None
        self._told_of_size = False
        self.count = len(file.foreground) + len(file.background)
        self.record_shapes: list[Shape] = [(file.channels, cutter.crop_size, cutter.crop_size), ()]
        # A bad window is replaced by one of its own kind.
        self._loaders = [self._loader(windows, rule, threads) for windows in (file.background, file.foreground)]

    def read(self, records: Sequence[int], form: BatchForm) -> list[Array]:
        """Return windows and labels. See Reader."""
        count = len(records)
        in_front = np.asarray(records) % self._sampling.batch >= self._sampling.batch - self._sampling.foreground
        limits = np.where(in_front, len(self._file.foreground), len(self._file.background))
        chosen = random_numbers.below(random_numbers.stream(form.stream, "window"), records, limits)
        mirrored = np.zeros(count, bool)
        if self._sampling.mirror:
            two = np.full(count, 2)
            mirrored = random_numbers.below(random_numbers.stream(form.stream, "mirror"), records, two) == 1
        values = form.empty((count, *self.record_shapes[0]))
        values[...] = 0
        labels = np.empty(count, form.dtype)
        for kind, loader in enumerate(self._loaders):
            slots = np.flatnonzero(in_front == bool(kind))
            numbers, which = np.unique(chosen[slots], return_inverse=True)
            _, loaded = loader.load(numbers.tolist())
            for slot, index in zip(slots, which, strict=True):
                window, image = loaded[index]
                labels[slot] = window.label
                self._fill(values[slot], image, window, bool(mirrored[slot]))
        return [values, labels]

    def close(self) -> None:
        """End the decoding threads."""
        for loader in self._loaders:
            loader.close()

    def _loader(self, windows: NDArray[np.int64], rule: BadRecordRule, threads: int) -> RecordLoader[LoadedWindow]:
        return RecordLoader(len(windows), lambda number: self._load(Window(*windows[number].tolist())), rule, threads)

    def _load(self, window: Window) -> LoadedWindow:
        """Return the window's image, checking that the window lies in it."""
        image = self._file.images[window.image]
        pixels = self._pixels(image)
        try:
            self._cutter.region(window, *pixels.shape[1:])
        except DataError as error:
            place = Location(self._file.source, window.line, 1)
            raise DataError(f"image '{image.path}': {error.message}", location=place, hint=error.hint) from error
        return LoadedWindow(window, pixels)

    def _pixels(self, image: WindowImage) -> Array:
        try:
            encoded = self._cached.get(image.path) if self._cached is not None else None
            if encoded is None:
                refuse_device(image.path)
                encoded = Path(image.path).read_bytes()
                if self._cached is not None:
                    self._cached[image.path] = encoded
            pixels = decode_image(encoded, image.channels == 3)
        except OSError as error:
            message = f"image '{image.path}' cannot be read: {error.strerror}"
            raise DataError(message, location=image.location) from error
        except DataError as error:
            raise DataError(f"image '{image.path}': {error.message}", location=image.location) from error
        if pixels.shape[1:] != (image.height, image.width) and not self._told_of_size:
            self._told_of_size = True
            height, width = pixels.shape[1:]
            warn_once(
                _log,
                f"{image.location}: image '{image.path}' is {height} x {width} (height x width), though the window file"
                f" says {image.height} x {image.width}; its windows are taken as they are, and further images of"
                " another size are not reported",
                key=f"image sizes in {image.location.file}",
            )
        return pixels

    def _fill(self, values: Array, image: Array, window: Window, mirrored: bool) -> None:
        """Put a window into its place; what is empty stays 0."""
        part, top, left = self._cutter.cut(image, window, mirrored)
        height, width = part.shape[1:]
        place = values[:, top : top + height, left : left + width]
        place[...] = part
        if self._mean is not None:
            # A mean file's middle belongs to the square; it is not mirrored.
            is_image = self._mean.ndim == 3
            place -= self._mean[:, top : top + height, left : left + width] if is_image else self._mean[:, None, None]
        if self._scale != 1:
            place *= values.dtype.type(self._scale)


@register("WindowData")
class WindowData(DataLayer):
    """The layer; see the module's text."""

    tops = exactly(2)
    fields = "window_data_param"

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Check the fields and read the window file."""
        param, transform = self.param.window_data_param, self.param.transform_param
        refuse_other_fields(self, transform, "transform_param", _TRANSFORM_FIELDS)
        refuse_other_fields(self, self.param.data_param, "data_param", _READING_FIELDS)
        for name in ("crop_size", "mirror", "mean_file", "scale"):
            if has_field(param, name) and not has_field(transform, name):  # files are upgraded when they are read
                setattr(transform, name, getattr(param, name))
        if not transform.crop_size:
            self.fail("crop_size is missing", "transform_param", hint="say how large windows are made")
        if param.crop_mode not in ("warp", "square"):
            self.fail(f'crop_mode has to be "warp" or "square", not "{param.crop_mode}"', "window_data_param.crop_mode")
        if 2 * param.context_pad >= transform.crop_size:
            self.fail(
                f"context_pad {param.context_pad} on both sides leaves nothing of crop_size {transform.crop_size}",
                "window_data_param.context_pad",
            )
        if not 0 <= param.fg_fraction <= 1:
            self.fail(f"fg_fraction has to be from 0 to 1, not {param.fg_fraction:g}", "window_data_param.fg_fraction")
        super().setup(bottom_shapes)

    def open_source(self) -> WindowReader:
        """Read the window file."""
        param, transform = self.param.window_data_param, self.param.transform_param
        if not param.source:
            self.fail("source is missing", "window_data_param", hint="name a window file")
        source, root = found_name(param.source), found_name(param.root_folder)
        file = read_window_file(source, root, param.fg_threshold, param.bg_threshold)
        sampling = self._sampling()
        self._require_windows(file, sampling)
        return WindowReader(
            file,
            Cutter(transform.crop_size, param.context_pad, param.crop_mode == "square"),
            sampling,
            mean=self._mean(file.channels),
            scale=transform.scale,
            cache=param.cache_images,
            rule=bad_record_rule(self.param),
            threads=decode_threads(self.param),
        )

    def shape_without_source(self, hint: Shape | None) -> list[Shape]:
        """crop_size says it, but for the channels, which are those of colour images unless the hint has others."""
        size = self.param.transform_param.crop_size
        return super().shape_without_source((hint[0] if hint else 3, size, size))

    def _sampling(self) -> Sampling:
        """Background and foreground are counted over the batches of all ranks that train in step."""
        param = self.param.window_data_param
        batch = self.batch_size * self.context.shard.step
        # In single precision, as Caffe: a product of 7 must not become 6.9999.
        foreground = int(np.float32(batch) * np.float32(param.fg_fraction))
        return Sampling(batch, foreground, self.param.transform_param.mirror)

    def _require_windows(self, file: WindowFile, sampling: Sampling) -> None:
        param = self.param.window_data_param
        kinds = (
            ("foreground", file.foreground, sampling.foreground, f"fg_threshold {param.fg_threshold:g} or more"),
            (
                "background",
                file.background,
                sampling.batch - sampling.foreground,
                f"less than bg_threshold {param.bg_threshold:g}",
            ),
        )
        for name, windows, wanted, rule in kinds:
            if wanted and not len(windows):
                self.fail(
                    f"'{file.source}' has no {name} window (overlap {rule}), but every batch takes {wanted}",
                    "window_data_param.source",
                    error=DataError,
                )

    def _mean(self, channels: int) -> Array | None:
        """Return a value a channel, or the middle of the mean file."""
        mean, size = read_mean(self), self.param.transform_param.crop_size
        if mean is None:
            return None
        if mean.ndim == 1:
            if len(mean) not in (1, channels):
                self.fail(
                    f"mean_value is given {len(mean)} times, but images have {channels} channel(s)",
                    "transform_param.mean_value",
                    hint="give it once, or once for every channel",
                    error=DataError,
                )
            return np.broadcast_to(mean, (channels,))
        if len(mean) != channels or min(mean.shape[1:]) < size:
            self.fail(
                f"the mean file has shape {' x '.join(map(str, mean.shape))}; it needs {channels} channel(s) and at"
                f" least {size} x {size} pixels",
                "transform_param.mean_file",
                error=DataError,
            )
        top, left = (mean.shape[1] - size) // 2, (mean.shape[2] - size) // 2
        return mean[:, top : top + size, left : left + size]
