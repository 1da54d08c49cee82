"""Files that are whole or not there."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from mgcaffe.errors import EXIT_CANNOT_WRITE, EngineError, whole_files
from mgcaffe.errors.whole_files import overwrite, write_output, write_whole

NO_SPACE = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def path(tmp_path):
    """A file that is there, alone in its folder."""
    target = tmp_path / "kept.txt"
    target.write_text("old")
    target.chmod(0o640)
    return target


def failing(error):
    yield b"a first part"
    raise error


@pytest.mark.parametrize("write", [write_whole, overwrite])
def test_a_write_that_fails_leaves_what_was_there(path, write):
    with pytest.raises(OSError, match="No space left"):
        write(path, failing(NO_SPACE))
    assert [each.name for each in path.parent.iterdir()] == [path.name] and path.read_text() == "old"


@pytest.mark.parametrize("write", [write_whole, overwrite])
def test_a_link_stays_and_its_target_is_replaced(path, write):
    link = path.with_name("link")
    link.symlink_to(path.name)
    write(link, [b"n", b"ew"])
    assert link.is_symlink() and path.read_text() == "new"


@pytest.mark.parametrize("write", [write_whole, overwrite])
def test_what_is_no_file_is_written_to(write):
    write("/dev/null", [b"new"])
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_overwriting_keeps_the_mode(path):
    overwrite(path, [b"new"])
    assert path.read_text() == "new" and stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_file_in_a_closed_folder_is_written_in_its_place(path, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    inode = path.stat().st_ino
    monkeypatch.setattr(whole_files, "write_aside", refuse)
    overwrite(path, [b"new"])
    assert path.read_bytes() == b"new" and path.stat().st_ino == inode
    with pytest.raises(PermissionError):
        overwrite(path.with_name("other"), [b"new"])


def test_a_file_that_is_mounted_by_itself_is_written_in_its_place(path, monkeypatch):
    def refuse(self, target):
        raise OSError(errno.EBUSY, "Device or resource busy")

    inode = path.stat().st_ino
    monkeypatch.setattr(Path, "replace", refuse)
    overwrite(path, [b"new"])
    assert path.read_text() == "new" and path.stat().st_ino == inode
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("content", ["ä\r\nb\n", "ä\r\nb\n".encode(), iter(["ä\r", "\nb\n"])])
def test_outputs_are_text_in_utf8_or_bytes(path, content):
    write_output(path, content)
    assert path.read_bytes() == b"\xc3\xa4\r\nb\n"


def test_an_output_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(EngineError, match=r"cannot write the plan .*/none/plan: No such file or directory") as caught:
        write_output(tmp_path / "none" / "plan", "text", "the plan ")
    assert caught.value.exit_code == EXIT_CANNOT_WRITE
