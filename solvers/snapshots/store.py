"""The snapshots under a prefix: which there are, which of them are whole, and which are removed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mgcaffe.errors import SnapshotError
from mgcaffe.solvers.snapshots.manifest import SUFFIX, Manifest, manifest_path, read_manifest
from mgcaffe.solvers.snapshots.names import stored_shards


@dataclass(frozen=True)
class StoredSnapshot:
    """A snapshot on disk.

    Attributes:
        state: the solverstate.
        iteration: updates done, by its name.
        manifest: what was written; None if it has no manifest, or a damaged one.
        written_at: seconds since 1970, by the manifest, or else by the file system.
    """

    state: Path
    iteration: int
    manifest: Manifest | None
    written_at: float

    @property
    def files(self) -> list[Path]:
        """Its files, in the order in which they may be removed: without its state it doesn't count."""
        weights = _weights_of(self.state)
        return [self.state, weights, *stored_shards(weights), manifest_path(self.state)]

    def check(self) -> None:
        """Compare the files with the manifest.

        Raises:
            SnapshotError: they differ, or there is no whole manifest.
        """
        manifest = read_manifest(self.state)
        if manifest is None:
            raise SnapshotError(f"{self.state} has no manifest")
        manifest.check(self.state.with_name(manifest.weights.name), self.state)


def stored_snapshots(prefix: Path) -> list[StoredSnapshot]:
    """List the snapshots under a prefix, in the order in which they were written, the newest first.

    Snapshots whose state is gone, and files without an iteration in their name, are skipped.
    """
    pattern = _state_names(prefix)
    found = []
    try:
        entries = list(prefix.parent.iterdir())
    except OSError:
        return []
    for path in entries:
        match = pattern.fullmatch(path.name)
        if match is None:
            continue
        try:
            manifest = read_manifest(path)
        except SnapshotError:
            manifest = None
        try:
            written_at = path.stat().st_mtime if manifest is None else manifest.written_at
        except OSError:
            continue  # another run has just removed it
        found.append(StoredSnapshot(path, int(match.group(1)), manifest, written_at))
    return sorted(found, key=lambda each: (each.written_at, each.iteration), reverse=True)


class Retention:
    """Removes the snapshots that are superseded, of those that are this run's own.

    These are the ones that it has written, and all that it found under its prefix when it went on from one of them. So
    a run that begins anew under an old prefix leaves what lies there until it is resumed itself, and two runs under
    one prefix do not remove each other's.

    Args:
        prefix: what the snapshots' names begin with.
        keep: how many whole ones stay, the newest; 0: all that were due.
    """

    def __init__(self, prefix: Path, keep: int) -> None:
        self._prefix = prefix
        self._keep = keep
        self._own: set[tuple[Path, float]] = set()
        self._whole: set[tuple[Path, float]] = set()

    def adopt(self) -> None:
        """Make what lies under the prefix now the run's own, what is left of a removal that was cut short as well."""
        self._own.update(_manifests(self._prefix))

    def add(self, state: Path, written_at: float) -> None:
        """Make a snapshot the run's own; arguments as in `StoredSnapshot`."""
        self._own.add((state, written_at))

    def owns(self, state: Path) -> bool:
        """Return whether a solverstate is there and the run's own."""
        return state.exists() and any(own == state for own, _ in self._own)

    def prune(self, newest: Path, best: int | None, warn: Callable[[str], None]) -> None:
        """Remove what is superseded, once the newest snapshot has been read back from the disk.

        Those without a manifest stay, whoever wrote them. A damaged one doesn't count among those to keep.

        Args:
            newest: the solverstate written last.
            best: the iteration of the best snapshot, which stays; None if there is none.
            warn: takes a text for each damaged one.

        Raises:
            SnapshotError: the newest one is not on disk as it was written; nothing is removed then.
        """
        stored = [
            each
            for each in stored_snapshots(self._prefix)
            if each.manifest is not None and (each.state, each.written_at) in self._own
        ]
        latest = next((each for each in stored if each.state == newest), None)
        if latest is None:
            raise SnapshotError(
                f"{newest} is not there any more, or another run has written over it"
                " (give each run a snapshot_prefix of its own)"
            )
        superseded = self._superseded([latest, *(each for each in stored if each is not latest)], best, warn)
        if not superseded:
            return
        self._check(latest)
        for each in superseded:
            for path in each.files:
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    warn(f"cannot remove {path}: {error.strerror or error}")
        self._remove_orphans()

    def _superseded(
        self, stored: list[StoredSnapshot], best: int | None, warn: Callable[[str], None]
    ) -> list[StoredSnapshot]:
        superseded, kept = [], 0
        best_one = next((each for each in stored if each.iteration == best), None)  # there may be one of either format
        for each in stored:
            assert each.manifest is not None
            if each is best_one:
                continue
            if each.manifest.only_best:
                superseded.append(each)
            elif not self._keep:
                continue
            elif kept >= self._keep:
                superseded.append(each)
            elif each is stored[0] or self._is_whole(each, warn):
                kept += 1
        return superseded

    def _is_whole(self, snapshot: StoredSnapshot, warn: Callable[[str], None]) -> bool:
        try:
            self._check(snapshot)
        except SnapshotError as error:
            warn(f"{error.message}; it doesn't count among the {self._keep} to keep")
            return False
        return True

    def _check(self, snapshot: StoredSnapshot) -> None:
        """Check a snapshot, once per run."""
        known = (snapshot.state, snapshot.written_at)
        if known not in self._whole:
            snapshot.check()
            self._whole.add(known)

    def _remove_orphans(self) -> None:
        """Remove what is left of snapshots whose removal was cut short: manifests without their state."""
        for state, written_at in list(self._own):
            if state.exists():
                continue
            with suppress(OSError, SnapshotError):
                manifest = read_manifest(state)
                if manifest is not None and manifest.written_at == written_at:
                    weights = _weights_of(state)
                    for each in (weights, *stored_shards(weights), manifest_path(state)):
                        each.unlink(missing_ok=True)
                self._own.discard((state, written_at))


def _manifests(prefix: Path) -> Iterator[tuple[Path, float]]:
    """Yield which solverstate each whole manifest under a prefix is of, and when it was written."""
    pattern = _state_names(prefix)
    with suppress(OSError):
        for path in prefix.parent.iterdir():
            state = path.with_name(path.name.removesuffix(SUFFIX))
            if state == path or pattern.fullmatch(state.name) is None:
                continue
            with suppress(SnapshotError):
                if (manifest := read_manifest(state)) is not None:
                    yield state, manifest.written_at


def _state_names(prefix: Path) -> re.Pattern[str]:
    """Return what the names of the solverstates under a prefix look like; its first group is the iteration."""
    return re.compile(re.escape(prefix.name) + r"_iter_(\d{1,18})\.solverstate(\.h5)?")


def _weights_of(state: Path) -> Path:
    return state.with_name(state.name.replace(".solverstate", ".caffemodel"))
