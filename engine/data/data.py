"""Data: batches from an LMDB of Datum records, in the order of their keys (Caffe: data_layer.cpp).

data_param: source (a folder), batch_size, backend (what the folder holds decides; LevelDB is refused),
prefetch (4 batches ahead), shuffle (false; a new order every epoch). transform_param: see transformer.py.
Tops: batch x channels x height x width, and if there is a second one the labels, batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mgcaffe.engine.data.batches import Array, BatchForm, EpochOrder
from mgcaffe.engine.data.data_layer import DataLayer
from mgcaffe.engine.data.datum import decode_datum
from mgcaffe.engine.data.lmdb_source import LmdbSource, open_lmdb
from mgcaffe.engine.data.transform_fields import (
    check_fit,
    color_choice,
    make_transformer,
    refuse_other_fields,
    shape_by_hint,
)
from mgcaffe.engine.data.transformer import Transformer
from mgcaffe.engine.parameter import Shape
from mgcaffe.engine.registry import register
from mgcaffe.errors import DataError

# The transform fields stood here once (the upgrade moves them); rand_skip no longer does anything in Caffe;
# the rest says how a fork reads, not what.
_KNOWN_FIELDS = {
    *("source", "batch_size", "backend", "prefetch", "shuffle"),
    *("scale", "mean_file", "crop_size", "mirror", "force_encoded_color"),
    *("rand_skip", "threads", "parser_threads", "cache", "precache"),
}


class DatumReader:
    """Reads, decodes and transforms records of an LMDB."""

    def __init__(
        self, source: LmdbSource, transformer: Transformer, order: EpochOrder, color: bool | None, tops: int
    ) -> None:
        self._source, self._transformer, self._order = source, transformer, order
        self._color, self._tops = color, tops
        self.count = order.count
        self.first_shape: Shape = self._decode([0])[0][0].shape
        self.record_shapes: list[Shape] = []

    def read(self, records: Sequence[int], form: BatchForm) -> list[Array]:
        """Images and, with two tops, labels. See Reader."""
        numbers = self._order.indices(records, form.stream)
        decoded = self._decode(numbers)
        images = self._transformer(
            [image for image, _ in decoded],
            records,
            form,
            lambda index: self._source.describe(numbers[index]),
        )
        if self._tops == 1:
            return [images]
        return [images, np.array([label for _, label in decoded], form.dtype)]

    def close(self) -> None:
        """Nothing: the source closes when the last layer that reads it is gone."""

    def _decode(self, numbers: Sequence[int]) -> list[tuple[Array, int]]:
        decoded = []
        for number, value in zip(numbers, self._source.values(numbers), strict=True):
            try:
                decoded.append(decode_datum(value, self._color))
            except DataError as error:
                raise DataError(f"{self._source.describe(number)}: {error.message}", hint=error.hint) from error
        return decoded


@register("Data")
class Data(DataLayer):
    """Records of an LMDB."""

    fields = "data_param"

    def open_source(self) -> DatumReader:
        """Opens the LMDB and decodes its first record."""
        param = self.param.data_param
        refuse_other_fields(self, param, "data_param", _KNOWN_FIELDS)
        if not param.source:
            self.fail("source is missing", "data_param", hint="name the folder of an LMDB database")
        transformer = make_transformer(self)
        source = open_lmdb(param.source)
        if param.HasField("backend") and param.backend == param.LEVELDB:
            self.fail(
                f"backend is LEVELDB, but '{param.source}' holds an LMDB database",
                "data_param.backend",
                hint="write backend: LMDB",
                error=DataError,
            )
        order = EpochOrder(len(source), param.shuffle)
        reader = DatumReader(source, transformer, order, color_choice(self), len(self.param.top))
        shape = check_fit(self, transformer, reader.first_shape)
        reader.record_shapes = [shape, ()][: len(self.param.top)]
        return reader

    def shape_without_source(self, hint: Shape | None) -> list[Shape]:
        """From the hint (channels, height, width before cropping), or from crop_size alone."""
        return super().shape_without_source(shape_by_hint(self, hint))
