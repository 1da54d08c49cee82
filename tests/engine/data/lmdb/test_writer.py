"""Databases as our converters write them, with their sum files."""

import contextlib
import errno
import fcntl
import os
import resource
import shutil
from pathlib import Path

import lmdb
import pytest

from mgcaffe.engine.data.lmdb import writer as writer_module
from mgcaffe.engine.data.lmdb.source import open_lmdb
from mgcaffe.engine.data.lmdb.sums import FILE, write_sums
from mgcaffe.engine.data.lmdb.writer import LmdbWriter
from mgcaffe.errors import DataError, EngineError


def write(folder, count=2500, size=40000):
    with LmdbWriter(folder) as writer:
        for number in range(count):
            writer.put(b"%05d" % number, b"%05d" % number * (size // 5 if number % 50 == 0 else 6))
    return folder


def flip(file, place, bit=1):
    content = bytearray(file.read_bytes())
    content[place] ^= bit
    file.write_bytes(content)


def test_records_come_back_in_the_order_of_their_keys_and_caffe_can_read_them(tmp_path):
    folder = write(tmp_path / "db")
    with lmdb.open(str(folder), readonly=True, lock=False) as environment, environment.begin() as transaction:
        assert [key for key, _ in transaction.cursor()] == [b"%05d" % number for number in range(2500)]
    source = open_lmdb(str(folder))
    assert source.has_sums
    assert all(source.value(number).startswith(b"%05d" % number) for number in range(2500))


def test_a_flipped_bit_in_any_value_is_found_and_named(tmp_path):
    folder = write(tmp_path / "db")
    content = (folder / "data.mdb").read_bytes()
    # The pages of earlier transactions hold copies of it, too.
    (folder / "data.mdb").write_bytes(content.replace(b"00007" * 7, b"00007" * 6 + b"00006"))
    source = open_lmdb(str(folder))
    with pytest.raises(DataError, match=r"record 7 \(key '00007'\) of '.*' is damaged: its sum"):
        source.value(7)
    assert content != (folder / "data.mdb").read_bytes()
    assert source.value(6) == b"00006" * 6


def test_a_damaged_or_foreign_sum_file_is_named_with_the_way_out(tmp_path):
    folder = write(tmp_path / "db", 20)
    flip(folder / FILE, -3)
    with pytest.raises(DataError, match=r"sum file .* is damaged") as caught:
        open_lmdb(str(folder))
    assert f"engine check_lmdb --write_sums {folder}" in str(caught.value)
    write_sums(folder, [1, 2, 3])
    with pytest.raises(DataError, match="holds 20 records, but its sum file is of 3"):
        open_lmdb(str(folder))
    (folder / FILE).write_bytes(b"[]\n")
    with pytest.raises(DataError, match="is damaged"):
        open_lmdb(str(folder))


def test_a_database_that_fails_on_the_way_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match="stop"), LmdbWriter(tmp_path / "db") as writer:
        writer.put(b"a", b"b")
        raise ValueError("stop")
    assert not list(tmp_path.iterdir())


def test_an_existing_folder_is_not_overwritten_unless_asked(tmp_path):
    folder = write(tmp_path / "db", 3)
    with pytest.raises(EngineError, match="exists already"):
        LmdbWriter(folder)
    with LmdbWriter(folder, replace=True) as writer:
        writer.put(b"new", b"value")
    assert open_lmdb(str(folder)).key(0) == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["db"]  # nothing is left of the one that was replaced
    for name in ("/", "."):  # which leave no name for what is unfinished
        with pytest.raises(EngineError, match="exists already"):
            LmdbWriter(name, replace=True)


def test_a_replaced_database_that_cannot_be_removed_is_left_and_named(tmp_path, monkeypatch, caplog):
    """As on NFS, where a file that another process has open stays under another name."""
    folder = write(tmp_path / "db", 3)

    def refuse(*_, **__):
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))

    with monkeypatch.context() as patch, LmdbWriter(folder, replace=True) as writer:
        writer.put(b"new", b"value")
        patch.setattr(shutil, "rmtree", refuse)
    assert open_lmdb(str(folder)).key(0) == b"new"
    (left,) = tmp_path.glob("db.*.old")
    assert f"is left in '{left}', since it cannot be removed: Directory not empty" in caplog.text
    assert len(open_lmdb(str(left))) == 3


def test_a_key_given_twice_is_refused(tmp_path):
    with pytest.raises(DataError, match="two records have the key 'a'"), LmdbWriter(tmp_path / "db") as writer:
        writer.put(b"a", b"1")
        writer.put(b"a", b"2")
    with pytest.raises(DataError, match="has 512 bytes; LMDB takes 1 to 511"), LmdbWriter(tmp_path / "db") as writer:
        writer.put(b"a" * 512, b"1")


def test_a_folder_that_cannot_be_written_ends_with_code_73(tmp_path):
    with pytest.raises(EngineError, match="cannot write the database") as caught:
        LmdbWriter(tmp_path / "absent" / "db")
    assert caught.value.exit_code == 73


