"""Files that are either whole or not there: written under another name, flushed to disk, then renamed."""

from __future__ import annotations

import os
from pathlib import Path

from mgcaffe.errors import SnapshotError


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file so that a crash at any moment leaves the old one or the new one, never a part.

    Raises:
        SnapshotError: the file cannot be written; names it and the system's reason.
    """
    # A name of its own, so that two runs with one prefix never write into each other's file.
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        _flush_folder(path.parent)
    except OSError as error:
        raise SnapshotError(
            f"cannot write {path}: {error.strerror or error}",
            hint="free space or choose another snapshot_prefix; the snapshots written before are untouched",
        ) from None


def probe_writable(prefix: Path) -> None:
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
        ) from None


def _flush_folder(folder: Path) -> None:
    """Makes a rename survive a power cut; where a file system refuses, the files are in place still."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        return
    finally:
        os.close(descriptor)
