"""Turns images into what a net's inputs want, and back (Caffe: io.py, the class Transformer)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mgcaffe.engine.data.images.float_images import as_input
from mgcaffe.engine.types import Array
from mgcaffe.pycaffe.images import resize_image
from mgcaffe.pycaffe.problems import ArgumentError


class Transformer:
    """Prepares images, each step only where it was set.

    The order is: resize, transpose, swap channels, times raw_scale, minus mean, times input_scale.

    Args:
        inputs: the shape of each input blob, by name: `{"data": net.blobs["data"].data.shape}`.
    """

    def __init__(self, inputs: Mapping[str, Sequence[int]]) -> None:
        self.inputs = {name: tuple(shape) for name, shape in inputs.items()}
        self.transpose: dict[str, tuple[int, ...]] = {}
        self.channel_swap: dict[str, tuple[int, ...]] = {}
        self.raw_scale: dict[str, float] = {}
        self.mean: dict[str, Array] = {}
        self.input_scale: dict[str, float] = {}

    def preprocess(self, in_: str, data: Any) -> Array:
        """Return an image as the input blob `in_` wants it.

        Args:
            in_: the blob's name.
            data: height x width x channels.

        Returns:
            float32, usually channels x height x width.
        """
        self._check_input(in_)
        result = np.asarray(data).astype(np.float32, copy=False)
        size = self.inputs[in_][2:]
        if result.shape[:2] != size:
            result = resize_image(result, size)
        return as_input(
            result,
            transpose=self.transpose.get(in_),
            channel_swap=self.channel_swap.get(in_),
            raw_scale=self.raw_scale.get(in_),
            mean=self.mean.get(in_),
            input_scale=self.input_scale.get(in_),
        )

    def deprocess(self, in_: str, data: Any) -> Array:
        """Return the image of a blob's values: the steps of `preprocess` backwards, without the resizing."""
        self._check_input(in_)
        result = np.array(data).squeeze()
        if in_ in self.input_scale:
            result = result / self.input_scale[in_]
        if in_ in self.mean:
            result = (result + self.mean[in_]).astype(result.dtype, copy=False)
        if in_ in self.raw_scale:
            result = result / self.raw_scale[in_]
        if in_ in self.channel_swap:
            result = result[np.argsort(self.channel_swap[in_])]
        if in_ in self.transpose:
            result = result.transpose(np.argsort(self.transpose[in_]))
        return result

    def set_transpose(self, in_: str, order: Sequence[int]) -> None:
        """Set the order of the axes: (2, 0, 1) makes height x width x channels to channels x height x width.

        Raises:
            ArgumentError: it has not as many axes as a record.
        """
        self._check_input(in_)
        if len(order) != len(self.inputs[in_]) - 1:
            raise ArgumentError(
                f"the order {tuple(order)} has {len(order)} axes, a record of '{in_}' has {len(self.inputs[in_]) - 1}"
            )
        self.transpose[in_] = tuple(order)

    def set_channel_swap(self, in_: str, order: Sequence[int]) -> None:
        """Set the order of the channels: (2, 1, 0) makes RGB to BGR.

        Raises:
            ArgumentError: it has not as many channels as the blob.
        """
        self._check_input(in_)
        if len(order) != self.inputs[in_][1]:
            raise ArgumentError(
                f"the order {tuple(order)} has {len(order)} channels, '{in_}' has {self.inputs[in_][1]}"
            )
        self.channel_swap[in_] = tuple(order)

    def set_raw_scale(self, in_: str, scale: float) -> None:
        """Set what values are multiplied with before the mean is taken off: 255 for nets that want 0 to 255."""
        self._check_input(in_)
        self.raw_scale[in_] = scale

    def set_mean(self, in_: str, mean: Any) -> None:
        """Set the mean to take off: one value a channel, or an image of it, resized where it is of another size.

        Args:
            in_: the blob's name.
            mean: channels, channels x height x width, or 1 x height x width for all channels.

        Raises:
            ArgumentError: it has not as many channels as the blob, or no shape of an image.
        """
        self._check_input(in_)
        shape = self.inputs[in_][1:]
        mean = np.asarray(mean)
        if mean.ndim == 1:
            if len(mean) != shape[0]:
                raise ArgumentError(f"the mean has {len(mean)} channel(s), '{in_}' has {shape[0]}")
            self.mean[in_] = mean[:, np.newaxis, np.newaxis]
            return
        image = mean[np.newaxis] if mean.ndim == 2 else mean
        channels = {shape[0]} if mean.ndim == 2 else {1, shape[0]}
        if image.ndim != 3 or len(image) not in channels:
            raise ArgumentError(
                f"a mean of shape {mean.shape} does not fit '{in_}', whose records are {shape}",
                hint="give one value a channel, an image of as many channels, or 1 x height x width for all channels",
            )
        if image.shape[1:] != shape[1:]:
            image = resize_image(image.transpose(1, 2, 0), shape[1:]).transpose(2, 0, 1)
        self.mean[in_] = image

    def set_input_scale(self, in_: str, scale: float) -> None:
        """Set what values are multiplied with at the end."""
        self._check_input(in_)
        self.input_scale[in_] = scale

    def _check_input(self, in_: str) -> None:
        if in_ not in self.inputs:
            raise ArgumentError(f"'{in_}' is none of the net's inputs: {', '.join(self.inputs)}")
