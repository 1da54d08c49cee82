"""LevelDB databases, Caffe's default backend: read by a Data layer, by many at a time, never written to."""

import functools
import importlib.util
import os
import random
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import plyvel
import pytest

from mgcaffe.engine.data.databases import open_records
from mgcaffe.engine.data.leveldb import LevelDb, LevelDbSource
from mgcaffe.errors import DataError
from tests.support.datakit import datum, images, labels, make, numbered

TEXT = 'name: "d" type: "Data" top: "data" top: "label" data_param {{ source: "{}" batch_size: 2 {} }}'


def write_leveldb(folder: Path, values: list[bytes], *, in_tables: bool = True) -> Path:
    """Write values as a LevelDB, in tables, or in the log alone, as what was written last lies there."""
    with plyvel.DB(str(folder), create_if_missing=True) as database:
        for number, value in enumerate(values):
            database.put(b"%08d" % number, value)
        if in_tables:
            database.compact_range()
    return folder


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {file.name: (file.stat().st_mtime_ns, file.read_bytes()) for file in folder.iterdir()}


def the_table(folder: Path) -> Path:
    """Return the largest of a database's tables."""
    return max(folder.glob("*.ldb"), key=lambda file: file.stat().st_size)


@pytest.mark.parametrize("in_tables", [True, False])
def test_records_are_read_in_the_order_of_their_keys_and_nothing_is_written(tmp_path, in_tables):
    values = [datum(image, 10 + n).SerializeToString() for n, image in enumerate(images(5))]
    folder = write_leveldb(tmp_path / "db", values, in_tables=in_tables)
    before = contents(folder)
    layer = make(TEXT.format(folder, "").replace("batch_size: 2", "batch_size: 3"))
    for expected in ([0, 1, 2], [3, 4, 0]):
        pixels, label = layer.forward([])
        np.testing.assert_array_equal(pixels.numpy(), images(5)[expected])
        assert label.tolist() == [10 + n for n in expected]
    layer.close()
    assert contents(folder) == before


def test_many_read_one_database_at_a_time(tmp_path):
    values = [os.urandom(3000) for _ in range(500)]
    folder = write_leveldb(tmp_path / "db", values)
    sources = [LevelDbSource(str(folder)) for _ in range(3)]
    failed = []

    def read(source: LevelDbSource) -> None:
        if [source.value(number) for number in range(500)] != values:
            failed.append(source)

    threads = [threading.Thread(target=read, args=(source,)) for source in sources]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_layers_that_read_one_database_share_it(tmp_path):
    folder = write_leveldb(tmp_path / "db", [b"1", b"2"])
    source = open_records(str(folder))
    assert open_records(f"{folder}/.") is source
    copy = shutil.copytree(folder, tmp_path / "copy")
    assert open_records(str(copy)) is not source


def test_a_database_that_another_program_has_open_is_refused(tmp_path):
    folder = write_leveldb(tmp_path / "db", [b"1", b"2"])
    program = "import plyvel, sys; held = plyvel.DB(sys.argv[1]); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline()
        assert "is open in another program, which may be writing to it" in refused(folder)
        other.communicate(b"\n")
    assert len(LevelDbSource(str(folder))) == 2


def test_the_folder_decides_and_another_backend_is_an_error(tmp_path):
    folder = write_leveldb(tmp_path / "db", [datum(image, n).SerializeToString() for n, image in enumerate(images(2))])
    for backend in ("", "backend: LEVELDB"):
        layer = make(TEXT.format(folder, backend))
        assert labels(layer, 1) == [[0, 1]]
        layer.close()
    with pytest.raises(DataError, match=r"backend is LMDB, but '.*' holds a database of kind LEVELDB"):
        make(TEXT.format(folder, "backend: LMDB"))
    lmdb = numbered(tmp_path / "lmdb", 2)
    with pytest.raises(DataError, match=r"backend is LEVELDB, but '.*' holds a database of kind LMDB"):
        make(TEXT.format(lmdb, "backend: LEVELDB"))


def test_the_temporary_folder_goes_with_the_last_reader(tmp_path, monkeypatch):
    links = tmp_path / "links"
    links.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(links))
    source = open_records(str(write_leveldb(tmp_path / "db", [b"1", b"2"])))
    assert [source.value(0), source.value(1), len(source)] == [b"1", b"2", 2]
    assert len(list(links.iterdir())) == 1
    del source
    assert not list(links.iterdir())


def test_a_forked_process_leaves_the_temporary_folder_to_its_parent(tmp_path, monkeypatch):
    """RocksDB opens a database's files by the links, and some of them again and again where there are many."""
    links = tmp_path / "links"
    links.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(links))
    source = open_records(str(write_leveldb(tmp_path / "db", [b"1", b"2"])))
    before = sorted(links.rglob("*.ldb"))
    child = os.fork()
    if not child:
        del source
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert before and sorted(links.rglob("*.ldb")) == before
    assert source.value(1) == b"2"


