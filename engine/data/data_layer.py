"""The base of all layers that read records: who reads which, prefetching, positions, located errors.

A layer opens its source in `setup` and starts its thread at the first forward pass. The thread reads,
decodes and transforms `data_param.prefetch` batches (4) ahead of the net. The global record numbers of each
batch come from `context.shard`, so ranks that train in step never read the same record in an epoch.
"""

from __future__ import annotations

import contextlib
import functools
import time
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar, NoReturn

import numpy as np
import torch

from mgcaffe.engine.data import random_numbers
from mgcaffe.engine.data.batch_memory import BatchMemory
from mgcaffe.engine.data.batches import BatchForm, Reader
from mgcaffe.engine.data.prefetcher import Prefetcher
from mgcaffe.engine.data.stages import StageTimes
from mgcaffe.engine.layer import Layer, between, exactly
from mgcaffe.engine.layer_context import LayerContext
from mgcaffe.engine.shard import Shard, TestShard
from mgcaffe.engine.types import Shape
from mgcaffe.errors import DataError
from mgcaffe.prototxt import LayerParameter, Source

_NUMPY_TYPES: dict[torch.dtype, np.dtype[Any]] = {
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
}


MAX_BATCH = 1 << 24
"""The most records of a batch: their numbers alone take memory and time."""


