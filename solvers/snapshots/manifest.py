"""The manifest of a snapshot: what its files held when they were written, so that damage is found and named.

It lies beside the solverstate as `<solverstate>.manifest.json`, is there before the state is, and says

    {"format": 1, "iteration": 500, "ranks": 4, "solver_type": "SGD", "written_at": 1700000000.25,
     "only_best": false,
     "weights": {"name": "lenet_iter_500.caffemodel", "size": 1725006, "sha256": "..."},
     "state": {"name": "lenet_iter_500.solverstate", "size": 1724461, "sha256": "..."},
     "checksum": "..."}

where `checksum` is the SHA-256 of the manifest without it. Snapshots that have none (Caffe's own) are used unchecked.
Where tables are in shards (`engine/weights/shards.py`) the format is 2, and the manifest has one more entry,

     "shards": [{"name": "net_iter_500.caffemodel.shard_1_of_2.safetensors", "size": 83230720, "sha256": "...",
                 "holder": "embedding server, rank 3", "rows": {"item_id/0": [0, 5000], ...}}, ...],

with the rows that each of them has of each array: the first one and the end.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mgcaffe.errors import EXIT_BAD_INPUT, DataError, SnapshotError
from mgcaffe.errors.checked_json import Json, parse_json
from mgcaffe.errors.whole_files import Content, pieces_of, size_of

SUFFIX = ".manifest.json"
_FORMAT, _WITH_SHARDS = 1, 2
_CHUNK = 1 << 20
_SHOWN = 3
_SUM_LENGTH = 2 * hashlib.sha256().digest_size
_MAX_BYTES = 1 << 26
_OTHER = "resume from another snapshot; --snapshot=auto finds the newest whole one"


@dataclass(frozen=True)
class FileSum:
    """One file of a snapshot.

    Attributes:
        name: its name, without the folder.
        size: how long it is, in bytes.
        sha256: the SHA-256 of its content, in hexadecimal.
    """

    name: str
    size: int
    sha256: str

    @classmethod
    def of(cls, name: str, content: Content) -> FileSum:
        """Make that of a content."""
        digest = hashlib.sha256()
        for piece in pieces_of(content):
            digest.update(piece)
        return cls(name, size_of(content), digest.hexdigest())


@dataclass(frozen=True)
class ShardSum(FileSum):
    """A shard of a snapshot.

    Attributes:
        holder: who wrote it.
        rows: of each array in it, the first row and the end.
    """

    holder: str
    rows: Mapping[str, Sequence[int]]

    def describe(self) -> str:
        """Return what it holds, for a message."""
        tables = [f"{first} to {last - 1} of '{name}'" for name, (first, last) in self.rows.items()]
        more = f" and of {len(tables) - _SHOWN} others" if len(tables) > _SHOWN else ""
        rows = f"rows {', '.join(tables[:_SHOWN])}{more}" if tables else "no rows"
        return f"the shard that {self.holder} wrote, with {rows}"


@dataclass(frozen=True)
class Manifest:
    """What a snapshot's files held when they were written.

    Attributes:
        iteration: updates done.
        ranks: how many ranks trained in step.
        solver_type: the update rule.
        written_at: seconds since 1970; ascends from snapshot to snapshot under one prefix.
        only_best: whether it was taken for its test score alone, not because a snapshot was due.
        weights, state: the caffemodel and the solverstate.
        shards: the files with the rows of tables, if the caffemodel lacks them.
    """

    iteration: int
    ranks: int
    solver_type: str
    written_at: float
    only_best: bool
    weights: FileSum
    state: FileSum
    shards: Sequence[ShardSum] = ()

    def encode(self) -> bytes:
        """Encode the manifest as a file's content."""
        values = {"format": _WITH_SHARDS if self.shards else _FORMAT, **asdict(self)}
        if not self.shards:
            del values["shards"]
        return (json.dumps({**values, "checksum": _checksum(values)}, indent=1) + "\n").encode()

    def has_files_of(self, other: Manifest) -> bool:
        """Return whether both describe the same bytes."""
        mine, theirs = ((each.weights, each.state, tuple(each.shards)) for each in (self, other))
        return mine == theirs

    def check(self, weights: Path, state: Path) -> None:
        """Compare the files on disk with what was written.

        Raises:
            SnapshotError: (exit code 65) one of them differs; says which and in what.
        """
        check_file(state, self.state)
        check_file(weights, self.weights)
        self.check_shards(state.parent)

    def check_shards(self, folder: Path) -> None:
        """Compare the shards, which lie in this folder, with what was written; raises as `check`."""
        for shard in self.shards:
            try:
                check_file(folder / shard.name, shard)
            except SnapshotError as error:
                raise _unusable(f"{error.message} ({shard.describe()})", error.hint) from None


