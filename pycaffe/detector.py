"""A net that scores windows of images (Caffe: detector.py)."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from mgcaffe.engine.types import Array
from mgcaffe.errors import UsageError
from mgcaffe.pycaffe import mode
from mgcaffe.pycaffe.classifier import image_transformer
from mgcaffe.pycaffe.images import load_image, resize_image
from mgcaffe.pycaffe.net import Net
from mgcaffe.pycaffe.problems import ArgumentError


class Detector(Net):
    """A deploy net with what its images need before.

    Args:
        model_file, pretrained_file: the net and its weights.
        mean, input_scale, raw_scale, channel_swap: as for Classifier.
        context_pad: how many pixels of the net's input show what lies around the window.
    """

    def __init__(
        self,
        model_file: str | os.PathLike[str],
        pretrained_file: str | os.PathLike[str] | None,
        mean: Any = None,
        input_scale: float | None = None,
        raw_scale: float | None = None,
        channel_swap: Sequence[int] | None = None,
        context_pad: int | None = None,
    ) -> None:
        super().__init__(model_file, mode.TEST, weights=pretrained_file)
        self.transformer = image_transformer(self, mean, input_scale, raw_scale, channel_swap)
        self.configure_crop(context_pad)

    def configure_crop(self, context_pad: int | None) -> None:
        """Set the context, and what lies outside of an image then: the mean, so that the net sees zeros.

        Raises:
            ArgumentError: the context fills the whole input.
        """
        name = self.inputs[0]
        channels, height, width = self.blobs[name].shape[1:]
        self.crop_dims = np.array((height, width, channels))
        self.context_pad = context_pad or 0
        if 2 * self.context_pad >= min(height, width):
            raise ArgumentError(
                f"context_pad {context_pad} leaves nothing of the input's {height} x {width} pixels for a window"
            )
        mean = np.broadcast_to(self.transformer.mean.get(name, np.zeros(1)), (channels, height, width))
        swap = self.transformer.channel_swap.get(name)
        if swap is not None:
            mean = mean[np.argsort(swap)]
        self.crop_mean: Array = mean.transpose(1, 2, 0) / self.transformer.raw_scale.get(name, 1.0)

    def detect_windows(self, images_windows: Iterable[tuple[Any, Any]]) -> list[dict[str, Any]]:
        """Score windows.

        Args:
            images_windows: pairs of an image's file and its windows, each (ymin, xmin, ymax, xmax).

        Returns:
            For each window its `window`, its `prediction` and the `filename`.
        """
        found: list[tuple[Array, Any]] = []
        crops: list[Array] = []
        name = self.inputs[0]
        for filename, windows in images_windows:
            image = load_image(filename).astype(np.float32)
            for window in windows:
                found.append((np.asarray(window), filename))
                crops.append(self.transformer.preprocess(name, self.crop(image, window)))
        if not crops:
            return []
        scores = self.forward_all(**{name: np.stack(crops)})[self.outputs[0]]
        # a fully convolutional net gives one place a window
        scores = scores.reshape(len(scores), -1) if scores.ndim == 4 and scores.shape[2:] == (1, 1) else scores
        return [
            {"window": window, "prediction": score, "filename": filename}
            for (window, filename), score in zip(found, scores, strict=True)
        ]

    def detect_selective_search(self, image_fnames: Sequence[str]) -> list[dict[str, Any]]:
        """Score the windows that selective search proposes.

        Raises:
            UsageError: selective_search_ijcv_with_python is not installed.
        """
        try:
            search = importlib.import_module("selective_search_ijcv_with_python")
        except ModuleNotFoundError:
            raise UsageError(
                "detect_selective_search needs the module selective_search_ijcv_with_python",
                hint="propose windows some other way, and give them to detect_windows",
            ) from None
        windows = search.get_windows(image_fnames, cmd="selective_search_rcnn")
        return self.detect_windows(zip(image_fnames, windows, strict=True))

    def crop(self, im: Array, window: Any) -> Array:
        """Return a window of an image: with a context in the net's size, without one in its own.

        Without a context the window ends where the image does. With one, the mean stands beyond the image.

        Args:
            im: height x width x channels.
            window: ymin, xmin, ymax, xmax; the last two are outside of it.

        Raises:
            ArgumentError: nothing of the image lies in the window.
        """
        ymin, xmin, ymax, xmax = (float(edge) for edge in window)
        rows, columns = ((ymin, ymax, im.shape[0]), (xmin, xmax, im.shape[1]))
        if self.context_pad:
            height, width, _ = self.crop_dims
            vertical = _Line.with_context(*rows, int(height), self.context_pad)
            horizontal = _Line.with_context(*columns, int(width), self.context_pad)
        else:
            vertical, horizontal = _Line.without_context(*rows), _Line.without_context(*columns)
        part = im[vertical.begin : vertical.end, horizontal.begin : horizontal.end]
        if not part.size:
            raise ArgumentError(
                f"nothing of the image, which has {im.shape[0]} x {im.shape[1]} pixels, lies in the window"
                f" {tuple(window)}",
                hint="a window is (ymin, xmin, ymax, xmax)",
            )
        if not self.context_pad:
            return part
        result = np.array(self.crop_mean, np.float32)
        if vertical.size > 0 and horizontal.size > 0:
            place = tuple(slice(line.offset, line.offset + line.size) for line in (vertical, horizontal))
            result[place] = resize_image(part, (vertical.size, horizontal.size))
        return result


class _Line(NamedTuple):
    """What is cut out of an image along one axis: from `begin` to `end`, and where in the net's input it goes."""

    begin: int
    end: int
    offset: int = 0
    size: int = 0

    @classmethod
    def without_context(cls, least: float, most: float, length: int) -> _Line:
        """Return the part of a window that is inside of an axis of so many pixels."""
        return cls(_inside(least, length), _inside(most, length))

    @classmethod
    def with_context(cls, least: float, most: float, length: int, side: int, pad: int) -> _Line:
        """Return the same of a window that is grown so that `pad` of the `side` pixels of the input lie around it.

        As in Caffe a window counts as a pixel longer than it is, here and where its scale is computed.
        """
        half = (most - least + 1) / 2
        reach = side / (side - 2 * pad) * half
        begin, end = (round(least + half + way * reach) for way in (-1, 1))
        scale = side / (end - begin + 1)
        offset = round(max(0, -begin) * scale)
        inside = _inside(begin, length), _inside(end, length)
        return cls(*inside, offset, min(round((inside[1] - inside[0] + 1) * scale), side - offset))


def _inside(edge: float, length: int) -> int:
    return min(max(0, round(edge)), length)