class DataLayer(Layer):
    """A layer without bottoms whose tops are batches of records.

    Subclasses say how to open the source (`open_source`) and, for nets that are only looked at, which
    shapes its records would have (`shape_without_source`).

    Attributes:
        fields: the name of the message that holds `batch_size` and the source.
        wait_s: seconds that forward has waited for data.
        stages: what making its batches has taken.
    """

    bottoms = exactly(0)
    tops = between(1, 2)
    keeps_bottoms = False
    fields: ClassVar[str] = ""
    wait_s: float = 0.0
    _start = 0
    _batches = 0
    _batch_size = 0
    _record_shapes: Sequence[Shape] = ()
    _reader: Reader | None = None
    _prefetcher: Prefetcher[list[torch.Tensor]] | None = None
    _forget: weakref.finalize[..., DataLayer] | None = None

    def __init__(self, param: LayerParameter, context: LayerContext, source: Source | None = None) -> None:
        """Take what every layer takes."""
        super().__init__(param, context, source)
        self._peeked: deque[list[torch.Tensor]] = deque()
        self.stages = StageTimes()
        self._memory = BatchMemory(pinned=context.device.type == "cuda")

    # -- for subclasses ----------------------------------------------------------------------------------

    def open_source(self) -> Reader:
        """Open the source and look at its first record.

        Raises:
            DataError: it is missing, empty or damaged.
        """
        raise NotImplementedError

    def shape_without_source(self, hint: Shape | None) -> list[Shape]:
        """Return the shape of one record in each top, for a net that is only looked at.

        Args:
            hint: the shape of a record as the source would give it; None if it was not given.
        """
        if hint is None:
            self.fail(
                "the shape of its records is not known without the source",
                hint=f"give it with --input_shape={self.param.top[0]}=C,H,W",
            )
        return [hint, *[()] * (len(self.param.top) - 1)]

    # -- the layer contract ------------------------------------------------------------------------------

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Check the batch size and open the source, unless the context gives shapes instead of sources."""
        self._batch_size = getattr(self.param, self.fields).batch_size
        if self._batch_size < 1:
            self.fail(
                "batch_size is missing or 0",
                f"{self.fields}.batch_size",
                hint="say how many records make a batch",
            )
        if self._batch_size > MAX_BATCH:
            self.fail(
                f"batch_size is {self._batch_size}; at most {MAX_BATCH} records are read at a time",
                f"{self.fields}.batch_size",
            )
        shapes = self.context.input_shapes
        if shapes is not None:
            self._record_shapes = self.shape_without_source(shapes.get(self.name, shapes.get("*")))
            return
        try:
            self._reader = self.open_source()
            self._record_shapes = self._reader.record_shapes
        except DataError as error:
            self._fail_located(error)

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return the tops' shapes as the first record has them; a batch of another shape has its own."""
        return [(self._batch_size, *shape) for shape in self._record_shapes]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the next batch of this rank, on the context's device.

        Raises:
            DataError: a record could not be read; located, also where it happened in the thread.
        """
        self.peek(0)
        self._batches += 1
        return [top.to(self.context.device, non_blocking=True) for top in self._peeked.popleft()]

    def peek(self, ahead: int) -> list[torch.Tensor]:
        """Return the tops, in the host's memory, that forward gives after so many others; nothing else changes.

        Raises:
            DataError: as forward.
        """
        started = time.perf_counter()
        try:
            while len(self._peeked) <= ahead:
                self._peeked.append(self._next_batch())
        except DataError as error:
            self._fail_located(error)
        finally:
            self.wait_s += time.perf_counter() - started
        return self._peeked[ahead]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Nothing: there are no bottoms."""
        return []

    # -- positions ---------------------------------------------------------------------------------------

    @property
    def batch_size(self) -> int:
        """Records in a batch of this rank."""
        return self._batch_size

    @property
    def source_records(self) -> int | None:
        """How many records the source holds; None if that is not known."""
        return None if self._reader is None else self._reader.count

    @property
    def prefetch(self) -> int:
        """How many batches the thread makes ahead; 0 reads them in forward."""
        return int(self.param.data_param.prefetch)

    def position(self) -> int:
        """Global records that all ranks have consumed, counted from the beginning of the first epoch."""
        return self.context.shard.position(self._start, self._batches, self._batch_size)

    def seek(self, records: int) -> None:
        """Go on with the batch after the first `records` global records; drop what was prefetched."""
        self._stop_thread()
        self._start, self._batches = records, 0

    def close(self) -> None:
        """End the thread and close the source. The layer cannot run any more."""
        self._stop_thread()
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    # -- inside ------------------------------------------------------------------------------------------

    def _next_batch(self) -> list[torch.Tensor]:
        if self._reader is None:
            raise DataError("the layer has no open source, so it has no data to give")
        if self._prefetcher is not None:
            return self._prefetcher.get()
        produce = functools.partial(
            _make_batch,
            self._reader,
            self.context.shard,
            self._start,
            self._batch_size,
            self._form(),
            self.context.device,
            self.stages,
        )
        if self.prefetch == 0:
            return produce(self._batches + len(self._peeked))
        self._prefetcher = Prefetcher(produce, self.prefetch)
        self._forget = weakref.finalize(self, self._prefetcher.close)
        return self._prefetcher.get()

    def _form(self) -> BatchForm:
        return BatchForm(
            _NUMPY_TYPES[self.context.dtype],
            self.context.memory_format == torch.channels_last,
            random_numbers.stream(self.context.seed, self.name),
            self._memory,
        )

    def _stop_thread(self) -> None:
        if self._forget is not None:
            self._forget()  # runs the close that would otherwise run when the layer is forgotten
        self._prefetcher = self._forget = None
        self._peeked.clear()

    def _fail_located(self, error: DataError) -> NoReturn:
        named = f" (layer '{self.name}', type {self.type})"
        raise DataError(
            error.message if error.message.endswith(named) else error.message + named,
            location=error.location or self.location(f"{self.fields}.source"),
            hint=error.hint,
        ) from error


def _make_batch(
    reader: Reader,
    shard: Shard | TestShard,
    start: int,
    batch_size: int,
    form: BatchForm,
    device: torch.device,
    stages: StageTimes,
    number: int,
) -> list[torch.Tensor]:
    """Batch `number` after global record `start` as tensors; in pinned memory on its way to a GPU."""
    assert form.memory is not None
    began = time.perf_counter()
    records = shard.records(start, number, batch_size)
    # Pinning makes a context on the thread's current GPU.
    with torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
        tensors = form.memory.tensors(reader.read(records, form))
    stages.batch_made(len(records), time.perf_counter() - began)
    return tensors
