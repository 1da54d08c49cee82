"""Reads a layer's transform_param: checks its fields, loads its mean, makes its Transformer."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection
from pathlib import Path

import numpy as np
from google.protobuf.message import DecodeError, Message

from mgcaffe.engine.checks.said_once import warn_once
from mgcaffe.engine.data.images.random_resizing import FIELDS, RandomResizing, read_random_resizing
from mgcaffe.engine.data.images.resizing import Misfit, Resizing, read_resizing
from mgcaffe.engine.data.images.transformer import Transformer
from mgcaffe.engine.layer import TRAIN, Layer
from mgcaffe.engine.layers.shared.fields import refuse_fork_fields
from mgcaffe.engine.types import Array, Shape
from mgcaffe.errors import DataError, PrototxtError
from mgcaffe.errors.file_names import found_name, refuse_device
from mgcaffe.prototxt import BlobProto, TransformationParameter, has_field
from mgcaffe.prototxt.blobs import blob_array

_HONOURED = {
    *("scale", "mirror", "crop_size", "mean_file", "mean_value", "force_color", "force_gray"),
    *("crop_h", "crop_w", "resize_param"),
    *FIELDS,
}
# How a fork computes the same thing, draws its random numbers, or what it shows while doing so.
_WITHOUT_EFFECT = {"use_gpu_transform", "random_seed", "display"}
DEFAULT_CHANNELS = 3

_log = logging.getLogger("mgcaffe.engine")


def refuse_other_fields(layer: Layer, message: Message, path: str, honoured: Collection[str]) -> None:
    """Refuse every field of `message` that is given a value other than its default and is not honoured."""
    defaults = {field.name: field.default_value for field in message.DESCRIPTOR.fields if field.name not in honoured}
    refuse_fork_fields(layer, message, path, defaults)


def make_transformer(layer: Layer) -> Transformer:
    """Return the transformer that the layer's transform_param describes.

    Raises:
        NetError: fields that exclude each other or cannot be honoured.
        DataError: the mean file is missing or damaged.
    """
    param = layer.param.transform_param
    refuse_other_fields(layer, param, "transform_param", _HONOURED | _WITHOUT_EFFECT)
    mean = read_mean(layer)
    color_choice(layer)
    if not math.isfinite(param.scale):
        layer.fail(f"scale is {param.scale:g}, but has to be finite", "transform_param.scale")
    return Transformer(
        crop_size=_crop(layer),
        mirror=param.mirror,
        scale=param.scale,
        mean=mean,
        random_crop=layer.phase == TRAIN,
        resizing=_resizing(layer),
        random_resizing=_random_resizing(layer),
    )


def _crop(layer: Layer) -> int | tuple[int, int]:
    """Edge, or height and width, of what is cut out."""
    param = layer.param.transform_param
    sides = [name for name in ("crop_h", "crop_w") if getattr(param, name)]
    if not sides:
        return int(param.crop_size)
    if param.crop_size:
        layer.fail(f"crop_size and {sides[0]} exclude each other", f"transform_param.{sides[0]}")
    if len(sides) == 1:
        layer.fail("crop_h and crop_w go together", f"transform_param.{sides[0]}", hint="give both or neither")
    return int(param.crop_h), int(param.crop_w)


def transformed_shape(param: TransformationParameter, shape: Shape) -> Shape:
    """Return the shape that an image of `shape` (channels, height, width) gets by a TransformationParameter alone.

    Raises:
        Misfit: a field out of range.
    """
    if param.HasField("resize_param"):
        shape = read_resizing(param.resize_param).output_shape(shape)
    if param.crop_h and param.crop_w:
        return shape[0], param.crop_h, param.crop_w
    return (shape[0], param.crop_size, param.crop_size) if param.crop_size else shape


def _random_resizing(layer: Layer) -> RandomResizing | None:
    param, crop = layer.param.transform_param, _crop(layer)
    try:
        resizing = read_random_resizing(param, (crop, crop) if isinstance(crop, int) else crop)
    except Misfit as error:
        layer.fail(error.message, f"transform_param.{error.field}", hint=error.hint)
    for name in FIELDS if resizing is None else ():
        if has_field(param, name):
            where = layer.location(f"transform_param.{name}")
            what = f"{name} has no effect without img_rand_resize_lower and its kin (layer '{layer.name}')"
            warn_once(_log, f"{where}: {what}" if where else what)
    return resizing


def _resizing(layer: Layer) -> Resizing | None:
    param = layer.param.transform_param
    if not param.HasField("resize_param"):
        return None
    try:
        return read_resizing(param.resize_param)
    except Misfit as error:
        layer.fail(error.message, f"transform_param.{error.field}", hint=error.hint)


def read_mean(layer: Layer) -> Array | None:
    """Return what mean_file or mean_value of the layer's transform_param say: an image, or values, or nothing.

    Raises:
        NetError: both are given.
        DataError: the mean file is missing or damaged. It is not looked at in a net that is only looked at.
    """
    param = layer.param.transform_param
    if param.mean_file and param.mean_value:
        layer.fail(
            "mean_file and mean_value exclude each other",
            "transform_param.mean_value",
            hint="remove one of them",
        )
    if param.mean_value:
        for index, value in enumerate(param.mean_value):
            if not math.isfinite(value):
                layer.fail(f"mean_value is {value:g}, but has to be finite", "transform_param.mean_value", index=index)
        return np.array(param.mean_value)
    if param.mean_file and layer.context.input_shapes is None:
        return _read_mean_file(layer, found_name(param.mean_file))
    return None


def color_choice(layer: Layer) -> bool | None:
    """Return True where encoded images are to be made colour, False for grey, None for as they are."""
    param = layer.param.transform_param
    if param.force_color and param.force_gray:
        layer.fail(
            "force_color and force_gray exclude each other",
            "transform_param.force_gray",
            hint="remove one of them",
        )
    if param.force_color or param.force_gray:
        return bool(param.force_color)
    return None


def check_fit(layer: Layer, transformer: Transformer, shape: Shape) -> Shape:
    """Return the shape of transformed images of `shape`; what does not fit is an error located in transform_param.

    Raises:
        DataError: see Transformer.output_shape.
    """
    try:
        return transformer.output_shape(shape)
    except Misfit as error:
        layer.fail(error.message, f"transform_param.{error.field}", hint=error.hint, error=DataError)


def shape_by_hint(layer: Layer, hint: Shape | None, channels: int | None = None) -> Shape | None:
    """Return the shape of transformed images where the source is not looked at; None if nothing tells it."""
    param = layer.param.transform_param
    transformer = make_transformer(layer)
    if hint is not None:
        return check_fit(layer, transformer, hint) if len(hint) == 3 else hint
    crop, resizing = _crop(layer), _resizing(layer)
    size = (crop, crop) if isinstance(crop, int) else crop
    if not any(size):
        if resizing is None or resizing.mode == "FIT_SMALL_SIZE":
            return None
        size = (resizing.height, resizing.width)
    if channels is None:
        channels = 1 if param.force_gray else max(DEFAULT_CHANNELS, len(param.mean_value))
    return (channels, *size)


def _read_mean_file(layer: Layer, file: str) -> Array:
    """Return the mean image, channels x height x width."""
    field = "transform_param.mean_file"
    try:
        refuse_device(file)
        array = blob_array(BlobProto.FromString(Path(file).read_bytes()))
    except FileNotFoundError:
        layer.fail(
            f"mean file '{file}' does not exist",
            field,
            hint=f"relative paths start from the working directory, {Path.cwd()}",
            error=DataError,
        )
    except OSError as error:
        layer.fail(f"mean file '{file}' cannot be read: {error.strerror}", field, error=DataError)
    except (DecodeError, PrototxtError) as error:
        layer.fail(
            f"mean file '{file}' is no mean file (a BlobProto, as compute_image_mean writes): {error}",
            field,
            error=DataError,
        )
    shape = array.shape[1:] if array.ndim == 4 and array.shape[0] == 1 else array.shape
    if len(shape) != 3:
        layer.fail(f"mean file '{file}' has shape {array.shape}, not that of one image", field, error=DataError)
    return array.reshape(shape)