def test_a_leftover_of_a_writer_that_cannot_be_resumed_is_cleared_away(tmp_path):
    (tmp_path / "db.partial").mkdir()
    (tmp_path / "db.partial" / "data.mdb").write_bytes(b"damage")
    write(tmp_path / "db", 3)
    assert [path.name for path in tmp_path.iterdir()] == ["db"]
    assert len(open_lmdb(str(tmp_path / "db"))) == 3


def interrupted(folder, work="w", count=1500):
    with pytest.raises(KeyboardInterrupt), LmdbWriter(folder, work=work) as writer:
        for number in range(count):
            writer.put(b"%05d" % number, b"%d" % number * 50)
        raise KeyboardInterrupt


def test_an_interrupted_writer_is_resumed_with_its_sums(tmp_path):
    folder = tmp_path / "db"
    interrupted(folder)
    with pytest.raises(EngineError, match="holds 1500 records of a run that was interrupted") as caught:
        LmdbWriter(folder, work="w")
    assert caught.value.exit_code == 73
    with pytest.raises(EngineError, match="is of a run with another list"):
        LmdbWriter(folder, work="other", resume=True)
    with LmdbWriter(folder, work="w", resume=True) as writer:
        assert (writer.count, writer.last_key, writer.first_value) == (1500, b"01499", b"0" * 50)
        with pytest.raises(DataError, match="two records have the key '01499'"):
            writer.put(b"01499", b"")
        writer.put(b"01500", b"last")
        writer.add_file("classes.txt", b"cat\n")
    assert {path.name for path in folder.iterdir()} == {"data.mdb", FILE, "classes.txt"}
    source = open_lmdb(str(folder))
    assert source.has_sums and len(source) == 1501
    assert [source.value(number) for number in (7, 1499, 1500)] == [b"7" * 50, b"1499" * 50, b"last"]
    assert [path.name for path in tmp_path.iterdir()] == ["db"]


@pytest.mark.parametrize("step", ["flushing the records", "writing their sums", "giving it its name"])
def test_ctrl_c_while_the_database_is_finished_leaves_what_can_be_resumed(tmp_path, monkeypatch, step):
    def interrupt(*_):
        raise KeyboardInterrupt

    folder = tmp_path / "db"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt), LmdbWriter(folder, work="w") as writer:
        writer.put(b"1", b"one")
        if step == "flushing the records":
            patch.setattr(os, "fsync", interrupt)
        elif step == "writing their sums":
            patch.setattr("mgcaffe.engine.data.lmdb.writer.write_sums", interrupt)
        else:
            patch.setattr(Path, "rename", interrupt)
    assert not folder.exists()
    with LmdbWriter(folder, work="w", resume=True) as writer:
        assert (writer.count, writer.last_key) == (1, b"1")
        writer.put(b"2", b"two")
    source = open_lmdb(str(folder))
    assert source.has_sums and [source.value(number) for number in range(2)] == [b"one", b"two"]
    assert [path.name for path in tmp_path.iterdir()] == ["db"]


