"""Writes the files of a snapshot, all of them or none, and finds out beforehand whether that will work."""

from __future__ import annotations

import errno
import os
import re
import resource
import shlex
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from mgcaffe.errors import Location, SnapshotError
from mgcaffe.errors.whole_files import ASIDE, flush_folder, is_abandoned, write_whole
from mgcaffe.solvers.snapshots.names import SHARD

_HINT = "free space or choose another snapshot_prefix; the snapshots written before are untouched"


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a crash at any moment leaves the old one or the new one, never a part.

    Raises:
        SnapshotError: the file cannot be written; names it and the system's reason.
    """
    try:
        write_whole(path, content)
    except OSError as error:
        raise cannot_write(path, error, len(content), len(content)) from None


def publish(files: Sequence[tuple[Path, Path]], obsolete: Iterable[Path]) -> None:
    """Give finished temporary files their names, in order, each on disk before the last one appears.

    Args:
        files: (temporary file, its name to be), in one folder; the last one makes the others count.
        obsolete: files that describe an older set under the same names; they go first, so that no mixture
            of the two ever counts.

    Raises:
        OSError: a file cannot be renamed.
    """
    folder = files[-1][1].parent
    gone = [path for path in obsolete if path.exists()]
    for path in gone:
        path.unlink()
    if gone:
        flush_folder(folder)
    for temporary, target in files[:-1]:
        temporary.replace(target)
    flush_folder(folder)
    temporary, target = files[-1]
    temporary.replace(target)
    flush_folder(folder)


def cannot_write(path: Path, error: OSError, size: int, needed: int) -> SnapshotError:
    """Make the error for a file that cannot be written, with the number of bytes that are missing.

    Args:
        path: the file.
        error: the system's reason.
        size: bytes of this file.
        needed: bytes of all files that were to be written together; temporary ones are gone already.
    """
    return SnapshotError(
        f"cannot write {path}: {error.strerror or error}{_shortage(path, error, size, needed)}", hint=_HINT
    )


def _shortage(path: Path, error: OSError, size: int, needed: int) -> str:
    if error.errno == errno.EFBIG:
        limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        if limit == resource.RLIM_INFINITY or limit >= size:
            return f": it needs {size} bytes"
        return f": it needs {size} bytes, and files may have {limit} (ulimit -f): {size - limit} bytes are missing"
    if error.errno == errno.EDQUOT:
        return f": the snapshot needs {needed} bytes, more than the quota leaves"
    if error.errno != errno.ENOSPC:
        return ""
    try:
        free = shutil.disk_usage(path.parent).free
    except OSError:
        return f": the snapshot needs {needed} bytes"
    missing = f": {needed - free} bytes are missing" if free < needed else ""
    return f": the snapshot needs {needed} bytes, and {free} are free{missing}"


def probe_writable(prefix: Path, location: Location | None = None) -> None:
    """Make sure that files whose names start with `prefix` can be written, by writing one.

    Raises:
        SnapshotError: they cannot; names the prefix and the system's reason.
    """
    probe = prefix.with_name(f"{prefix.name}.{os.getpid()}.tmp")
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise prefix_error(prefix, error, location) from None


def prefix_error(prefix: Path, error: OSError, location: Location | None = None) -> SnapshotError:
    """Return the error of a prefix under which no file can be made, with the system's reason and what to do."""
    is_missing = isinstance(error, FileNotFoundError) and not prefix.parent.exists()
    folder = shlex.quote(str(prefix.parent))
    return SnapshotError(
        f"cannot write snapshots to snapshot_prefix '{prefix}': {error.strerror or error}",
        hint=f"mkdir -p {folder}" if is_missing else f"{folder} has to be a folder that is writable",
        location=location,
    )


def remove_leftovers(prefix: Path, writing: int | None = None) -> None:
    """Remove what a run under this prefix left when it was killed while writing: temporary files, shards alone.

    A file stays whose writer may still be at work: another process of its number runs on this machine, or (it may
    run on another one) the file was written to within the last minute. So does a shard with the caffemodel that it
    belongs to. This process writes nothing meanwhile; in a container each run has the number of the one before.

    Args:
        prefix: what the names of files begin with.
        writing: the iteration whose shards are being written now by others, which stay.
    """
    pattern = re.compile(re.escape(prefix.name) + r"_(?:iter_\d+|best)\..+" + ASIDE)
    try:
        entries = list(prefix.parent.iterdir())
    except OSError:
        return
    shard = re.compile("(" + re.escape(prefix.name) + r"_iter_\d+\.caffemodel(?:\.h5)?)" + SHARD)
    for path in entries:
        if path.name.startswith(f"{prefix.name}_iter_{writing}."):
            continue
        process = None
        if (match := shard.fullmatch(path.name)) is not None:
            if path.with_name(match.group(1)).exists():
                continue
        elif (match := pattern.fullmatch(path.name)) is not None:
            process = int(match.group(1))
        else:
            continue
        if is_abandoned(path, process):
            with suppress(OSError):
                path.unlink()