# -- databases that cannot be read -----------------------------------------------------------------------


def refused(folder: Path) -> str:
    with pytest.raises(DataError) as caught:
        LevelDbSource(str(folder))
    assert "mgcaffe_leveldb_" not in str(caught.value), "the user's folder has to be named, not the one of the links"
    return caught.value.message


def flip(file: Path, place: int) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


def test_damage_is_found_when_a_database_is_opened(tmp_path):
    write = functools.partial(write_leveldb, values=[os.urandom(3000) for _ in range(100)])
    folder = write(tmp_path / "flipped")
    flip(the_table(folder), 10_000)
    assert "checksum mismatch" in refused(folder)
    folder = write(tmp_path / "cut")
    os.truncate(the_table(folder), 10_000)
    assert "cannot be read: Corruption" in refused(folder)
    folder = write(tmp_path / "without")
    the_table(folder).unlink()
    assert "No such file" in refused(folder)
    folder = write(tmp_path / "log", in_tables=False)
    flip(max(folder.glob("*.log")), 1_000)
    assert "cannot be read: Corruption" in refused(folder)
    folder = write(tmp_path / "nonsense")
    next(folder.glob("MANIFEST-*")).write_bytes(b"nonsense" * 9)
    assert "cannot be read: MANIFEST-000002 is damaged at byte 0" in refused(folder)


@pytest.mark.parametrize("name", ["MANIFEST-*", "*.log"])
def test_records_of_a_kind_that_leveldb_does_not_write_are_refused(tmp_path, name):
    """RocksDB would read such a manifest for ever."""
    file = next(write_leveldb(tmp_path / "db", [b"1", b"2"], in_tables=False).glob(name))
    content = bytearray(file.read_bytes())
    second = 7 + int.from_bytes(content[4:6], "little")
    content[second + 6] = 5
    file.write_bytes(content)
    assert f"{file.name} is damaged at byte {second}" in refused(file.parent)


@pytest.mark.parametrize("in_tables", [True, False])
def test_whatever_is_damaged_is_refused_or_read_right(tmp_path, in_tables):
    draw = random.Random(1)
    values = [draw.randbytes(200) for _ in range(300)]
    intact = write_leveldb(tmp_path / "intact", values, in_tables=in_tables)
    files = [file.name for file in intact.iterdir() if file.stat().st_size and not file.name.startswith("LOG")]
    count = 0
    for number in range(40):
        folder = shutil.copytree(intact, tmp_path / str(number))
        file = folder / draw.choice(files)
        content = bytearray(file.read_bytes())
        place = draw.randrange(len(content))
        noise = draw.choice([bytes([content[place] ^ 1 << draw.randrange(8)]), draw.randbytes(64), bytes(64)])
        content[place : place + len(noise)] = noise[: len(content) - place]
        file.write_bytes(content)
        try:
            source = LevelDbSource(str(folder))
            assert [source.value(number) for number in range(len(source))] == values
        except DataError:
            count += 1
    assert count > 30


def test_a_record_that_is_damaged_later_is_named(tmp_path):
    folder = write_leveldb(tmp_path / "db", [os.urandom(3000) for _ in range(20_000)])  # more than is kept in memory
    source = LevelDbSource(str(folder))
    flip(min(folder.glob("*.ldb")), 10_000)
    with pytest.raises(DataError, match=r"^record 2 \(key '00000002'\) of '.*': LevelDB '.*checksum mismatch"):
        [source.value(number) for number in range(100)]


def test_half_a_record_at_the_end_of_the_log_is_left_out(tmp_path):
    folder = write_leveldb(tmp_path / "db", [os.urandom(3000) for _ in range(10)], in_tables=False)
    log = max(folder.glob("*.log"))
    os.truncate(log, log.stat().st_size - 100)
    assert len(LevelDbSource(str(folder))) == 9


def test_a_folder_with_something_else_is_named(tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    with pytest.raises(DataError, match=r"with neither an LMDB \(data.mdb\) nor a LevelDB \(CURRENT\)"):
        open_records(str(tmp_path / "other"))
    with pytest.raises(DataError, match="does not exist"):
        open_records(str(tmp_path / "absent"))
    folder = write_leveldb(tmp_path / "db", [b"1"])
    (folder / "notes.log").write_text("a file of the user's, not of LevelDB's")
    assert len(open_records(str(folder))) == 1
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    assert "no temporary folder can be made" in refused(folder)


def test_an_empty_database_and_a_missing_rocksdict_are_errors(tmp_path, monkeypatch):
    assert "holds no records" in refused(write_leveldb(tmp_path / "empty", []))
    folder = write_leveldb(tmp_path / "db", [b"1"])
    known = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "rocksdict" else known(name))
    with pytest.raises(DataError, match="rocksdict, which reads those, is not installed") as caught:
        LevelDb(str(folder))
    assert caught.value.hint == "pip install 'mgcaffe[leveldb]'"
