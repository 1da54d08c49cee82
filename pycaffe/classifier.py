"""A net that classifies images (Caffe: classifier.py)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from mgcaffe.engine.types import Array
from mgcaffe.pycaffe import mode
from mgcaffe.pycaffe.images import oversample as ten_crops
from mgcaffe.pycaffe.images import resize_image
from mgcaffe.pycaffe.net import Net
from mgcaffe.pycaffe.transformer import Transformer


def image_transformer(
    net: Net,
    mean: Any = None,
    input_scale: float | None = None,
    raw_scale: float | None = None,
    channel_swap: Sequence[int] | None = None,
) -> Transformer:
    """Return what turns images into the first input of a net. Arguments as for Classifier."""
    name = net.inputs[0]
    transformer = Transformer({name: net.blobs[name].shape})
    transformer.set_transpose(name, (2, 0, 1))
    if mean is not None:
        transformer.set_mean(name, mean)
    if input_scale is not None:
        transformer.set_input_scale(name, input_scale)
    if raw_scale is not None:
        transformer.set_raw_scale(name, raw_scale)
    if channel_swap is not None:
        transformer.set_channel_swap(name, channel_swap)
    return transformer


class Classifier(Net):
    """A deploy net with what its images need before.

    Args:
        model_file, pretrained_file: the net and its weights.
        image_dims: height and width that images are resized to before they are cropped; None: the input's own.
        mean: taken off after the scaling by raw_scale; one value a channel, or an image of it.
        input_scale: factor after that.
        raw_scale: factor before that: 255 for nets trained on values from 0 to 255.
        channel_swap: the order of channels: (2, 1, 0) for nets that want BGR.
    """

    def __init__(
        self,
        model_file: str | os.PathLike[str],
        pretrained_file: str | os.PathLike[str] | None,
        image_dims: Sequence[int] | None = None,
        mean: Any = None,
        input_scale: float | None = None,
        raw_scale: float | None = None,
        channel_swap: Sequence[int] | None = None,
    ) -> None:
        super().__init__(model_file, mode.TEST, weights=pretrained_file)
        self.transformer = image_transformer(self, mean, input_scale, raw_scale, channel_swap)
        self.crop_dims = np.array(self.blobs[self.inputs[0]].shape[2:])
        self.image_dims = np.array(self.crop_dims if image_dims is None else image_dims)

    def predict(self, inputs: Sequence[Array], oversample: bool = True) -> Array:
        """Classify images.

        Args:
            inputs: each height x width x channels.
            oversample: whether to average over ten crops of each, instead of taking its centre.

        Returns:
            The values of the first output, one row an image. With `oversample` a row is a vector: what an output has
            behind its channels, such as 1 x 1, is no axis of its own then.
        """
        images = np.stack([resize_image(image, self.image_dims) for image in inputs])
        crops = ten_crops(images, self.crop_dims) if oversample else self._centres(images)
        name = self.inputs[0]
        prepared = np.stack([self.transformer.preprocess(name, crop) for crop in crops])
        scores: Array = self.forward_all(**{name: prepared})[self.outputs[0]]
        if oversample:
            scores = scores.reshape((len(images), 10, -1)).mean(axis=1)
        return scores

    def _centres(self, images: Array) -> Array:
        y, x = (self.image_dims - self.crop_dims) // 2
        height, width = self.crop_dims
        return images[:, y : y + height, x : x + width]
