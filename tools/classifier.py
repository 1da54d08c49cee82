"""A deploy net that scores images (Caffe: python/classify.py, examples/cpp_classification)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch

from mgcaffe.engine.data.images.float_images import as_input, load_image, resize_image, ten_crops
from mgcaffe.engine.layer import TEST
from mgcaffe.engine.layers.input import Input
from mgcaffe.engine.net import Net
from mgcaffe.engine.types import Array
from mgcaffe.errors import DataError, Location, NetError, PrototxtError, UsageError
from mgcaffe.prototxt import BlobProto, NetSource, blob_array, read_binary

# How many images (or crops) run at once.
_BATCH = 32
_CROPS = 10


@dataclass(frozen=True)
class Preparation:
    """What is done to an image before the net sees it, in this order.

    Attributes:
        image_size: height and width that it is resized to; None: those of the input.
        oversample: whether ten crops are scored and averaged, instead of the centre alone.
        channel_swap: the order of the channels; (2, 1, 0) makes RGB to BGR. None for grey images.
        raw_scale: factor of the values, which are read as 0 to 1.
        mean: taken off then: one value a channel, or an image (channels x height x width); None: nothing.
        input_scale: factor after that.
    """

    image_size: tuple[int, int] | None = None
    oversample: bool = False
    channel_swap: tuple[int, ...] | None = None
    raw_scale: float = 255.0
    mean: Array | None = None
    input_scale: float = 1.0


class ImageClassifier:
    """A net with its weights, and how images are prepared for it.

    Args:
        source: the deploy net.
        weights: the file of its weights.
        preparation: see there; checked against the net's input.
        output: the blob with the scores; None: the net's only output.
        device, dtype: what to compute on.

    Attributes:
        classes: how many scores an image gets.

    Raises:
        UsageError: the net cannot be fed with images, an output has to be chosen, or the preparation does not fit.
        NetError, PrototxtError: the net or the weights cannot be used.
    """

    def __init__(
        self,
        source: NetSource,
        weights: str,
        preparation: Preparation,
        *,
        output: str | None = None,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self._path = source.path
        self._preparation = preparation
        if not any(layer.type == "Input" for layer in source.param.layer):  # before its data is looked for
            self._refuse_without_input()
        self._net = Net(source.param, sources=source, phase=TEST, dtype=dtype, device=device)
        self.input_shape = self._check_input()
        self.output = self._check_output(output)
        self._check_preparation()
        self._load(weights)
        shape = self._net.blobs[self.output].shape
        self.classes = int(np.prod(shape[1:]))

    @property
    def _layer(self) -> Input:
        return next(layer for layer in self._net.layers if isinstance(layer, Input))

    def _check_input(self) -> tuple[int, int, int]:
        net = self._net
        if not net.inputs:
            self._refuse_without_input()
        if len(net.inputs) > 1:
            raise UsageError(f"{self._path} has {len(net.inputs)} inputs ({', '.join(net.inputs)}), not one for images")
        shape = net.blobs[net.inputs[0]].shape
        if len(shape) != 4 or shape[1] not in (1, 3):
            raise UsageError(
                f"input '{net.inputs[0]}' of {self._path} has shape {tuple(shape)}; images need N x 3 x H x W, or grey "
                "ones N x 1 x H x W"
            )
        return shape[1], shape[2], shape[3]

    def _refuse_without_input(self) -> NoReturn:
        raise UsageError(
            f"{self._path} has no Input layer",
            hint="give the deploy net; engine edit train_val.prototxt -o deploy.prototxt --deploy makes it",
        )

    def _check_output(self, name: str | None) -> str:
        outputs = self._net.outputs
        if name is None:
            if len(outputs) != 1:
                raise UsageError(f"{self._path} has {len(outputs)} outputs: {', '.join(outputs)}", hint="--output BLOB")
            name = outputs[0]
        if name not in self._net.blobs:
            raise UsageError(
                f"--output: {self._path} has no blob '{name}'", hint=f"its outputs are {', '.join(outputs)}"
            )
        shape = self._net.blobs[name].shape
        if len(shape) < 2 or any(size != 1 for size in shape[2:]):
            raise UsageError(f"blob '{name}' has shape {tuple(shape)}, not one score a class for each image")
        return name

    def _check_preparation(self) -> None:
        wanted, (channels, height, width) = self._preparation, self.input_shape
        if wanted.image_size is not None and (wanted.image_size[0] < height or wanted.image_size[1] < width):
            size = f"{wanted.image_size[0]} x {wanted.image_size[1]}"
            raise UsageError(f"images of {size} (--images_dim) are smaller than the input, {height} x {width}")
        if wanted.channel_swap is not None and sorted(wanted.channel_swap) != list(range(channels)):
            raise UsageError(f"--channel_swap has to name each of the channels 0 to {channels - 1} once")
        if wanted.mean is not None and len(wanted.mean) != channels:
            raise UsageError(f"the mean has {len(wanted.mean)} channels, and the input {channels}")

    def _load(self, weights: str) -> None:
        report = self._net.copy_trained_layers(weights)
        copied = {row.layer for row in report.copied}
        lacking = [layer.name for layer in self._net.layers if layer.parameters and layer.name not in copied]
        if lacking:
            raise NetError(
                f"{weights} has no weights for {len(lacking)} layer(s) of {self._path}: {', '.join(lacking)}"
            )

    def scores(self, paths: Sequence[str]) -> Array:
        """Return the scores of images, one row each.

        Raises:
            DataError: an image cannot be read, or its scores are not finite.
        """
        rows = []
        for found in self.scored(paths):
            if isinstance(found, DataError):
                raise found
            rows.append(found)
        return np.stack(rows)

    def scored(self, paths: Sequence[str]) -> Iterator[Array | DataError]:
        """Yield the scores of each image, or why there are none, in order; some images run at once."""
        crops = _CROPS if self._preparation.oversample else 1
        step = max(1, _BATCH // crops)
        for start in range(0, len(paths), step):
            read = [self._crops_or_error(path) for path in paths[start : start + step]]
            batch = [crop for found in read if not isinstance(found, DataError) for crop in found]
            rows = iter(self._run(np.stack(batch)).reshape(-1, crops, self.classes).mean(axis=1) if batch else ())
            for path, found in zip(paths[start:], read, strict=False):
                yield found if isinstance(found, DataError) else self._checked(next(rows), path)

    def _checked(self, scores: Array, path: str) -> Array | DataError:
        if np.isfinite(scores).all():
            return scores
        return DataError(f"its scores (blob '{self.output}') are not finite", location=Location(path))

    def _run(self, images: Array) -> Array:
        net = self._net
        self._layer.values = [torch.from_numpy(images).to(device=net.device, dtype=net.dtype)]
        net.forward()
        values = net.blobs[self.output].data
        assert values is not None
        return values.reshape(len(images), -1).cpu().numpy()

    def _crops_or_error(self, path: str) -> list[Array] | DataError:
        try:
            return self._crops(path)
        except DataError as error:
            return error

    def _crops(self, path: str) -> list[Array]:
        """Return an image as the net wants it, or ten parts of it: channels x height x width each."""
        wanted, (channels, height, width) = self._preparation, self.input_shape
        image = load_image(path, color=channels == 3)
        size = wanted.image_size or (height, width)
        if image.shape[:2] != size:
            image = resize_image(image, *size)
        if wanted.oversample:
            crops = ten_crops(image, height, width)
        else:
            y, x = (size[0] - height) // 2, (size[1] - width) // 2
            crops = [image[y : y + height, x : x + width]]
        mean = self._mean()
        return [
            as_input(
                crop,
                transpose=(2, 0, 1),
                channel_swap=wanted.channel_swap,
                raw_scale=wanted.raw_scale,
                mean=mean,
                input_scale=wanted.input_scale,
            ).astype(np.float32)
            for crop in crops
        ]

    def _mean(self) -> Array | None:
        """Return the mean in a shape that can be taken off; an image of it in the input's size."""
        mean, (_, height, width) = self._preparation.mean, self.input_shape
        if mean is None:
            return None
        if mean.ndim == 1:
            return mean[:, np.newaxis, np.newaxis]
        if mean.shape[1:] != (height, width):
            return resize_image(mean.transpose(1, 2, 0), height, width).transpose(2, 0, 1)
        return mean

    def close(self) -> None:
        """Free the net."""
        self._net.close()


