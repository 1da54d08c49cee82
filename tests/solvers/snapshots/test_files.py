"""Files are written whole or not at all, and what cannot be written is said beforehand."""

import errno
import os
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from mgcaffe.errors import EXIT_CANNOT_WRITE, SnapshotError
from mgcaffe.solvers.snapshots.files import cannot_write, probe_writable, remove_leftovers, write_atomically


def test_a_file_replaces_the_one_before_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "a.caffemodel"
    write_atomically(path, b"old")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.caffemodel"
    write_atomically(path, b"old")

    def fail(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(SnapshotError, match=r"a\.caffemodel: No space left on device") as caught:
        write_atomically(path, b"new")
    assert caught.value.exit_code == EXIT_CANNOT_WRITE
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("folder", "hint"), [("not there", "mkdir -p '{}'"), ("file", "{} has to be a folder that is writable")]
)
def test_an_unwritable_prefix_is_found_out_by_trying(tmp_path, folder, hint):
    (tmp_path / "file").touch()
    with pytest.raises(SnapshotError, match=f"snapshot_prefix '.*{folder}/net'") as caught:
        probe_writable(tmp_path / folder / "net")
    assert caught.value.exit_code == EXIT_CANNOT_WRITE and caught.value.hint == hint.format(tmp_path / folder)


def test_probing_leaves_nothing_behind(tmp_path):
    probe_writable(tmp_path / "net")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("free", "message"),
    [
        (300, "the snapshot needs 1000 bytes, and 300 are free: 700 bytes are missing"),
        (1500, "and 1500 are free\n"),
    ],
)
def test_a_full_disk_is_reported_in_bytes(tmp_path, monkeypatch, free, message):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
    full = OSError(errno.ENOSPC, "No space left on device")
    assert message in str(cannot_write(tmp_path / "a", full, 600, 1000))


def test_files_that_a_killed_run_left_are_removed_and_no_others(tmp_path):
    ended = 2**22 + 1  # above the largest process number that Linux gives
    others, minutes_ago = os.getppid(), time.time() - 120
    stale = [f"net_iter_5.caffemodel.{ended}.tmp", f"net_iter_5.solverstate.h5.manifest.json.{ended}.tmp"]
    stale.append(f"net_iter_6.caffemodel.{os.getpid()}.tmp")  # of a run in a container, killed and started again
    kept = [f"net_iter_5.caffemodel.{others}.tmp", "net_iter_5.caffemodel", f"other_iter_5.caffemodel.{ended}.tmp"]
    fresh = f"net_iter_7.caffemodel.{ended}.tmp"
    for name in [*stale, *kept, fresh]:
        (tmp_path / name).touch()
        if name != fresh:
            os.utime(tmp_path / name, (minutes_ago, minutes_ago))
    remove_leftovers(tmp_path / "net")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*kept, fresh])


def test_shards_without_their_caffemodel_go_once_they_are_old(tmp_path):
    names = [f"net_iter_{number}.caffemodel.shard_1_of_2.safetensors" for number in (1, 2, 3, 4)]
    for name in names:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))
    (tmp_path / names[1]).touch()
    (tmp_path / "net_iter_3.caffemodel").touch()
    os.utime(tmp_path / names[1])
    remove_leftovers(tmp_path / "net", writing=4)
    assert sorted(path.name for path in tmp_path.glob("*.safetensors")) == names[1:]
