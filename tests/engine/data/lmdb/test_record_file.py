"""Files as liblmdb writes them through a map that is allocated ahead, and as liblmdb and our own reader find them."""

from __future__ import annotations

import errno
import os
import resource

import lmdb
import pytest

from mgcaffe.engine.data.lmdb import record_file
from mgcaffe.engine.data.lmdb.record_file import RecordFile
from mgcaffe.engine.data.lmdb.source import LmdbSource


def write(folder, records, commit_every=0):
    folder.mkdir(exist_ok=True)
    file = RecordFile(folder, durable=bool(commit_every))
    for number, (key, value) in enumerate(records):
        file.put(key, value)
        if commit_every and number % commit_every == 0:
            file.commit()
    file.finish()
    file.close()


def read(folder):
    with lmdb.open(str(folder), readonly=True, lock=False) as environment, environment.begin() as transaction:
        found = list(transaction.cursor())
        assert all(transaction.get(key) == value for key, value in found)
        return found


def ours(folder):
    source = LmdbSource(str(folder), without_sums=True)
    return [(source.key(number), source.value(number)) for number in range(len(source))]


def value(number, size):
    return (b"%d " % number * (size // 2 + 1))[:size]


CASES = {
    "one": [(b"key", b"value")],
    "empty value": [(b"a", b""), (b"b", b"x")],
    # About the largest that lies among keys, about a page, and more.
    "sizes": [
        (b"%03d" % number, value(number, size))
        for number, size in enumerate([*range(2020, 2045), *range(4070, 4090), 8176, 8177, (1 << 21) + 5, 3])
    ],
    # A page holds seven nodes, so the tree is four levels high.
    "long keys": [(b"%0500d" % number, value(number, 1 + number % 60)) for number in range(1500)],
    "short keys": [(b"%d" % number, value(number, 2500 if number % 3 else 9)) for number in range(10000, 11500)],
}


@pytest.mark.parametrize("commit_every", [0, 97])
@pytest.mark.parametrize("case", CASES)
def test_liblmdb_and_our_reader_find_every_record(tmp_path, case, commit_every):
    records = CASES[case]
    write(tmp_path / "db", records, commit_every)
    assert read(tmp_path / "db") == records == ours(tmp_path / "db")
    assert (tmp_path / "db" / "data.mdb").stat().st_size == 4096 * (last_page(tmp_path / "db") + 1)


def test_liblmdb_can_go_on_writing(tmp_path):
    """It checks the tree as it changes it: counts, and two children at least a branch page."""
    records = dict(CASES["long keys"])
    write(tmp_path / "db", records.items(), 400)
    with lmdb.open(str(tmp_path / "db"), map_size=1 << 24) as environment:
        assert environment.stat()["entries"] == 1500
        with environment.begin(write=True) as transaction:
            for key in list(records)[100:1400]:
                assert transaction.delete(key)
                del records[key]
            for number in range(300):
                records[b"%0400d" % number] = value(number, 5000)
                transaction.put(b"%0400d" % number, value(number, 5000))
    assert dict(read(tmp_path / "db")) == records == dict(ours(tmp_path / "db"))


def last_page(folder):
    with lmdb.open(str(folder), readonly=True, lock=False) as environment:
        return environment.info()["last_pgno"]


def killed(folder, records, uncommitted):
    """Write records in a process that dies before it commits the last ones."""
    folder.mkdir()
    process = os.fork()
    if not process:
        file = RecordFile(folder, durable=True)
        for number, (key, content) in enumerate(records):
            if number == len(records) - uncommitted:
                file.commit()
            file.put(key, content)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 9


def test_what_a_killed_process_committed_stays_and_the_rest_is_cut_off(tmp_path):
    records = CASES["short keys"]
    killed(tmp_path / "db", records, 500)
    data = tmp_path / "db" / "data.mdb"
    assert data.stat().st_size == 1 << 28  # all of the map, not all of it allocated
    assert 512 * data.stat().st_blocks < 1 << 27
    assert read(tmp_path / "db") == ours(tmp_path / "db") == records[:1000]
    write(tmp_path / "db", records[1000:])
    assert read(tmp_path / "db") == ours(tmp_path / "db") == records
    assert data.stat().st_size == 4096 * (last_page(tmp_path / "db") + 1) == 512 * data.stat().st_blocks


def test_a_file_that_is_closed_unfinished_ends_with_what_was_committed(tmp_path):
    (tmp_path / "db").mkdir()
    file = RecordFile(tmp_path / "db", durable=True)
    file.put(b"1", b"one")
    file.commit()
    file.put(b"2", b"two" * 10000)
    file.close()
    assert ours(tmp_path / "db") == [(b"1", b"one")]
    assert (tmp_path / "db" / "data.mdb").stat().st_size == 4096 * (last_page(tmp_path / "db") + 1)


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL, None])
def test_a_file_system_that_cannot_allocate_gets_no_map(tmp_path, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, "refused")

    if number is None:
        monkeypatch.delattr(os, "posix_fallocate")
    else:
        monkeypatch.setattr(os, "posix_fallocate", refuse)
    records = [*CASES["sizes"], *((b"x%02d" % count, value(count, 1 << 20)) for count in range(40))]
    write(tmp_path / "db", records)
    assert read(tmp_path / "db") == records == ours(tmp_path / "db")
    assert (tmp_path / "db" / "data.mdb").stat().st_size == 4096 * (last_page(tmp_path / "db") + 1)


