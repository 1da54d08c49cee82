"""ImageData: image files that a list names, each with a label.

Fields of `image_data_param` (default): source: a text file with a path and a label a line, where the path may hold
spaces, and a label is the number that the text behind the last space begins with, else 0 (a warning says where it is
more or less than a number); batch_size (1); root_folder: put in front of each path; new_height and new_width (0: as it
is): the size that images are brought to; is_color (true); shuffle (false): a new order every epoch; rand_skip (0): a
start in the list that the seed picks below it. In nets with `layers` scale, mirror, crop_size and mean_file stand here.
Fields of `data_param` (default): prefetch (4), parser_threads (0), bad_record (STOP) and bad_record_limit (100), like
those of a Data layer.
Fields of `transform_param`: see transformer.py.
No bottoms. Tops: images, batch x channels x height x width; labels, batch.
Differences from Caffe: ranks that train in step share the images out, where each of Caffe's solvers reads all of them.
JPEG files are decoded by another library than OpenCV, whose pixels can differ by a grey level or two.
(Caffe: image_data_layer.cpp.)
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mgcaffe.engine.checks.said_once import warn_once
from mgcaffe.engine.data.batches import BatchForm, EpochOrder
from mgcaffe.engine.data.data_layer import DataLayer
from mgcaffe.engine.data.file_lists import ListedImage, read_image_list
from mgcaffe.engine.data.images.decoding import decode_image
from mgcaffe.engine.data.images.resizing import MAX_SIDE
from mgcaffe.engine.data.images.transform_fields import (
    check_fit,
    make_transformer,
    refuse_other_fields,
    shape_by_hint,
)
from mgcaffe.engine.data.images.transformer import Transformer
from mgcaffe.engine.data.record_loader import (
    BadRecordRule,
    RecordLoader,
    bad_record_rule,
    check_shape,
    decode_threads,
)
from mgcaffe.engine.data.stages import StageTimes
from mgcaffe.engine.layer import exactly
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Array, Shape
from mgcaffe.errors import DataError
from mgcaffe.errors.file_names import found_name, refuse_device

_KNOWN_FIELDS = {
    *("source", "batch_size", "rand_skip", "shuffle", "new_height", "new_width", "is_color", "root_folder"),
    *("scale", "mean_file", "crop_size", "mirror"),  # the upgrade moves these to transform_param
    *("threads", "cache", "precache"),  # how a fork reads, not what
}
_log = logging.getLogger("mgcaffe.engine")


class ImageReader:
    """Reads, decodes and transforms image files."""

    def __init__(
        self,
        entries: Sequence[ListedImage],
        transformer: Transformer,
        *,
        color: bool,
        size: tuple[int, int] | None,
        shuffle: bool,
        rand_skip: int,
        rule: BadRecordRule,
        stages: StageTimes,
        threads: int = 1,
    ) -> None:
        self._entries, self._transformer = entries, transformer
        self._color, self._size, self._stages = color, size, stages
        self._order = EpochOrder(len(entries), shuffle, rand_skip)
        self.count = len(entries)
        self._loader = RecordLoader(len(entries), self._image, rule, threads)
        stages.threads = threads
        self.first_shape: Shape = self._loader.first().shape
        self.record_shapes: list[Shape] = []
        if rule.skip:
            self._loader.check = self._check_shape

    def read(self, records: Sequence[int], form: BatchForm) -> list[Array]:
        """Return images and labels. See Reader."""
        indices = self._order.indices(records, form.stream)
        numbers, loaded = self._stages.share_out(self._loader.load, indices)
        images = self._transformer(
            loaded,
            records,
            form,
            lambda index: f"image '{self._entries[numbers[index]][0]}'",
            self._stages.transforming(self._loader.run),
        )
        return [images, np.array([self._entries[number][1] for number in numbers], form.dtype)]

    def close(self) -> None:
        """End the decoding threads."""
        self._loader.close()

    def _check_shape(self, number: int, image: Array) -> None:
        check_shape(self._transformer, image.shape, self.first_shape, f"image '{self._entries[number][0]}'")

    def _image(self, number: int) -> Array:
        path, _, location = self._entries[number]
        try:
            refuse_device(path)
            began = time.perf_counter()
            encoded = Path(path).read_bytes()
            read = time.perf_counter()
            image = decode_image(encoded, self._color, self._size)
        except OSError as error:
            raise DataError(f"image '{path}' cannot be read: {error.strerror}", location=location) from error
        except DataError as error:
            raise DataError(f"image '{path}': {error.message}", location=location) from error
        self._stages.add(read=read - began, decode=time.perf_counter() - read)
        return image


@register("ImageData")
class ImageData(DataLayer):
    """Image files."""

    tops = exactly(2)
    fields = "image_data_param"

    def open_source(self) -> ImageReader:
        """Read the list and the first image."""
        param = self.param.image_data_param
        refuse_other_fields(self, param, "image_data_param", _KNOWN_FIELDS)
        if not param.source:
            self.fail("source is missing", "image_data_param", hint="name a text file that lists images")
        transformer = make_transformer(self)
        reader = ImageReader(
            self._listed(),
            transformer,
            color=param.is_color,
            size=self._new_size(),
            shuffle=param.shuffle,
            rand_skip=param.rand_skip,
            rule=bad_record_rule(self.param),
            stages=self.stages,
            threads=decode_threads(self.param),
        )
        reader.record_shapes = [check_fit(self, transformer, reader.first_shape), ()]
        return reader

    def _listed(self) -> list[ListedImage]:
        """Return the images of the list, root_folder in front of their paths."""
        param = self.param.image_data_param
        images, note = read_image_list(found_name(param.source))
        root = found_name(param.root_folder)
        if note:
            warn_once(_log, f"{note} (layer '{self.name}')")
        return [image._replace(path=root + image.path) for image in images]

    def shape_without_source(self, hint: Shape | None) -> list[Shape]:
        """From new_height and new_width, the hint, or crop_size alone."""
        param = self.param.image_data_param
        channels = 3 if param.is_color else 1
        size = self._new_size()
        if size is not None:
            hint = (channels, *size)
        return super().shape_without_source(shape_by_hint(self, hint, channels))

    def _new_size(self) -> tuple[int, int] | None:
        param = self.param.image_data_param
        if bool(param.new_height) != bool(param.new_width):
            self.fail("new_height and new_width go together", "image_data_param", hint="give both or neither")
        for name in ("new_height", "new_width"):
            if getattr(param, name) > MAX_SIDE:
                given = f"{name} is {getattr(param, name)}"
                self.fail(f"{given}; images have at most {MAX_SIDE} pixels a side", f"image_data_param.{name}")
        return (param.new_height, param.new_width) if param.new_height else None
