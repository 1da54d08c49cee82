"""A blob of a net, as scripts see it (Caffe: _caffe.cpp, the class Blob)."""

from __future__ import annotations

import torch

from mgcaffe import engine
from mgcaffe.engine.host_blob import HostArray, HostBlob, as_sizes, resized
from mgcaffe.engine.layers.input import Input
from mgcaffe.engine.types import Array, Shape


class Blob(HostBlob):
    """A blob whose `data` and `diff` are numpy arrays that write through, before and after a pass.

    Args:
        net: the engine's net.
        blob: the engine's blob.
        source: the Input layer that makes it, and which of its tops it is; None for all others.
        weight: its weight in the net's loss.
    """

    def __init__(
        self, net: engine.Net, blob: engine.Blob, source: tuple[Input, int] | None = None, weight: float = 0.0
    ) -> None:
        self._net = net
        self._blob = blob
        self._source = source
        self._weight = weight
        self._data, self._diff = HostArray(), HostArray()

    @property
    def shape(self) -> Shape:
        """The sizes of the axes."""
        return self._blob.shape

    @property
    def data(self) -> Array:
        """The values; zeros before the first pass."""
        blob = self._blob
        if not _is_usable(blob.data, blob.shape):
            self._set_data(self._zeros() if blob.data is None else resized(blob.data, blob.shape))
        assert blob.data is not None
        return self._data.view(blob.data)

    @property
    def diff(self) -> Array:
        """The gradient; zeros where none was computed, and a loss's weight before it is first used."""
        blob = self._blob
        if not _is_usable(blob.diff, blob.shape):
            blob.diff = self._zeros().fill_(self._weight) if blob.diff is None else resized(blob.diff, blob.shape)
        assert blob.diff is not None
        return self._diff.view(blob.diff)

    def reshape(self, *sizes: int) -> None:
        """Give the blob another shape; `Net.reshape` or the next forward passes it on."""
        blob, shape = self._blob, as_sizes(sizes)
        if shape == blob.shape:
            return
        values = self._zeros() if blob.data is None else blob.data
        blob.shape = shape
        self._set_data(resized(values, shape))
        blob.diff = None

    def _set_data(self, values: torch.Tensor) -> None:
        self._blob.data = values
        if self._source is not None:
            layer, index = self._source
            layer.values[index] = values

    def _zeros(self) -> torch.Tensor:
        return torch.zeros(self._blob.shape, dtype=self._net.dtype, device=self._net.device)


def _is_usable(tensor: torch.Tensor | None, shape: Shape) -> bool:
    """Return whether an array can show the tensor: it has the blob's shape, and each value a place of its own."""
    if tensor is None or tuple(tensor.shape) != shape:
        return False
    return all(step != 0 or size <= 1 for step, size in zip(tensor.stride(), tensor.shape, strict=True))
