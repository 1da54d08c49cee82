"""Blobs as Python code outside the engine sees them: numpy arrays that write through (pycaffe: Blob)."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from mgcaffe.engine.host_copies import HostArray
from mgcaffe.engine.parameter import Parameter
from mgcaffe.engine.row_parameter import RowParameter
from mgcaffe.engine.types import Array, Shape
from mgcaffe.errors import NetError


class HostBlob:
    """Shape and arrays of a blob. Subclasses say where they are."""

    @property
    def shape(self) -> Shape:
        """The sizes of the axes."""
        raise NotImplementedError

    @property
    def data(self) -> Array:
        """The values."""
        raise NotImplementedError

    @property
    def diff(self) -> Array:
        """The gradient; zeros where none was computed."""
        raise NotImplementedError

    def reshape(self, *sizes: int) -> None:
        """Give the blob another shape. Values stay, in their order, unless there are more now."""
        raise NotImplementedError

    @property
    def count(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    @property
    def num(self) -> int:
        """Size of axis 0 of a blob of at most four axes; 1 where it has none."""
        return self._legacy(0)

    @property
    def channels(self) -> int:
        """Size of axis 1, likewise."""
        return self._legacy(1)

    @property
    def height(self) -> int:
        """Size of axis 2, likewise."""
        return self._legacy(2)

    @property
    def width(self) -> int:
        """Size of axis 3, likewise."""
        return self._legacy(3)

    def _legacy(self, axis: int) -> int:
        shape = self.shape
        if len(shape) > 4:
            raise NetError(
                f"num, channels, height and width are those of blobs with at most 4 axes; this one has {len(shape)}",
                hint="use shape",
            )
        return shape[axis] if axis < len(shape) else 1


def as_sizes(sizes: tuple[Any, ...]) -> Shape:
    """Return the arguments of `reshape` as a shape.

    Raises:
        NetError: a size is negative.
        TypeError: a size is no whole number.
    """
    shape = tuple(operator.index(size) for size in sizes)
    if any(size < 0 for size in shape):
        raise NetError(f"a blob cannot have the shape {shape}: sizes are at least 0")
    return shape


def resized(tensor: torch.Tensor, shape: Shape) -> torch.Tensor:
    """Return a tensor of this shape that begins with the values of `tensor`, then zeros (Caffe: Reshape)."""
    count = math.prod(shape)
    if count > tensor.numel():
        return tensor.new_zeros(shape)
    return tensor.reshape(-1)[:count].reshape(shape).contiguous()


class LayerBlob(HostBlob):
    """A bottom or top of a layer written in Python, always in the CPU's memory.

    Args:
        tensor: the values, on the CPU.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        self.values = tensor
        self._gradient: torch.Tensor | None = None

    @property
    def shape(self) -> Shape:
        """The sizes of the axes."""
        return tuple(self.values.shape)

    @property
    def data(self) -> Array:
        """The values."""
        return self.values.numpy()

    @property
    def diff(self) -> Array:
        """The gradient; zeros until someone writes it."""
        if self._gradient is None:
            self._gradient = torch.zeros(self.values.shape, dtype=self.values.dtype)
        return self._gradient.numpy()

    def reshape(self, *sizes: int) -> None:
        """Give the blob another shape."""
        shape = as_sizes(sizes)
        if shape != self.shape:
            self.values = resized(self.values, shape)
            self._gradient = None

    def give(self, gradient: torch.Tensor) -> None:
        """Set the gradient."""
        self._gradient = gradient

    def take(self, keep: bool = False) -> torch.Tensor:
        """Return the gradient, which then belongs to the caller, or with `keep` to both."""
        gradient = self._gradient
        if gradient is None:
            gradient = torch.zeros(self.values.shape, dtype=self.values.dtype)
        self._gradient = gradient if keep else None
        return gradient


class ParameterBlob(HostBlob):
    """A learnable blob of a layer.

    Args:
        parameter: what it shows.
        resize: gives the parameter another shape, or refuses to; None: refused.
    """

    def __init__(self, parameter: Parameter, resize: Callable[[Parameter, Shape], None] | None = None) -> None:
        self._parameter = parameter
        self._resize = resize
        self._data, self._diff = HostArray(), HostArray()

    @property
    def shape(self) -> Shape:
        """The sizes of the axes."""
        return self._parameter.shape

    @property
    def data(self) -> Array:
        """The values; before the net has given them a place, those that the parameter begins with."""
        parameter = self._parameter
        if parameter.data is not None:
            return self._data.view(parameter.data)
        if parameter.initial is None:
            parameter.initial = torch.zeros(parameter.shape, dtype=torch.float64)
        return parameter.initial.numpy()

    @property
    def diff(self) -> Array:
        """The gradient. Who asks for it may write it, so the next one that is computed is added.

        That of a table, which is kept by rows, is a copy that cannot be written.
        """
        parameter = self._parameter
        if parameter.data is None:
            return np.zeros(parameter.shape, np.float32)
        if isinstance(parameter, RowParameter):
            copied: Array = parameter.dense_diff().cpu().numpy()
            copied.flags.writeable = False
            return copied
        parameter.complete()
        if parameter.fresh:
            parameter.diff.zero_()
            parameter.fresh = False
        return self._diff.view(parameter.diff)

    def reshape(self, *sizes: int) -> None:
        """Give the blob another shape, which only `setup` of a layer in Python may do.

        Raises:
            NetError: the net has been made.
        """
        shape = as_sizes(sizes)
        if shape == self.shape:
            return
        if self._resize is None:
            raise NetError(
                f"a learnable blob of shape {self.shape} cannot become one of shape {shape}",
                hint="change the layer's fields (num_output and so on) and make the net anew",
            )
        self._resize(self._parameter, shape)