def test_ctrl_c_while_a_database_is_replaced_leaves_the_old_one(tmp_path, monkeypatch):
    rename, folder = Path.rename, tmp_path / "db"
    write(folder, 3)

    def interrupt(path, target):
        if path.name.endswith(".partial"):
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt), LmdbWriter(folder, replace=True) as writer:
        writer.put(b"1", b"one")
        patch.setattr(Path, "rename", interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["db"] and len(open_lmdb(str(folder))) == 3


def test_damage_in_what_an_interrupted_writer_left_is_said_before_all_is_written_anew(tmp_path, caplog):
    folder = tmp_path / "db"
    interrupted(folder)
    os.truncate(tmp_path / "db.partial" / "data.mdb", 10000)
    with LmdbWriter(folder, work="w", resume=True) as writer:
        assert writer.count == 0
        writer.put(b"a", b"new")
    assert "what an earlier run left is of no use: data source" in caplog.text and "is cut off" in caplog.text
    assert len(open_lmdb(str(folder))) == 1


@pytest.mark.parametrize("work", ["w", None])
def test_commits_wait_for_the_disk_where_a_run_can_be_resumed(tmp_path, work):
    with LmdbWriter(tmp_path / "db", work=work) as writer:
        writer.put(b"a", b"b")
        assert writer._records._environment.flags()["sync"] is (work is not None)


def test_an_error_removes_what_could_be_resumed(tmp_path):
    with pytest.raises(ValueError, match="stop"), LmdbWriter(tmp_path / "db", work="w") as writer:
        writer.put(b"a", b"b")
        raise ValueError("stop")
    assert not list(tmp_path.iterdir())


def test_two_writers_of_one_database_exclude_each_other(tmp_path):
    with LmdbWriter(tmp_path / "db") as writer:
        with pytest.raises(EngineError, match="another process is writing the database") as caught:
            LmdbWriter(tmp_path / "db")
        assert caught.value.exit_code == 73
        writer.put(b"a", b"b")
    assert open_lmdb(str(tmp_path / "db")).value(0) == b"b"


def test_a_database_that_another_process_finishes_meanwhile_is_not_overwritten(tmp_path, monkeypatch):
    """Between the look for it and the lock, which that process held."""
    locked = writer_module._locked

    def finish_another(scratch):
        monkeypatch.setattr(writer_module, "_locked", locked)
        write(tmp_path / "db", 3)
        return locked(scratch)

    monkeypatch.setattr(writer_module, "_locked", finish_another)
    with pytest.raises(EngineError, match="exists already"):
        LmdbWriter(tmp_path / "db")
    assert [path.name for path in tmp_path.iterdir()] == ["db"]
    assert len(open_lmdb(str(tmp_path / "db"))) == 3


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EIO])
def test_a_file_system_without_locks_has_to_do_without(tmp_path, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    if number == errno.EIO:
        with pytest.raises(EngineError, match=r"cannot write the database .*: Input/output error"):
            LmdbWriter(tmp_path / "db")
    else:
        write(tmp_path / "db", 3)
        assert len(open_lmdb(str(tmp_path / "db"))) == 3


@contextlib.contextmanager
def limited_files(size):
    """Let no file grow beyond so many bytes, as `ulimit -f` does; Python ignores the signal that comes with it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_ends_with_code_73(tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(EngineError) as caught, LmdbWriter(tmp_path / "db") as writer:
        for number in range(2000):
            writer.put(b"%05d" % number, b"value" * 10000)
            if number == 10:
                patch.setattr(os, "posix_fallocate", full)
    assert caught.value.message == f"cannot write the database '{tmp_path}/db': No space left on device"
    assert caught.value.exit_code == 73 and caught.value.hint is None
    assert not list(tmp_path.iterdir())


def test_records_that_were_committed_before_the_disk_was_full_are_resumed_from(tmp_path, monkeypatch):
    folder = tmp_path / "db"
    with monkeypatch.context() as patch, pytest.raises(EngineError) as caught, LmdbWriter(folder, work="w") as writer:
        for number in range(3000):
            writer.put(b"%05d" % number, b"%d" % number * 10000)
            if number == 1200:
                patch.setattr(os, "posix_fallocate", full)
    assert "No space left" in caught.value.message and caught.value.exit_code == 73
    kept = writer.count // 1000 * 1000
    assert caught.value.hint == f"{kept} records stay in '{folder}.partial'; --resume goes on from them"
    with LmdbWriter(folder, work="w", resume=True) as writer:
        assert (writer.count, writer.last_key) == (kept, b"%05d" % (kept - 1))
        writer.put(b"1", b"last")
    source = open_lmdb(str(folder))
    assert [source.value(number) for number in (0, 999, kept)] == [b"0" * 10000, b"999" * 10000, b"last"]


def test_a_disk_that_is_full_from_the_start_leaves_nothing_new_and_all_that_an_earlier_run_wrote(tmp_path):
    """No file may get a byte more."""
    with limited_files(0), pytest.raises(EngineError, match="cannot write the database") as caught:
        LmdbWriter(tmp_path / "new", work="w")
    assert caught.value.exit_code == 73 and not list(tmp_path.iterdir())
    folder = tmp_path / "db"
    interrupted(folder)
    with limited_files(0), pytest.raises(EngineError) as caught, LmdbWriter(folder, work="w", resume=True) as writer:
        writer.put(b"01500", b"last")
    assert caught.value.hint == f"1500 records stay in '{folder}.partial'; --resume goes on from them"
    with LmdbWriter(folder, work="w", resume=True) as writer:
        writer.put(b"01500", b"last")
    assert len(open_lmdb(str(folder))) == 1501


def test_keys_have_to_ascend(tmp_path):
    with pytest.raises(DataError, match="the key 'a' does not come after 'b'"), LmdbWriter(tmp_path / "db") as writer:
        writer.put(b"b", b"1")
        writer.put(b"a", b"2")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("method", "left"), [("put", 1003), ("begin", 1000)])
def test_ctrl_c_within_a_record_leaves_those_before_it(tmp_path, monkeypatch, method, left):
    """`put` is interrupted once the record is there, or the transaction of the next thousand before it begins."""
    folder = tmp_path / "db"

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt), LmdbWriter(folder, work="w") as writer:
        for number in range(left):
            writer.put(b"%05d" % number, b"value" * 1000)
        if method == "put":
            patch.setattr("mgcaffe.engine.data.lmdb.writer.record_sum", interrupt)
        else:
            patch.setattr(writer._records, "_make_place", interrupt)
        writer.put(b"01003", b"value" * 1000)
    with LmdbWriter(folder, work="w", resume=True) as writer:
        assert writer.count == (1004 if method == "put" else 1000)
        writer.put(b"2", b"last")
    source = open_lmdb(str(folder))
    assert source.has_sums and source.value(len(source) - 1) == b"last"
