"""Databases as our converters write them, with their sum files."""

import lmdb
import pytest

from mgcaffe.engine.data.lmdb.source import open_lmdb
from mgcaffe.engine.data.lmdb.sums import FILE, write_sums
from mgcaffe.engine.data.lmdb.writer import LmdbWriter
from mgcaffe.errors import DataError, EngineError


def write(folder, count=2500, size=40000):
    with LmdbWriter(folder) as writer:
        for number in reversed(range(count)):
            writer.put(b"%05d" % number, b"%05d" % number * (size // 5 if number % 50 == 0 else 6))
    return folder


def flip(file, place, bit=1):
    content = bytearray(file.read_bytes())
    content[place] ^= bit
    file.write_bytes(content)


def test_records_come_back_in_the_order_of_their_keys_and_caffe_can_read_them(tmp_path):
    folder = write(tmp_path / "db", size=2_000_000)  # more than the map holds at first
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


def test_a_key_given_twice_is_refused(tmp_path):
    with pytest.raises(DataError, match="two records have the key 'a'"), LmdbWriter(tmp_path / "db") as writer:
        writer.put(b"a", b"1")
        writer.put(b"a", b"2")


def test_a_folder_that_cannot_be_written_ends_with_code_73(tmp_path):
    with pytest.raises(EngineError, match="cannot write the database") as caught:
        LmdbWriter(tmp_path / "absent" / "db")
    assert caught.value.exit_code == 73
