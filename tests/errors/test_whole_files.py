"""Files that are whole or not there."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from mgcaffe.errors import EXIT_CANNOT_WRITE, EngineError
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
def test_what_is_no_file_is_written_to(tmp_path, write):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDWR)
    write(tmp_path / "pipe", [b"n", b"ew"])
    assert os.read(reader, 9) == b"new"
    os.close(reader)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/stderr", "log"])
def test_the_standard_streams_are_written_to_where_they_stand(tmp_path, name):
    code = f"""if True:
        import sys
        from mgcaffe.errors.whole_files import overwrite
        print("before")
        print("before", file=sys.stderr)
        overwrite({name!r}, [b"new\\n"])
        print("after")"""
    (tmp_path / "log").write_text("old\n")
    with (tmp_path / "log").open("ab") as log:
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, stdout=log, stderr=log, check=True)
    lines = (tmp_path / "log").read_text().split()
    assert sorted(lines) == ["after", "before", "before", "new", "old"] and (lines[0], lines[-1]) == ("old", "after")


def test_overwriting_keeps_the_mode(path):
    overwrite(path, [b"new"])
    assert path.read_text() == "new" and stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_file_that_may_not_be_written_stays(path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda file, mode: (file, mode) != (path, os.W_OK))
    with pytest.raises(PermissionError):
        overwrite(path, [b"new"])
    assert path.read_text() == "old"


@pytest.mark.parametrize("reason", [errno.EACCES, errno.EROFS])
def test_a_file_in_a_closed_folder_is_written_in_its_place(path, monkeypatch, reason):
    opened = Path.open

    def refuse(self, *rest, **named):
        if self.suffix == ".tmp" or not self.exists():
            raise OSError(reason, os.strerror(reason))
        return opened(self, *rest, **named)

    inode = path.stat().st_ino
    monkeypatch.setattr(Path, "open", refuse)
    overwrite(path, (piece for piece in (b"n", b"ew")))
    assert path.read_text() == "new" and path.stat().st_ino == inode
    with pytest.raises(OSError, match=os.strerror(reason)):
        overwrite(path.with_name("other"), [b"new"])


@pytest.mark.parametrize("reason", [errno.EBUSY, errno.EPERM])
def test_a_file_that_may_not_be_replaced_is_written_in_its_place(path, monkeypatch, reason):
    def refuse(self, target):
        raise OSError(reason, os.strerror(reason))

    inode = path.stat().st_ino
    monkeypatch.setattr(Path, "replace", refuse)
    overwrite(path, [b"new"])
    assert path.read_text() == "new" and path.stat().st_ino == inode
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_name_too_long_for_another_beside_it_is_written_at_once(tmp_path):
    overwrite(tmp_path / ("a" * 255), [b"new"])
    assert (tmp_path / ("a" * 255)).read_text() == "new"


@pytest.mark.parametrize("name", ["/", "folder"])
def test_a_folder_is_not_written_to(tmp_path, name):
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        overwrite(tmp_path / name, [b"new"])


@pytest.mark.parametrize("content", ["ä\r\nb\n", "ä\r\nb\n".encode(), ("ä\r", "\nb\n")])
def test_outputs_are_text_in_utf8_or_bytes(path, content):
    write_output(path, content)
    assert path.read_bytes() == b"\xc3\xa4\r\nb\n"


def test_an_output_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(EngineError, match=r"cannot write the plan .*/none/plan: No such file or directory") as caught:
        write_output(tmp_path / "none" / "plan", "text", "the plan ")
    assert caught.value.exit_code == EXIT_CANNOT_WRITE
