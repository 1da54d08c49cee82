"""HDF5 files in a row as one table: a dataset of the same name in each file makes a column."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mgcaffe.engine.data import random_numbers
from mgcaffe.engine.data.batches import BatchForm
from mgcaffe.engine.data.file_lists import check_listed, read_list
from mgcaffe.engine.types import Array, Shape
from mgcaffe.engine.weights.hdf5_image import reading
from mgcaffe.errors import DataError, Location
from mgcaffe.errors.file_names import is_there, refuse_device

_WORD = re.compile(r"\S+", re.ASCII)


class Hdf5Reader:
    """Gives rows of HDF5 files; the file being read lies in memory, as Caffe's does.

    Args:
        source: the list of files, separated by white space; a line that names a file as a whole is one name.
        columns: the datasets to read, one a top.
        shuffle: a new order of the files, and of the rows in each, every epoch.

    Raises:
        DataError: a file or dataset is missing, or does not fit the others; later also that a file was written to.
    """

    def __init__(self, source: str, columns: Sequence[str], shuffle: bool) -> None:
        self._columns, self._shuffle = columns, shuffle
        self._files = _listed_files(source)
        for name, location in self._files:
            check_listed(name, location)
        self.record_shapes: list[Shape] = []
        self._states: list[tuple[int, int, int] | None] = []
        self._rows = np.array([self._inspect(*file) for file in self._files])
        self.count = int(self._rows.sum())
        if not self.count:
            raise DataError(f"the files that '{source}' lists hold no rows")
        self._loaded: tuple[int, list[Array]] | None = None
        self._files_cached: tuple[tuple[int, int], NDArray[np.int64], NDArray[np.int64]] | None = None
        self._rows_cached: tuple[tuple[int, int, int], NDArray[np.int64]] | None = None

    def read(self, records: Sequence[int], form: BatchForm) -> list[Array]:
        """Return one array a column. See Reader."""
        places = [self._place(record, form.stream) for record in records]
        columns = [form.empty((len(places), *shape)) for shape in self.record_shapes]
        filled = 0
        for file, rows in _runs(places):
            for name, column, values in zip(self._columns, columns, self._load(file), strict=True):
                try:
                    with np.errstate(over="raise"):
                        column[filled : filled + len(rows)] = values[rows]
                except FloatingPointError as error:
                    path, location = self._files[file]
                    most = np.finfo(column.dtype).max
                    row = next(row for row in rows if (np.isfinite(values[row]) & (abs(values[row]) > most)).any())
                    raise DataError(
                        f"row {row} of dataset '{name}' of '{path}' holds values that are too large for {column.dtype}",
                        location=location,
                        hint="scale them",
                    ) from error
            filled += len(rows)
        return columns

    def close(self) -> None:
        """Drop the loaded file."""
        self._loaded = None

    def _inspect(self, file: str, location: Location) -> int:
        """Return the number of rows of a file, whose columns are checked against those of the files before."""
        with _open(file, location) as opened:
            self._states.append(_state(file))
            shapes = [_column_shape(opened, file, location, column) for column in self._columns]
        rows = {shape[0] for shape in shapes}
        if len(rows) > 1:
            counts = ", ".join(f"'{name}' {shape[0]}" for name, shape in zip(self._columns, shapes, strict=True))
            raise DataError(f"the datasets of '{file}' have different numbers of rows: {counts}", location=location)
        record_shapes = [shape[1:] for shape in shapes]
        self.record_shapes = self.record_shapes or record_shapes
        for name, expected, found in zip(self._columns, self.record_shapes, record_shapes, strict=True):
            if expected != found:
                raise DataError(
                    f"rows of dataset '{name}' have shape {found} in '{file}', but {expected} in '{self._files[0][0]}'",
                    location=location,
                )
        return rows.pop()

    def _load(self, file: int) -> list[Array]:
        if self._loaded is None or self._loaded[0] != file:
            self._loaded = None  # two files at once might not fit into memory
            name, location = self._files[file]
            with _open(name, location) as opened:
                self._check_unchanged(file)
                with reading(partial(_unreadable, name, location)):
                    columns = [opened[column][...] for column in self._columns]
                self._check_unchanged(file)
            self._loaded = (file, columns)
        return self._loaded[1]

    def _check_unchanged(self, file: int) -> None:
        """Refuse a file that was written to, or replaced, since it was first looked at."""
        name, location = self._files[file]
        if _state(name) != self._states[file]:
            raise DataError(
                f"'{name}' was written to since this run began to read it",
                location=location,
                hint="train from a copy of a file that is still written to",
            )

    def _place(self, record: int, stream: int) -> tuple[int, int]:
        """Return the file and the row of a global record."""
        epoch, within = divmod(record, self.count)
        files, ends = self._file_order(stream, epoch)
        slot = int(np.searchsorted(ends, within, side="right"))
        file = int(files[slot])
        row = within - int(ends[slot] - self._rows[file])
        return file, row if not self._shuffle else int(self._row_order(stream, epoch, file)[row])

    def _file_order(self, stream: int, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the files in the order of an epoch, and the number of rows up to the end of each."""
        key = (stream, epoch if self._shuffle else 0)
        if self._files_cached is None or self._files_cached[0] != key:
            files = np.arange(len(self._rows))
            if self._shuffle:
                files = random_numbers.permutation(random_numbers.stream(stream, "files", epoch), len(files))
            self._files_cached = (key, files, np.cumsum(self._rows[files]))
        return self._files_cached[1:]

    def _row_order(self, stream: int, epoch: int, file: int) -> NDArray[np.int64]:
        """Return the order in which an epoch reads the rows of a file."""
        key = (stream, epoch, file)
        if self._rows_cached is None or self._rows_cached[0] != key:
            number = random_numbers.stream(stream, "rows", epoch, file)
            self._rows_cached = (key, random_numbers.permutation(number, int(self._rows[file])))
        return self._rows_cached[1]


