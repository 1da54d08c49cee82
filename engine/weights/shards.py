"""Shards: the rows of tables that a snapshot holds in files of their own, one for each process that has rows.

A shard is a safetensors file beside the caffemodel, `<caffemodel>.shard_<k>_of_<count>.safetensors`, with an array of
each table's rows and one of its history. Its head's `__metadata__` says which snapshot it belongs to, who wrote it at
which iteration, and which rows of how many each array has. In the caffemodel (and the solverstate) such a blob has its
shape, and in the place of values a BlobShards message, which names the files and the array in them. Where it names no
file, another snapshot has the rows: the replicas of several trainers are saved, and trainer 0's has the tables.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mgcaffe.engine.types import Shape
from mgcaffe.engine.weights.safetensors import LONGEST_HEAD, TYPES, encode_head
from mgcaffe.errors import DataError, NetError
from mgcaffe.errors.checked_json import Json, parse_json
from mgcaffe.prototxt import BlobProto, BlobShape, BlobShards, blob_shape

_AT_ONCE = 1 << 20  # numbers
_TOGETHER = "the shards of a snapshot belong beside its caffemodel, all of them: copy them there"


@dataclass(frozen=True)
class ShardSet:
    """The shards of one snapshot.

    Attributes:
        files: what their names begin with.
        count: how many there are.
        snapshot: what all of them say, and no other snapshot's.
    """

    files: str
    count: int
    snapshot: str

    def name(self, number: int) -> str:
        """Return the name of a shard, which are numbered from 0 here and from 1 in the name."""
        return f"{self.files}.shard_{number + 1}_of_{self.count}.safetensors"

    def reference(self, array: str, shape: Shape) -> BlobProto:
        """Return the blob that stands for an array in the shards."""
        shards = BlobShards(files=self.files, count=self.count, array=array, snapshot=self.snapshot)
        return BlobProto(shape=BlobShape(dim=shape), shards=shards)


@dataclass(frozen=True)
class RowsToWrite:
    """Rows of an array in a shard.

    Attributes:
        name: the array's.
        first: the first one's number.
        total: how many rows the array has in all shards together.
        values: the rows.
    """

    name: str
    first: int
    total: int
    values: NDArray[Any]


def encode_shard(
    shards: ShardSet, number: int, holder: str, iteration: int, arrays: Sequence[RowsToWrite]
) -> list[bytes | memoryview]:
    """Return the content of a shard, whose values are the arrays' own memory.

    Args:
        shards, number: which shard of which snapshot it is.
        holder: who writes it, for messages.
        iteration: updates done.
        arrays: what it holds.
    """
    rows = {each.name: [each.first, each.first + len(each.values), each.total] for each in arrays}
    metadata = {
        "snapshot": shards.snapshot,
        "shard": f"{number + 1} of {shards.count}",
        "holder": holder,
        "iteration": str(iteration),
        "rows": json.dumps(rows),
    }
    head, ordered = encode_head({each.name: (each.values.dtype, each.values.shape) for each in arrays}, metadata)
    values = {each.name: each.values for each in arrays}
    little = (np.ascontiguousarray(values[name], values[name].dtype.newbyteorder("<")) for name in ordered)
    return [head, *(each.reshape(-1).view(np.uint8).data for each in little)]


@dataclass(frozen=True)
class _Part:
    """Rows `first` to `last` (exclusive) of an array, which begin at a place in a file."""

    path: str
    offset: int
    first: int
    last: int


@dataclass(frozen=True)
class StoredRows:
    """An array whose rows lie in shards on disk, of which any range is read without the others.

    Attributes:
        shape: of all rows.
        dtype: how the values are stored.
        parts: which rows lie where, without a gap.
        lacked_by: the file that refers to them, if another snapshot has them.
    """

    shape: Shape
    dtype: str
    parts: tuple[_Part, ...]
    lacked_by: str = ""

    def load(self) -> NDArray[Any]:
        """Return all of them.

        Raises:
            NetError: a file cannot be read, or has become shorter.
        """
        values = np.empty(self.shape, np.dtype(self.dtype))
        for row, part in self.pieces(0, self.shape[0]):
            values[row : row + len(part)] = part
        return values

    def chunks(self) -> Iterator[NDArray[Any]]:
        """Give them in order, a few megabytes at a time; raises as `load`."""
        for _, part in self.pieces(0, self.shape[0]):
            yield part

    def pieces(self, first: int, last: int) -> Iterator[tuple[int, NDArray[Any]]]:
        """Give rows `first` to `last` (exclusive) in order, some at a time, each time the number of the first one."""
        if self.lacked_by:
            raise NetError(
                f"{self.lacked_by} is of a trainer's replica and has no rows of tables, which trainer 0's snapshot has",
                hint="use the files without .trainer_<k> in their names",
            )
        dtype = np.dtype(self.dtype)
        width = math.prod(self.shape[1:])
        at_once = max(1, _AT_ONCE // max(1, width))
        for part in self.parts:
            for begin in range(max(first, part.first), min(last, part.last), at_once):
                count = min(last, part.last, begin + at_once) - begin
                place = part.offset + (begin - part.first) * width * dtype.itemsize
                try:
                    values = np.fromfile(part.path, dtype, count * width, offset=place)
                except OSError as error:
                    raise NetError(f"cannot read {part.path}: {error.strerror or error}", hint=_TOGETHER) from None
                if values.size != count * width:
                    raise NetError(f"{part.path} has become shorter")
                yield begin, values.reshape(count, *self.shape[1:])

    def fill(self, rows: torch.Tensor, first: int) -> None:
        """Copy the rows from number `first` on into a tensor of such rows, of any type and device."""
        for row, values in self.pieces(first, first + len(rows)):
            rows[row - first : row - first + len(values)].copy_(
                torch.from_numpy(values).reshape(len(values), *rows.shape[1:])
            )


def lacking(shape: Shape) -> BlobProto:
    """Return the blob that stands for an array of which another snapshot has the rows."""
    return BlobProto(shape=BlobShape(dim=shape), shards=BlobShards())


def has_shards(blob: BlobProto) -> bool:
    """Return whether a blob's values are in shards."""
    return bool(blob.HasField("shards"))


