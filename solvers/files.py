"""Writes the files of snapshots, each whole or not at all, and finds out beforehand whether that will work."""

from __future__ import annotations

import os
from pathlib import Path

from mgcaffe.errors import Location, SnapshotError
from mgcaffe.prototxt import write_whole


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file so that a crash at any moment leaves the old one or the new one, never a part.

    Raises:
        SnapshotError: the file cannot be written; names it and the system's reason.
    """
    try:
        write_whole(path, content)
    except OSError as error:
        raise SnapshotError(
            f"cannot write {path}: {error.strerror or error}",
            hint="free space or choose another snapshot_prefix; the snapshots written before are untouched",
        ) from None


def probe_writable(prefix: Path, location: Location | None = None) -> None:
    """Makes sure that files whose names start with `prefix` can be written, by writing one.

    Raises:
        SnapshotError: they cannot; names the prefix and the system's reason.
    """
    probe = prefix.with_name(f"{prefix.name}.{os.getpid()}.tmp")
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise SnapshotError(
            f"cannot write snapshots to snapshot_prefix '{prefix}': {error.strerror or error}",
            hint="make sure that the folder exists and is writable",
            location=location,
        ) from None