def _listed_files(source: str) -> list[tuple[str, Location]]:
    """Return the names in a list, as Caffe separates them, and where they stand."""
    return [
        (name, location)
        for line, location in read_list(source)
        for name in ([line] if is_there(line) else _WORD.findall(line))
    ]


def _runs(places: Sequence[tuple[int, int]]) -> Iterator[tuple[int, list[int]]]:
    """Neighbouring places in the same file: the file and the rows."""
    for file, group in groupby(places, key=lambda place: place[0]):
        yield file, [row for _, row in group]


def _open(file: str, location: Location) -> Any:
    import h5py

    if not Path(file).exists():
        raise DataError(
            f"HDF5 file '{file}' does not exist",
            location=location,
            hint=f"relative paths start from the working directory, {Path.cwd()}; in the list a space ends a name,"
            " unless the whole line names a file",
        )
    try:
        refuse_device(file)
        return h5py.File(file, "r")
    except OSError as error:
        raise DataError(f"'{file}' cannot be opened as HDF5: {error}", location=location) from error


def _state(file: str) -> tuple[int, int, int] | None:
    """Return what changes when a file is written to or replaced: size, time and number; None where it is gone."""
    try:
        status = Path(file).stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino


def _unreadable(file: str, location: Location, reason: str) -> DataError:
    return DataError(f"'{file}' cannot be read: {reason}", location=location)


def _column_shape(opened: Any, file: str, location: Location, column: str) -> Shape:
    import h5py

    with reading(partial(_unreadable, file, location)):
        dataset = opened.get(column)
        if not isinstance(dataset, h5py.Dataset):
            raise DataError(
                f"'{file}' has no dataset '{column}'",
                location=location,
                hint=f"each top needs a dataset of its name; this has {', '.join(map(repr, opened)) or 'none'}",
            )
        if dataset.dtype.kind not in "fiu":
            raise DataError(f"dataset '{column}' of '{file}' holds {dataset.dtype}, not numbers", location=location)
        shape = tuple(int(size) for size in dataset.shape or ())
    if not shape:
        raise DataError(f"dataset '{column}' of '{file}' is one number; it needs rows", location=location)
    return shape