def read_mean(path: str) -> Array:
    """Read a mean: an image as .binaryproto or .npy (channels x height x width), or values for channels as .npy.

    Raises:
        DataError, PrototxtError: the file cannot be read, or holds no mean.
    """
    if Path(path).suffix == ".npy":
        try:
            mean = np.load(path, allow_pickle=False)
            if not isinstance(mean, np.ndarray):
                raise ValueError("it is an .npz file")
        except Exception as error:  # NumPy has many: of its tokenizer, of zip files, of memory
            raise DataError(f"the mean cannot be read: {error}", location=Location(path)) from None
    else:
        blob = read_binary(path, BlobProto)
        try:
            mean = blob_array(blob)
        except PrototxtError as error:
            raise DataError(f"the mean cannot be read: {error.message}", location=Location(path)) from None
        mean = mean[0] if mean.ndim == 4 and len(mean) == 1 else mean
    if mean.ndim not in (1, 3) or mean.dtype.kind not in "fiu" or not mean.size:
        raise DataError(
            f"a mean is channels x height x width, or one value a channel, not {mean.shape} of {mean.dtype}",
            location=Location(path),
        )
    if not np.isfinite(mean).all():
        raise DataError("the mean has values that are not finite", location=Location(path))
    found: Array = mean.astype(np.float32)
    return found


def read_labels(path: str, classes: int) -> list[str]:
    """Read the names of the classes, one a line.

    Raises:
        DataError: the file cannot be read, or has another number of lines than there are classes.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise DataError(f"the labels cannot be read: {error.strerror}", location=Location(path)) from None
    while lines and not lines[-1].strip():
        lines.pop()
    if len(lines) != classes:
        raise DataError(f"{len(lines)} labels, and the net has {classes} classes", location=Location(path))
    return [line.strip() for line in lines]
