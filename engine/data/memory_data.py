"""MemoryData: batches from arrays that the caller hands over.

The arrays come by `reset` (pycaffe's set_input_arrays) and are given out from the beginning again after their end.

Fields of `memory_data_param`: batch_size, channels, height, width: all at least 1.
Fields of `transform_param`: warned about, and not applied to arrays given by `reset`, as in Caffe.
No bottoms. Tops: images, batch x channels x height x width; labels, batch.
Differences from Caffe: ranks that train in step are given the same arrays and share them out. A layer that works in
place on a top leaves the arrays as they are, where Caffe's writes over them. (Caffe: memory_data_layer.cpp.)
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from mgcaffe.engine.data.batches import BatchForm, in_form
from mgcaffe.engine.data.data_layer import DataLayer
from mgcaffe.engine.layer import exactly
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Array, Shape
from mgcaffe.errors import DataError

logger = logging.getLogger("mgcaffe.engine")


class ArrayReader:
    """Rows of two arrays in memory, modulo their length."""

    count: int | None = None

    def __init__(self, shape: Shape) -> None:
        self.record_shapes: list[Shape] = [shape, ()]
        self._arrays: tuple[Array, Array] | None = None

    def reset(self, data: Array, labels: Array) -> None:
        """Take other arrays."""
        self._arrays = (data, labels)

    def read(self, records: Sequence[int], form: BatchForm) -> list[Array]:
        """Return data and labels. See Reader."""
        if self._arrays is None:
            raise DataError("no data has been given", hint="call reset (pycaffe: set_input_arrays) first")
        rows = np.asarray(records) % len(self._arrays[0])
        return [in_form(array[rows], form) for array in self._arrays]

    def close(self) -> None:
        """Drop the arrays."""
        self._arrays = None


@register("MemoryData")
class MemoryData(DataLayer):
    """Rows of arrays in memory."""

    tops = exactly(2)
    fields = "memory_data_param"
    prefetch = 0  # the arrays may be exchanged between two passes

    def open_source(self) -> ArrayReader:
        """Check the shape of a record."""
        param = self.param.memory_data_param
        shape = (int(param.channels), int(param.height), int(param.width))
        if min(shape) < 1:
            self.fail(
                f"channels, height and width are {shape[0]}, {shape[1]}, {shape[2]}; all have to be positive",
                "memory_data_param",
            )
        return ArrayReader(shape)

    def shape_without_source(self, hint: Shape | None) -> list[Shape]:
        """Return what the fields say."""
        return self.open_source().record_shapes

    def reset(self, data: Array, labels: Array) -> None:
        """Give the layer its data and start from the beginning; transform_param is not applied.

        Args:
            data: n x channels x height x width, n a multiple of batch_size.
            labels: n values, of any shape.

        Raises:
            DataError: the arrays do not fit the layer.
        """
        if not isinstance(self._reader, ArrayReader):
            self.fail("the layer is closed", error=DataError)
        shape = self._reader.record_shapes[0]
        if tuple(data.shape[1:]) != shape or labels.size != len(data):
            self.fail(
                f"data of shape {tuple(data.shape)} with {labels.size} label(s) was given; the layer takes"
                f" n x {' x '.join(map(str, shape))} with n labels",
                error=DataError,
            )
        if not len(data) or len(data) % self.batch_size:
            self.fail(f"{len(data)} records are no multiple of batch_size {self.batch_size}", error=DataError)
        if self.param.HasField("transform_param"):
            logger.warning("layer '%s': MemoryData does not transform arrays given by reset", self.name)
        self._reader.reset(data, labels.reshape(-1))
        self.seek(0)
