"""Files are written whole or not at all, and what cannot be written is said beforehand."""

from pathlib import Path

import pytest

from mgcaffe.errors import EXIT_CANNOT_WRITE, SnapshotError
from mgcaffe.solvers.files import probe_writable, write_atomically


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


@pytest.mark.parametrize("folder", ["missing", "file"])
def test_an_unwritable_prefix_is_found_out_by_trying(tmp_path, folder):
    (tmp_path / "file").touch()
    with pytest.raises(SnapshotError, match=f"snapshot_prefix '.*{folder}/net'") as caught:
        probe_writable(tmp_path / folder / "net")
    assert caught.value.exit_code == EXIT_CANNOT_WRITE


def test_probing_leaves_nothing_behind(tmp_path):
    probe_writable(tmp_path / "net")
    assert list(tmp_path.iterdir()) == []