def test_without_a_map_little_is_held_in_memory(tmp_path, monkeypatch):
    """liblmdb keeps there what is not committed yet."""
    monkeypatch.setattr(record_file, "_BYTES_OF_COMMIT", 1 << 17)
    monkeypatch.setattr(record_file, "_can_allocate", lambda _: False)
    file = RecordFile(tmp_path, durable=False)
    for number in range(20):
        file.put(b"%02d" % number, value(number, 30000))
        assert (number + 1 - file.committed) * 30000 < 1 << 17
    file.close()


@pytest.mark.parametrize("mapped", [True, False])
def test_a_map_grows_with_its_records(tmp_path, monkeypatch, mapped):
    monkeypatch.setattr(record_file, "_FIRST_MAP_SIZE", 1 << 17)
    monkeypatch.setattr(record_file, "_ALLOCATED_AHEAD", 1 << 12)
    monkeypatch.setattr(record_file, "_BYTES_OF_COMMIT", 1 << 18)
    monkeypatch.setattr(record_file, "_can_allocate", lambda _: mapped)
    for case, records in CASES.items():
        write(tmp_path / case, records)
        assert ours(tmp_path / case) == records


def test_the_last_place_of_a_disk_is_used(tmp_path, monkeypatch):
    """Allocating ahead is refused; what a record needs is not, until the disk is full."""
    allocate = os.posix_fallocate

    def limited(file, start, size):
        if start + size > 1 << 21:
            raise OSError(errno.ENOSPC, "No space left on device")
        allocate(file, start, size)

    monkeypatch.setattr(os, "posix_fallocate", limited)
    (tmp_path / "db").mkdir()
    file = RecordFile(tmp_path / "db", durable=False)
    written = 0
    with pytest.raises(OSError, match="No space left"):
        while True:
            file.put(b"%04d" % written, value(written, 30000))
            written += 1
    file.commit()
    file.close()
    assert ours(tmp_path / "db") == [(b"%04d" % number, value(number, 30000)) for number in range(written)]
    # A record takes ten pages at most, and a commit 64: there is no place for another two.
    assert (written + 2) * 10 * 4096 + 64 * 4096 > 1 << 21


def test_a_file_that_may_not_grow_is_an_error(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    try:
        with pytest.raises((OSError, lmdb.Error), match="File too large"):
            RecordFile(tmp_path, durable=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_an_error_of_the_disk_comes_at_the_end(tmp_path, monkeypatch):
    def fails(_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails)
    (tmp_path / "db").mkdir()
    file = RecordFile(tmp_path / "db", durable=False)
    for number in range(2):
        file.put(b"%d" % number, bytes(1 << 16))
    with pytest.raises(OSError, match="Input/output error"):
        file.finish()
    file.close()
