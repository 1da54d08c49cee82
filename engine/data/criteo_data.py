"""CriteoData: rows of click-through-rate data in Criteo's format.

    dense = log(max(x, 0) + 1)                        of each of the 13 integers x
    id = v mod table_size                             of each of the 26 categorical values v, in 64 bits; or
    id = (place of v in the dictionary, from 1; 0 where it isn't there) mod table_size

A row is a line: the label (0 or 1), 13 integers and 26 values of hexadecimal digits, between tabs; a missing value is
an empty field, and counts as 0.

Fields of `criteo_data_param` (default): source: a file, plain or packed by gzip, given once for each of several, which
are read one after the other, or an LMDB of `engine convert_criteo`; batch_size; table_size: how many ids a feature has,
once for all 26 or once for each; dictionary: a file of `engine convert_criteo --dictionary`, with which table_size may
be left out; shuffle (false): a new order every epoch, not for gzip files; rand_skip (0): a start that the seed picks
below it.
Fields of `data_param` (default): prefetch (4), bad_record (STOP) and bad_record_limit (100), like those of a Data
layer. A malformed row is a bad record, named by file, line and column.
No bottoms. Tops: labels, batch; dense, batch x 13; ids, batch x 26. Or 28: labels, dense, and the ids of each feature,
batch x 1. Ids are whole numbers in the net's own type, so a table has at most 2^24 rows in float32, 2^53 in float64.
No differences from Caffe. (In no Caffe: the rules are those of DLRM's data_utils.py, but with ids in 64 bits.)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from mgcaffe.engine.data.batches import BatchForm, EpochOrder
from mgcaffe.engine.data.criteo.dictionary import Dictionary, read_dictionary
from mgcaffe.engine.data.criteo.packed_rows import PackedRows
from mgcaffe.engine.data.criteo.rows import CATEGORIES, INTEGERS, Rows, RowSource
from mgcaffe.engine.data.criteo.text_rows import TextRows
from mgcaffe.engine.data.data_layer import DataLayer
from mgcaffe.engine.data.images.transform_fields import refuse_other_fields
from mgcaffe.engine.data.record_loader import BadRecordRule, RecordLoader, bad_record_rule
from mgcaffe.engine.layer import between
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Array, Shape
from mgcaffe.errors import DataError

_JOINED, _SEPARATE = 3, 2 + CATEGORIES
_READ_OF_DATA = {"prefetch", "bad_record", "bad_record_limit", "threads", "cache", "precache"}
_EXACT_BITS = {torch.float32: 24, torch.float64: 53}


class CriteoReader:
    """Reads rows and makes numbers of them.

    Args:
        source: the rows.
        order: which row each global record is.
        sizes: of the 26 tables.
        dictionary: gives values their ids; None: they are their own.
        rule: what becomes of bad rows.
        separate: whether each feature's ids are an array of their own.
    """

    def __init__(
        self,
        source: RowSource,
        order: EpochOrder,
        sizes: NDArray[np.uint64],
        dictionary: Dictionary | None,
        *,
        rule: BadRecordRule,
        separate: bool,
    ) -> None:
        self._source, self._order, self._sizes, self._dictionary = source, order, sizes, dictionary
        self._separate = separate
        self.count = order.count
        self.record_shapes = record_shapes(separate)
        self._loader = RecordLoader(order.count, source.row, rule)
        self._loader.first()

    def read(self, records: Sequence[int], form: BatchForm) -> list[Array]:
        """Return labels, dense values and ids. See Reader."""
        numbers = self._order.indices(records, form.stream)
        rows, right = self._source.rows(numbers)
        if not right.all():
            unusual = np.flatnonzero(~right)
            _, loaded = self._loader.load([numbers[place] for place in unusual])
            for place, row in zip(unusual, loaded, strict=True):
                rows.put(np.array([place]), row)
        return self._arrays(rows, form)

    def close(self) -> None:
        """Nothing: the files close when nothing refers to them any more."""

    def _arrays(self, rows: Rows, form: BatchForm) -> list[Array]:
        dense = np.log(np.maximum(rows.integers, 0) + 1.0).astype(form.dtype)
        values = rows.categories if self._dictionary is None else self._dictionary.ids(rows.categories)
        ids = (values % self._sizes).astype(form.dtype)
        labels = rows.labels.astype(form.dtype)
        if not self._separate:
            return [labels, dense, ids]
        return [labels, dense, *(column[:, np.newaxis] for column in np.ascontiguousarray(ids.T))]


@register("CriteoData")
class CriteoData(DataLayer):
    """Rows in Criteo's format."""

    tops = between(_JOINED, _SEPARATE)
    fields = "criteo_data_param"

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Check the number of tops and the sizes of the tables, and look into every file."""
        if len(self.param.top) not in (_JOINED, _SEPARATE):
            self.fail(
                f"CriteoData makes {_JOINED} tops (labels, dense, ids) or {_SEPARATE} (labels, dense, the ids of each"
                f" feature), not {len(self.param.top)}",
                "top",
            )
        self._check_table_sizes(list(self.param.criteo_data_param.table_size))
        refuse_other_fields(self, self.param.data_param, "data_param", _READ_OF_DATA)
        super().setup(bottom_shapes)

    def open_source(self) -> CriteoReader:
        """Find the rows of all files, and read the first one."""
        param = self.param.criteo_data_param
        if not param.source:
            self.fail("source is missing", "criteo_data_param", hint="name a file of rows in Criteo's format")
        source = open_rows(list(param.source))
        if param.shuffle and source.in_order_only is not None:
            self.fail(
                f"shuffle needs rows in any order, too slow to read from the gzip file '{source.in_order_only}'",
                "criteo_data_param.shuffle",
                hint="unpack it, or make an LMDB of it by engine convert_criteo",
                error=DataError,
            )
        dictionary, sizes = None, list(param.table_size)
        if param.dictionary:
            dictionary = self._read_dictionary(param.dictionary)
            sizes = sizes or dictionary.sizes
            self._check_exact(sizes, "criteo_data_param.dictionary")
        return CriteoReader(
            source,
            EpochOrder(len(source), param.shuffle, param.rand_skip),
            np.array(sizes * (CATEGORIES // len(sizes)), np.uint64),
            dictionary,
            rule=bad_record_rule(self.param),
            separate=self._separate(),
        )

    def _read_dictionary(self, path: str) -> Dictionary:
        try:
            return read_dictionary(path)
        except DataError as error:
            raise DataError(
                error.message, location=self.location("criteo_data_param.dictionary"), hint=error.hint
            ) from error

    def shape_without_source(self, hint: Shape | None) -> list[Shape]:
        """Return what every source has."""
        return record_shapes(self._separate())

    def _separate(self) -> bool:
        return len(self.param.top) == _SEPARATE

    def _check_table_sizes(self, sizes: Sequence[int]) -> None:
        if not sizes and self.param.criteo_data_param.dictionary:
            return
        if len(sizes) not in (1, CATEGORIES):
            self.fail(
                f"table_size is given {len(sizes)} time(s); it is needed once for all features, or once for each of"
                f" the {CATEGORIES}",
                "criteo_data_param.table_size" if sizes else "criteo_data_param",
            )
        self._check_exact(sizes, "criteo_data_param.table_size")

    def _check_exact(self, sizes: Sequence[int], field: str) -> None:
        """Make sure that ids of tables of these sizes are exact in the net's type."""
        most = 1 << _EXACT_BITS[self.context.dtype]
        for index, size in enumerate(sizes):
            if 1 <= size <= most:
                continue
            kind = str(self.context.dtype).removeprefix("torch.")
            whose = "" if len(sizes) == 1 else f", categorical feature {index + 1}"
            self.fail(
                f"table_size has to be from 1 to {most} (so far ids are exact in blobs of {kind}), not {size}{whose}",
                field,
                index=index if field.endswith("table_size") else 0,
                hint="make the table smaller, or compute in float64 (--dtype=float64)" if size > most else None,
            )


def open_rows(sources: Sequence[str]) -> RowSource:
    """Return the rows of an LMDB, or of text files.

    Raises:
        DataError: one cannot be read, or there are no rows.
    """
    folders = [source for source in sources if Path(source).is_dir()]
    if not folders:
        return TextRows(sources)
    if len(sources) > 1:
        raise DataError(f"'{folders[0]}' is a folder; an LMDB has to be the only source")
    return PackedRows(folders[0])


def record_shapes(separate: bool) -> list[Shape]:
    """Return the shape of a row in each top."""
    ids: list[Shape] = [(1,)] * CATEGORIES if separate else [(CATEGORIES,)]
    return [(), (INTEGERS,), *ids]
