"""HDF5Output: writes its bottoms into an HDF5 file, batch after batch.

    data[rows so far : + N] = x,  label[rows so far : + N] = t               in every forward pass, in both phases

The file holds two datasets, `data` and `label`, in the net's number type. Both have four axes, num, channels, height
and width: a shape of fewer axes gets axes of length 1 behind its own, so that labels of shape (N) are written as
(N, 1, 1, 1). The file is begun by the net's first forward pass and closed after every one, so that it is whole whenever
the process ends between two.

Fields of `hdf5_output_param`: file_name, required; its folder has to exist.
Bottoms: x (N, ...); t (N, ...), each of at most four axes. N may change from batch to batch, the shape of a row may
not. No gradient flows to them.
No tops.
Differences from Caffe: a second forward pass appends rows, where Caffe ends with an error. A file that is there before
is not written over but renamed, with `.previous` behind its name (in place of an earlier one of that name). With
several ranks each writes a file of its own, `features.rank0.h5` for `features.h5`, with a third dataset, `batch`: for
each row the number of its batch, counted over all ranks, so that rows sorted by it are in the order of the batches.
(Caffe: hdf5_output_layer.cpp.)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray

from mgcaffe.engine.layer import Layer, exactly
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape
from mgcaffe.errors import EXIT_CANNOT_WRITE, DataError

_AXES = 4  # num, channels, height, width
_CHUNK_BYTES = 1 << 20
_CHUNK_ROWS = 1024


@register("HDF5Output")
class HDF5Output(Layer):
    """The layer; see the module's text."""

    only_once = "it writes a file"
    bottoms = exactly(2)
    tops = exactly(0)
    keeps_bottoms = False

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Check the name; the file itself is left alone until there is something to write."""
        name = self.param.hdf5_output_param.file_name
        if not name:
            self.fail("file_name is missing", "hdf5_output_param", hint="name the HDF5 file to write")
        shard = self.context.shard
        self.path = Path(name)
        if shard.size > 1:
            self.path = self.path.with_name(f"{self.path.stem}.rank{shard.rank}{self.path.suffix}")
        if self.context.input_shapes is None and not self.path.absolute().parent.is_dir():
            self._fail_to_write(f"folder '{self.path.parent}' does not exist")
        self._batches = 0
        self._identity: tuple[int, int] | None = None

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """No tops."""
        for index, shape in enumerate(bottom_shapes):
            if len(shape) > _AXES:
                self.fail(
                    f"bottom {index} ('{self.param.bottom[index]}') has {len(shape)} axes, shape {shape}, but"
                    f" the file's datasets have {_AXES}",
                    hint="put a Reshape layer in front that joins axes",
                )
        rows = [_four_axes(shape)[0] for shape in bottom_shapes]
        if rows[0] != rows[1]:
            self.fail(f"the bottoms need as many rows as each other, not {rows[0]} and {rows[1]}")
        return []

    def differentiable(self, bottom: int) -> bool:
        """Never."""
        return False

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Append the batch to the file.

        Raises:
            DataError: rows have another shape than those before, or (exit code 73) the file cannot be written.
        """
        columns: dict[str, NDArray[Any]] = {
            name: x.reshape(_four_axes(tuple(x.shape))).cpu().numpy()
            for name, x in zip(("data", "label"), bottoms, strict=True)
        }
        shard = self.context.shard
        if shard.size > 1:
            number = shard.records(0, self._batches, 1)[0]
            columns["batch"] = np.full(len(columns["data"]), number, np.int64)
        try:
            self._write(columns)
        except (OSError, RuntimeError, KeyError, ValueError) as error:
            self._fail_to_write(str(error))
        self._batches += 1
        return []

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Nothing flows back."""
        return [None] * len(wanted)

    def _write(self, columns: dict[str, NDArray[Any]]) -> None:
        import h5py

        if self._identity is None:
            if self.path.is_dir():
                self._fail_to_write("it is a folder")
            if self.path.exists():
                self.path.replace(f"{self.path}.previous")
            with h5py.File(self.path, "x") as file:
                for name, rows in columns.items():
                    file.create_dataset(name, data=rows, maxshape=(None, *rows.shape[1:]), chunks=_chunks(rows))
            self._identity = _identity(self.path)
            return
        if not self.path.exists() or _identity(self.path) != self._identity:
            self._fail_to_write("it is no longer the file that this layer began; does another layer write it, too?")
        with h5py.File(self.path, "r+") as file:
            self._check_rows(file, columns)
            for name, rows in columns.items():
                dataset = file[name]
                before = len(dataset)
                dataset.resize(before + len(rows), axis=0)
                dataset[before:] = rows

    def _check_rows(self, file: Any, columns: dict[str, NDArray[Any]]) -> None:
        for name, rows in columns.items():
            written = file[name].shape[1:]
            if rows.shape[1:] != written:
                self.fail(
                    f"rows of '{name}' have shape {rows.shape[1:]} now, but {written} in '{self.path}'",
                    error=DataError,
                    hint="all rows of a dataset have one shape",
                )

    def _fail_to_write(self, reason: str) -> NoReturn:
        raise DataError(
            f"HDF5 file '{self.path}' cannot be written: {reason} (layer '{self.name}', type {self.type})",
            location=self.location("hdf5_output_param.file_name"),
            hint=f"relative paths start from the working directory, {Path.cwd()}",
            exit_code=EXIT_CANNOT_WRITE,
        )


def _four_axes(shape: Shape) -> Shape:
    """Return num, channels, height and width of a shape, 1 where it has no such axis (Caffe: Blob::LegacyShape)."""
    return (*shape, *(1 for _ in range(_AXES - len(shape))))


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _chunks(rows: NDArray[Any]) -> tuple[int, ...]:
    """Return how much of a dataset lies together: about a megabyte, or one row."""
    row_bytes = max(1, rows.itemsize * int(np.prod(rows.shape[1:])))
    return min(_CHUNK_ROWS, max(1, _CHUNK_BYTES // row_bytes)), *(max(1, size) for size in rows.shape[1:])