def find_rows(blob: BlobProto, beside: str | Path) -> StoredRows:
    """Find the shards that hold a blob's values.

    Args:
        blob: it names them.
        beside: the file that the blob is in; its shards lie in the same folder.

    Raises:
        NetError: (exit code 65) a shard is missing, damaged, or of another snapshot.
    """
    if not blob.shards.files:
        return StoredRows(blob_shape(blob), "<f4", (), lacked_by=str(beside))
    shape, shards = blob_shape(blob), ShardSet(blob.shards.files, blob.shards.count, blob.shards.snapshot)
    if Path(shards.files).name != shards.files or "\0" in shards.files or not 0 < shards.count < 1 << 20 or not shape:
        raise NetError(f"{beside} is damaged: its tables are in shards called '{shards.files}'")
    parts, dtypes = [], set()
    for number in range(shards.count):
        head = _read_head(Path(beside).parent / shards.name(number), shards, number, beside)
        if blob.shards.array in head.arrays:
            part, dtype = head.part(blob.shards.array, shape)
            parts.append(part)
            dtypes.add(dtype)
    parts.sort(key=lambda part: part.first)
    ends = [0, *(part.last for part in parts)]
    if [part.first for part in parts] != ends[:-1] or ends[-1] != shape[0] or len(dtypes) > 1:
        raise NetError(
            f"the shards of {beside} do not have the {shape[0]} rows of '{blob.shards.array}', each of them once",
            hint="use another snapshot",
        )
    return StoredRows(shape, dtypes.pop() if dtypes else "<f4", tuple(parts))


@dataclass(frozen=True)
class _Head:
    """What a shard's head says.

    Attributes:
        path: the file.
        values_at: where the values begin.
        arrays: the head's entries.
        rows: those of each array: the first one, the end, and how many there are in all shards.
    """

    path: Path
    values_at: int
    arrays: Mapping[str, Json]
    rows: Json

    def part(self, name: str, shape: Shape) -> tuple[_Part, str]:
        """Return where an array's rows are, and their type.

        Raises:
            NetError: the array is of another shape than `shape`, which is that of all rows.
        """
        try:
            first, last, total = (each.integer(least=0) for each in self.rows[name].elements())
            entry = self.arrays[name]
            dtype = TYPES[entry["dtype"].text()].str
            sizes = [each.integer(least=0) for each in entry["shape"].elements()]
            begin, end = (each.integer(least=0) for each in entry["data_offsets"].elements())
        except (DataError, ValueError, LookupError):
            raise _damaged(self.path) from None
        if (total, *sizes[1:]) != shape or sizes[0] != last - first:
            raise NetError(f"{self.path} has '{name}' with {sizes} of {total} rows, and the blob has shape {shape}")
        if end - begin != math.prod(sizes) * np.dtype(dtype).itemsize:
            raise _damaged(self.path)
        return _Part(str(self.path.absolute()), self.values_at + begin, first, last), dtype


def _read_head(path: Path, shards: ShardSet, number: int, beside: str | Path) -> _Head:
    """Read a shard's head and make sure that the file is of this snapshot and not cut short."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            text = file.read(length) if length <= LONGEST_HEAD else b""
        size = path.stat().st_size
    except OSError as error:
        raise NetError(
            f"cannot read {path}, which is shard {number + 1} of the {shards.count} with the tables of {beside}:"
            f" {error.strerror or error}",
            hint=_TOGETHER,
        ) from None
    try:
        if len(text) != length:
            raise _damaged(path)
        arrays = parse_json(text, str(path), "the head of the shard is damaged").members()
        about = arrays.pop("__metadata__")
        rows = parse_json(about["rows"].text(), str(path), "the head of the shard is damaged")
        snapshot, ends = about["snapshot"].text(), [each["data_offsets"].elements()[1] for each in arrays.values()]
        expected = 8 + length + max((end.integer(least=0) for end in ends), default=0)
    except (DataError, LookupError, RecursionError):
        raise _damaged(path) from None
    if snapshot != shards.snapshot:
        raise NetError(
            f"{path} is a shard of another snapshot than {beside}: the two were not written together",
            hint="use another snapshot, or put the shard back that was written with it",
        )
    if size != expected:
        raise NetError(
            f"{path} is {'cut short' if size < expected else 'too long'}: {size} bytes instead of {expected}"
        )
    return _Head(path, 8 + length, arrays, rows)


def _damaged(path: Path) -> NetError:
    return NetError(f"{path} is damaged, or no shard of a snapshot", hint="use another snapshot")