def manifest_path(state: str | os.PathLike[str]) -> Path:
    """Return the path of a solverstate's manifest."""
    state = Path(state)
    return state.with_name(state.name + SUFFIX)


def read_manifest(state: str | os.PathLike[str]) -> Manifest | None:
    """Read the manifest of a solverstate; None if it has none.

    Raises:
        SnapshotError: (exit code 65) the manifest is damaged.
    """
    path = manifest_path(state)
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(f"cannot read the manifest {path}: {error.strerror or error}", None) from None
    hint = "remove it to use the snapshot unchecked, or resume from another one"
    try:
        values = parse_json(content, str(path), "the manifest is damaged")
        form = values["format"].integer()
        if form not in (_FORMAT, _WITH_SHARDS):
            raise _unusable(f"the manifest {path} has format {form}; only 1 and 2 are known", hint)
        manifest = _decode(values)
        # `encode` computes the checksum anew.
        if manifest.encode() != content:
            raise ValueError
        return manifest
    except (DataError, ValueError, RecursionError):
        raise _unusable(f"the manifest {path} is damaged", hint) from None


def _decode(values: Json) -> Manifest:
    """Return the manifest in a document.

    Raises:
        DataError: a value is missing or has another type.
        ValueError: a file's name is none.
    """
    shards = []
    if (entries := values.get("shards")) is not None:
        for entry in entries.elements():
            rows = {
                name: [each.integer() for each in ends.elements()] for name, ends in entry["rows"].members().items()
            }
            if any(len(ends) != 2 for ends in rows.values()):
                raise ValueError
            shards.append(ShardSum(**asdict(_file_sum(entry)), holder=entry["holder"].text(), rows=rows))
    return Manifest(
        values["iteration"].integer(least=0),
        values["ranks"].integer(least=1),
        values["solver_type"].text(),
        values["written_at"].number(),
        values["only_best"].flag(),
        _file_sum(values["weights"]),
        _file_sum(values["state"]),
        tuple(shards),
    )


def _file_sum(entry: Json) -> FileSum:
    name, sha256 = entry["name"].file_name(), entry["sha256"].text()
    if Path(name).name != name or len(sha256) != _SUM_LENGTH:
        raise ValueError
    return FileSum(name, entry["size"].integer(least=0), sha256)


def check_file(path: Path, expected: FileSum) -> None:
    """Compare a file with what was written.

    Raises:
        SnapshotError: (exit code 65) it is missing, cut short, longer, or holds other bytes.
    """
    try:
        size = path.stat().st_size
        if size != expected.size:
            verb = "cut short" if size < expected.size else "too long"
            raise _unusable(f"{path} is {verb}: {size} bytes, and {expected.size} were written", _OTHER)
        found = _sha256_of(path)
    except OSError as error:
        raise _unusable(f"cannot read {path}: {error.strerror or error}", _OTHER) from None
    if found != expected.sha256:
        raise _unusable(
            f"{path} is damaged: its bytes have the SHA-256 {found[:12]}..., what was written had"
            f" {expected.sha256[:12]}...",
            _OTHER,
        )


def _sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _checksum(values: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _unusable(message: str, hint: str | None) -> SnapshotError:
    return SnapshotError(message, hint=hint, exit_code=EXIT_BAD_INPUT)
