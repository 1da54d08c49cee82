"""A net that scores windows of images (Caffe: detector.py)."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from mgcaffe.engine.types import Array
from mgcaffe.errors import UsageError
from mgcaffe.pycaffe import mode
from mgcaffe.pycaffe.classifier import image_transformer
from mgcaffe.pycaffe.images import load_image, resize_image
from mgcaffe.pycaffe.net import Net


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
        """Set the context, and the colour that lies outside of an image: the mean, so that the net sees zeros."""
        name = self.inputs[0]
        self.crop_dims = np.array(self.blobs[name].shape[2:])
        self.context_pad = context_pad or 0
        mean = self.transformer.mean.get(name)
        channels = self.blobs[name].shape[1]
        flat = np.zeros(channels) if mean is None else mean.reshape(channels, -1).mean(axis=1)
        swap = self.transformer.channel_swap.get(name)
        if swap is not None:
            flat = flat[np.argsort(swap)]
        self.crop_mean: Array = (flat / self.transformer.raw_scale.get(name, 1.0)).astype(np.float32)

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
        """Return a window of an image in the net's size, with as much context as `context_pad` asks for.

        Where that reaches beyond the image, the mean's colour stands.

        Args:
            im: height x width x channels.
            window: ymin, xmin, ymax, xmax.
        """
        top, left, bottom, right = self._box(window)
        inside = (max(0, top), max(0, left), min(bottom, im.shape[0]), min(right, im.shape[1]))
        result = np.empty((bottom - top, right - left, im.shape[2]), np.float32)
        result[...] = self.crop_mean
        y0, x0, y1, x1 = inside
        if y1 > y0 and x1 > x0:
            result[y0 - top : y1 - top, x0 - left : x1 - left] = im[y0:y1, x0:x1]
        return resize_image(result, self.crop_dims)

    def _box(self, window: Any) -> tuple[int, int, int, int]:
        """Return the window grown so that `context_pad` pixels of the net's input lie around it."""
        ymin, xmin, ymax, xmax = (float(edge) for edge in window)
        height, width = self.crop_dims
        grow_y = (ymax - ymin) * self.context_pad / max(1, height - 2 * self.context_pad)
        grow_x = (xmax - xmin) * self.context_pad / max(1, width - 2 * self.context_pad)
        edges = (ymin - grow_y, xmin - grow_x, ymax + grow_y, xmax + grow_x)
        top, left, bottom, right = (round(edge) for edge in edges)
        return top, left, max(bottom, top + 1), max(right, left + 1)
