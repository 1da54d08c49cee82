"""An LMDB of any Python dataset: an iterable of (image, label) pairs, such as those of torchvision and Hugging Face."""

from __future__ import annotations

import operator
import os
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mgcaffe.engine.data.image_records import ENCODINGS, ImageForm, ImageRecord, check_label, record_of_array
from mgcaffe.engine.types import Array
from mgcaffe.errors import DataError, UsageError

if TYPE_CHECKING:
    from mgcaffe.engine.data.lmdb.writer import LmdbWriter

_CHANNELS = (1, 3, 4)
_AHEAD = 16
"""Records a thread that are made before the first of them is written."""


def write_lmdb(
    dataset: Iterable[Any],
    folder: str | os.PathLike[str],
    *,
    gray: bool = False,
    size: tuple[int, int] | None = None,
    encode_type: str = "",
    image_field: str = "image",
    label_field: str = "label",
    replace: bool = False,
    threads: int | None = None,
) -> int:
    """Write the LMDB of a dataset, in the form in which Caffe's convert_imageset writes it; keys are `%08d`.

        mgcaffe.write_lmdb(torchvision.datasets.CIFAR10("data", train=True), "cifar10_train_lmdb")
        mgcaffe.write_lmdb(datasets.load_dataset("mnist", split="train"), "mnist_train_lmdb", gray=True)

    Args:
        dataset: gives pairs of image and label, or mappings with both. An image is a PIL.Image; an array of bytes,
            height x width x channels (R, G, B; or 1) or height x width, or channels x height x width where it cannot
            be the former; or a tensor, channels x height x width. Floats from 0 to 1 are taken for bytes (ToTensor's).
            A label is a whole number.
        folder: the database's; appears when it is complete.
        gray: store one channel instead of three.
        size: height and width to resize to, as OpenCV resizes; None keeps each image's own.
        encode_type: store image files of this kind ("jpg", "png", ...) instead of pixels.
        image_field: the image's key in a mapping.
        label_field: the label's key in a mapping.
        replace: take the place of a database that is there.
        threads: images to convert at a time; None: as many as there are cores.

    Returns:
        The number of records.

    Raises:
        DataError: an image or a label of another kind, named by its number; no records.
        EngineError: (exit code 73) the folder exists, or cannot be written.
        UsageError: an unknown encode_type, or a size below 1.
    """
    from mgcaffe.engine.data.lmdb.writer import LmdbWriter  # needs liblmdb, which nothing else here does

    if encode_type and encode_type.lower() not in ENCODINGS:
        raise UsageError(f"encode_type is '{encode_type}'; known types are {', '.join(ENCODINGS)}")
    if size is not None and min(size) < 1:
        raise UsageError(f"size is {size[0]} x {size[1]}; both have to be above 0")
    form = ImageForm(not gray, size, bool(encode_type), encode_type.lower())
    threads = threads or len(os.sched_getaffinity(0))
    waiting: deque[Future[ImageRecord]] = deque()
    with LmdbWriter(Path(folder), replace=replace) as writer, ThreadPoolExecutor(threads) as pool:
        for number, item in enumerate(dataset):
            image, label = _pair(item, number, image_field, label_field)
            waiting.append(pool.submit(_record, image, label, form, number))
            if len(waiting) > _AHEAD * threads:
                _put(writer, waiting.popleft())
        while waiting:
            _put(writer, waiting.popleft())
        if not writer.count:
            raise DataError("the dataset gives no images")
    return writer.count


def _put(writer: LmdbWriter, made: Future[ImageRecord]) -> None:
    writer.put(b"%08d" % writer.count, *made.result().parts)


def _pair(item: Any, number: int, image_field: str, label_field: str) -> tuple[Any, int]:
    """Return image and label of an item of a dataset."""
    if isinstance(item, Mapping):
        missing = [name for name in (image_field, label_field) if name not in item]
        if missing:
            raise DataError(
                f"item {number} of the dataset has no field '{missing[0]}'",
                hint=f"it has {', '.join(map(str, item))}; name the fields by image_field and label_field",
            )
        image, label = item[image_field], item[label_field]
    else:
        try:
            image, label = item
        except (TypeError, ValueError):
            raise DataError(f"item {number} of the dataset is no pair of image and label, but {_kind(item)}") from None
    try:
        return image, check_label(operator.index(label.item() if hasattr(label, "item") else label))
    except (RuntimeError, TypeError, ValueError):
        raise DataError(f"item {number} of the dataset: the label is {_kind(label)}, no whole number") from None
    except DataError as error:
        raise DataError(f"item {number} of the dataset: {error.message}") from None


def _record(image: Any, label: int, form: ImageForm, number: int) -> ImageRecord:
    try:
        return record_of_array(_pixels(image, form.color), label, form)
    except DataError as error:
        raise DataError(f"item {number} of the dataset: {error.message}", hint=error.hint) from None


def _pixels(image: Any, color: bool) -> Array:
    """Return an image as bytes, height x width x 3 (R, G, B) or 1.

    Raises:
        DataError: it is of another kind.
    """
    from PIL import Image

    if not isinstance(image, Image.Image):
        image = _image_of_array(image)
    if image.mode.startswith(("I", "F")):
        raise DataError(f"an image of mode {image.mode} has more than 8 bits a channel")
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return np.atleast_3d(np.asarray(image.convert("RGB" if color else "L")))


def _image_of_array(given: Any) -> Any:
    from PIL import Image

    is_tensor = hasattr(given, "detach")
    array = np.asarray(given.detach().cpu() if is_tensor else given)
    if array.ndim == 3 and (is_tensor or (array.shape[2] not in _CHANNELS and array.shape[0] in _CHANNELS)):
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (3, 4)) or not array.size:
        raise DataError(f"the image is {_kind(given)}")
    if array.dtype.kind == "f":
        if not (array.min() >= 0 and array.max() <= 1):
            raise DataError(
                f"the image holds floats from {array.min():g} to {array.max():g}, not from 0 to 1",
                hint="leave normalization to the net: mean_value and scale of transform_param",
            )
        array = np.rint(array * 255).astype(np.uint8)
    if array.dtype != np.uint8:
        raise DataError(f"the image is {_kind(given)}; bytes are needed, or floats from 0 to 1")
    return Image.fromarray(np.ascontiguousarray(array))


def _kind(value: Any) -> str:
    """Return the class of a value, and the shape and type of an array."""
    shape = getattr(value, "shape", None)
    name = type(value).__name__
    if shape is None:
        return f"of type {name}"
    return f"a {name} of shape {' x '.join(map(str, shape)) or 'none'} and type {getattr(value, 'dtype', 'unknown')}"
