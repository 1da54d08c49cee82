"""A blob of a net, as scripts see it (Caffe: _caffe.cpp, the class Blob)."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
import torch

from mgcaffe import engine
from mgcaffe.engine.host_blob import HostBlob, as_sizes
from mgcaffe.engine.host_copies import HostArray, Loans, write_back
from mgcaffe.engine.types import Array, Shape

RawBlobVec = list
"""The class of what a layer in Python is given as `bottom` and `top`; scripts import it from `caffe._caffe`."""


class BlobVec(tuple[HostBlob, ...]):
    """The learnable blobs of a layer, except for one in Python.

    Scripts compare the class of `net.params["conv"]` with `caffe._caffe.BlobVec`.
    """

    __slots__ = ()


class TopValues(Protocol):
    """What a layer's next forward finds in its tops: tensors by the tops' numbers, which can be exchanged."""

    def __getitem__(self, index: int, /) -> torch.Tensor: ...

    def __setitem__(self, index: int, values: torch.Tensor, /) -> None: ...


class Blob(HostBlob):
    """A blob whose `data` and `diff` are numpy arrays that write through, before and after a pass.

    Args:
        net: the engine's net.
        blob: the engine's blob.
        source: what its layer's next forward finds in the tops, if the layer is an Input or one in Python, and which
            of them it is; None for all others.
        weight: its weight in the net's loss.
        loans: where the copies of its net's blobs are noted.
    """

    def __init__(
        self,
        net: engine.Net,
        blob: engine.Blob,
        source: tuple[TopValues, int] | None = None,
        weight: float = 0.0,
        loans: Loans | None = None,
    ) -> None:
        self._net = net
        self._blob = blob
        self._source = source
        self._weight = weight
        self._loans = loans or Loans()
        self._data, self._diff = HostArray(self._loans), HostArray(self._loans)
        self._data_memory, self._diff_memory = _BlobMemory(), _BlobMemory()

    @property
    def shape(self) -> Shape:
        """The sizes of the axes."""
        return self._blob.shape

    @property
    def data(self) -> Array:
        """The values; zeros before the first pass."""
        blob = self._blob
        self.fill()
        assert blob.data is not None
        array = self._data.view(blob.data)
        if self._source is not None:
            values, index = self._source
            if values[index] is not blob.data:
                self._watch(blob.data, array)
        return array

    @property
    def diff(self) -> Array:
        """The gradient; zeros where none was computed, and a loss's weight before it is first used."""
        blob = self._blob
        if not _is_usable(blob.diff, blob.shape):
            if blob.diff is None:
                blob.diff = self._zeros().fill_(self._weight)
            else:
                blob.diff = self._diff_memory.resized(blob.diff, blob.shape)
        assert blob.diff is not None
        return self._diff.view(blob.diff)

    def reshape(self, *sizes: int) -> None:
        """Give the blob another shape; `Net.reshape` or the next forward passes it on.

        Values and gradient stay, in their order, also where the blob gets smaller and then larger again; with more
        values than it ever had, all are zeros.
        """
        blob, shape = self._blob, as_sizes(sizes)
        if shape == blob.shape:
            return
        write_back(self._loans)
        values = self._zeros() if blob.data is None else blob.data
        blob.shape = shape
        self._set_data(self._data_memory.resized(values, shape))
        if blob.diff is not None:
            blob.diff = self._diff_memory.resized(blob.diff, shape)

    def _set_data(self, values: torch.Tensor) -> None:
        self._blob.data = values
        if self._source is not None:
            held, index = self._source
            held[index] = values

    def fill(self) -> None:
        """Let the blob have values in its shape: zeros where it has none."""
        blob = self._blob
        if not _is_usable(blob.data, blob.shape):
            self._set_data(self._zeros() if blob.data is None else self._data_memory.resized(blob.data, blob.shape))

    def feed(self) -> None:
        """Make what lies in the blob what its Input layer gives, also where a layer in place has written it."""
        if self._blob.data is not None:
            self._set_data(self._blob.data)

    def _watch(self, values: torch.Tensor, array: Array) -> None:
        """Give the layer what is written into its blob, where that is another tensor than the layer's own.

        It is one where a layer in place has run on it, and where a net on a GPU has a layer in Python, which holds its
        tops on the CPU.
        """
        before = array.copy()

        def take() -> None:
            if self._blob.data is values and not np.array_equal(values.cpu().numpy(), before, equal_nan=True):
                self._set_data(values)

        self._loans.call_before_running(self, take)

    def _zeros(self) -> torch.Tensor:
        return torch.zeros(self._blob.shape, dtype=self._net.dtype, device=self._net.device)


class _BlobMemory:
    """The memory of a blob, which it keeps when it gets smaller, with all that lies in it (Caffe: Blob::Reshape)."""

    def __init__(self) -> None:
        self._whole: torch.Tensor | None = None

    def resized(self, tensor: torch.Tensor, shape: Shape) -> torch.Tensor:
        """Return a tensor of another shape, with the values of `tensor`, and behind them what lay there before.

        More values than there ever were are zeros, all of them.
        """
        whole, count = self._whole, math.prod(shape)
        if whole is None or not _begins_with(whole, tensor):
            whole = tensor.reshape(-1)
        if count > whole.numel():
            whole = tensor.new_zeros(count)
        self._whole = whole
        return whole[:count].view(shape)


def _begins_with(whole: torch.Tensor, tensor: torch.Tensor) -> bool:
    """Return whether the memory of `whole` begins with that of a tensor."""
    places = [(each.untyped_storage().data_ptr(), each.storage_offset(), each.dtype) for each in (whole, tensor)]
    return places[0] == places[1] and tensor.is_contiguous() and tensor.numel() <= whole.numel()


def _is_usable(tensor: torch.Tensor | None, shape: Shape) -> bool:
    """Return whether an array can show the tensor: it has the blob's shape, and each value a place of its own."""
    if tensor is None or tuple(tensor.shape) != shape:
        return False
    return all(step != 0 or size <= 1 for step, size in zip(tensor.stride(), tensor.shape, strict=True))
