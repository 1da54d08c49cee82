"""Data: batches from an LMDB or a LevelDB of Datum records, in the order of their keys.

Fields of `data_param` (default): source, a folder; batch_size; backend: what the folder holds decides, and another one
is an error; prefetch (4): how many batches a thread makes ahead; shuffle (false): a new order every epoch;
parser_threads (0): how many encoded images are decoded at a time, 0 for as many as the rank computes with; bad_record
(STOP) and bad_record_limit (100): see record_loader.py; rand_skip (0): a start that the seed picks below it. In nets
with `layers` scale, mirror, crop_size and mean_file stand here. force_encoded_color does nothing; force_color and
force_gray of transform_param say how encoded images are decoded, and leave records of pixels as they are, with a
warning.
Fields of `transform_param`: see transformer.py.
No bottoms. Tops: images, batch x channels x height x width; optionally labels, batch.
Differences from Caffe: a LevelDB is read once from end to end when it is opened. Each rank reads its own records only,
where Caffe's solvers all read all of them. rand_skip, which today's Caffe reads no more, has its old meaning, with a
start that the seed picks.
(Caffe: data_layer.cpp.)
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import numpy as np

from mgcaffe.engine.checks.said_once import warn_once
from mgcaffe.engine.data.batches import BatchForm, EpochOrder
from mgcaffe.engine.data.data_layer import DataLayer
from mgcaffe.engine.data.databases import open_records
from mgcaffe.engine.data.datum import DatumRecord, decode_datum_record
from mgcaffe.engine.data.images.transform_fields import (
    check_fit,
    color_choice,
    make_transformer,
    refuse_other_fields,
    shape_by_hint,
)
from mgcaffe.engine.data.images.transformer import Transformer
from mgcaffe.engine.data.leveldb import LevelDbSource
from mgcaffe.engine.data.record_loader import (
    BadRecordRule,
    RecordLoader,
    bad_record_rule,
    check_shape,
    decode_threads,
)
from mgcaffe.engine.data.record_source import RecordSource
from mgcaffe.engine.data.stages import StageTimes
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Array, Shape
from mgcaffe.errors import DataError
from mgcaffe.errors.file_names import found_name

_log = logging.getLogger("mgcaffe.engine")

# The transform fields stood here once (the upgrade moves them); rand_skip no longer does anything in Caffe;
# the rest says how a fork reads, not what.
_KNOWN_FIELDS = {
    *("source", "batch_size", "backend", "prefetch", "shuffle"),
    *("scale", "mean_file", "crop_size", "mirror", "force_encoded_color"),
    *("rand_skip", "threads", "parser_threads", "cache", "precache", "bad_record", "bad_record_limit"),
}


class DatumReader:
    """Reads, decodes and transforms records of a database."""

    def __init__(
        self,
        source: RecordSource,
        transformer: Transformer,
        order: EpochOrder,
        color: bool | None,
        tops: int,
        *,
        rule: BadRecordRule,
        stages: StageTimes,
        threads: int = 1,
    ) -> None:
        self._source, self._transformer, self._order, self._stages = source, transformer, order, stages
        self._color, self._tops = color, tops
        self.count = order.count
        self._loader = RecordLoader(order.count, self._load, rule)
        numbers, (first,) = self._loader.load([0])
        self._has_warned = color is None
        self._warn_of_pixels(numbers, [first])
        self.first_shape: Shape = first.image.shape
        self.record_shapes: list[Shape] = []
        if first.encoded:  # taking raw records apart costs less than handing them to a thread
            self._loader.use_threads(threads)
            stages.threads = threads
        if rule.skip:
            self._loader.check = self._check_shape

    def read(self, records: Sequence[int], form: BatchForm) -> list[Array]:
        """Return images and, with two tops, labels. See Reader."""
        self._source.check_unchanged()
        indices = self._order.indices(records, form.stream)
        numbers, loaded = self._stages.share_out(self._loader.load, indices)
        self._warn_of_pixels(numbers, loaded)
        images = self._transformer(
            [record.image for record in loaded],
            records,
            form,
            lambda index: self._source.describe(numbers[index]),
            self._stages.transforming(self._loader.run),
        )
        if self._tops == 1:
            return [images]
        return [images, np.array([record.label for record in loaded], form.dtype)]

    def close(self) -> None:
        """End the decoding threads; the source closes when the last layer that reads it is gone."""
        self._loader.close()

    def _load(self, number: int) -> DatumRecord:
        began = time.perf_counter()
        value = self._source.value(number)
        read = time.perf_counter()
        try:
            record = decode_datum_record(value, self._color)
        except DataError as error:
            raise DataError(f"{self._source.describe(number)}: {error.message}", hint=error.hint) from error
        self._stages.add(read=read - began, decode=time.perf_counter() - read)
        return record

    def _warn_of_pixels(self, numbers: Sequence[int], records: Sequence[DatumRecord]) -> None:
        """Warn, once for the source, of records of pixels whose channels are not those that force_color asks for."""
        if self._has_warned:
            return
        field, channels = ("force_color", 3) if self._color else ("force_gray", 1)
        for number, record in zip(numbers, records, strict=True):
            if not record.encoded and len(record.image) != channels:
                self._has_warned = True
                where = self._source.describe(number)
                warn_once(
                    _log,
                    f"{where} holds pixels, no encoded image, so {field} leaves its {len(record.image)} channel(s) as"
                    " they are, as in Caffe; remove the field (said once for a source)",
                    key=f"{field} {self._source.name}",
                )
                return

    def _check_shape(self, number: int, record: DatumRecord) -> None:
        check_shape(self._transformer, record.image.shape, self.first_shape, self._source.describe(number))


@register("Data")
class Data(DataLayer):
    """Records of a database."""

    fields = "data_param"

    def open_source(self) -> DatumReader:
        """Open the database and decode its first record."""
        param = self.param.data_param
        refuse_other_fields(self, param, "data_param", _KNOWN_FIELDS)
        if not param.source:
            self.fail("source is missing", "data_param", hint="name the folder of an LMDB or LevelDB database")
        transformer = make_transformer(self)
        source = open_records(found_name(param.source))
        holds = "LEVELDB" if isinstance(source, LevelDbSource) else "LMDB"
        if param.HasField("backend") and (param.backend == param.LEVELDB) != (holds == "LEVELDB"):
            self.fail(
                f"backend is {param.DB.Name(param.backend)}, but '{param.source}' holds a database of kind {holds}",
                "data_param.backend",
                hint=f"write backend: {holds}",
                error=DataError,
            )
        order = EpochOrder(len(source), param.shuffle, param.rand_skip)
        reader = DatumReader(
            source,
            transformer,
            order,
            color_choice(self),
            len(self.param.top),
            rule=bad_record_rule(self.param),
            stages=self.stages,
            threads=decode_threads(self.param),
        )
        shape = check_fit(self, transformer, reader.first_shape)
        reader.record_shapes = [shape, ()][: len(self.param.top)]
        return reader

    def shape_without_source(self, hint: Shape | None) -> list[Shape]:
        """From the hint (channels, height, width before cropping), or from crop_size alone."""
        return super().shape_without_source(shape_by_hint(self, hint))
