"""Data sources and data layers, for tests."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from mgcaffe.engine import registry
from mgcaffe.engine.layer_context import LayerContext
from mgcaffe.prototxt import BlobProto, Datum, LayerParameter, parse_text
from mgcaffe.prototxt.blobs import fill_blob


def write_lmdb(folder: Path, records: Sequence[Any]) -> Path:
    """An LMDB of Datum messages (or bytes) under the keys 00000000, 00000001, ..."""
    import lmdb  # `make gpu` does without it

    environment = lmdb.open(str(folder), map_size=1 << 24)
    with environment.begin(write=True) as transaction:
        for number, record in enumerate(records):
            value = record if isinstance(record, bytes) else record.SerializeToString()
            transaction.put(b"%08d" % number, value)
    environment.close()
    return folder


def datum(image: np.ndarray, label: int = 0) -> Any:
    """A Datum of a uint8 or float image, channels x height x width."""
    channels, height, width = image.shape
    message = Datum(channels=channels, height=height, width=width, label=label)
    if image.dtype == np.uint8:
        message.data = image.tobytes()
    else:
        message.float_data.extend(image.ravel().tolist())
    return message


def encoded(image: np.ndarray, kind: str, label: int = 0) -> Any:
    """A Datum of an image file; `image` is height x width (x channels in the order R, G, B)."""
    return Datum(data=file_bytes(image, kind), encoded=True, label=label)


def file_bytes(image: np.ndarray, kind: str) -> bytes:
    """An image file in memory."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, kind)
    return buffer.getvalue()


def images(count: int, shape: tuple[int, int, int] = (3, 6, 8), seed: int = 0) -> np.ndarray:
    """Random uint8 images."""
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


def numbered(folder: Path, count: int) -> Path:
    """An LMDB of 1 x 1 x 1 images whose labels are their numbers."""
    return write_lmdb(folder, [datum(np.full((1, 1, 1), n % 256, np.uint8), n) for n in range(count)])


def write_mean(file: Path, mean: np.ndarray) -> Path:
    """A mean file as compute_image_mean writes it, 1 x channels x height x width."""
    blob = BlobProto()
    fill_blob(blob, mean[np.newaxis].astype(np.float32))
    file.write_bytes(blob.SerializeToString())
    return file


def make(text: str, **context: Any) -> Any:
    """A data layer after setup. `text` is the inside of a `layer { }`."""
    layer = registry.create(parse_text(text, LayerParameter), LayerContext(**context))
    layer.setup([])
    layer.reshape([])
    return layer


def data_layer(source: Path, batch: int, more: str = "", **context: Any) -> Any:
    """A Data layer with two tops."""
    return make(
        f'name: "data" type: "Data" top: "data" top: "label"'
        f' data_param {{ source: "{source}" backend: LMDB batch_size: {batch} }} {more}',
        **context,
    )


def labels(layer: Any, batches: int) -> list[list[int]]:
    """The labels of the next batches."""
    return [[int(label) for label in layer.forward([])[1]] for _ in range(batches)]
