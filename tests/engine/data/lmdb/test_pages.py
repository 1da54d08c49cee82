"""Reading LMDB files without liblmdb: the same records as liblmdb gives, and damage that is named."""

import os
import random
import struct

import lmdb
import pytest

from mgcaffe.engine.data.lmdb import pages as lmdb_pages
from mgcaffe.engine.data.lmdb.source import open_lmdb
from mgcaffe.errors import DataError
from tests.support.datakit import datum, images, write_lmdb

PAGE = 4096
BRANCH, LEAF, VALUE = 1, 2, 4


def written_at_random(folder, seed):
    """A database after several transactions that put, overwrite and delete; what liblmdb reads from it."""
    draw = random.Random(seed)
    longest = draw.choice([9, 60, 500])
    environment = lmdb.open(str(folder), map_size=1 << 28)
    keys = set()
    for _ in range(draw.randint(1, 5)):
        with environment.begin(write=True) as transaction:
            for _ in range(draw.randint(1, 400)):
                key = draw.randbytes(draw.randint(1, longest))
                transaction.put(key, draw.randbytes(draw.choice([0, 1, 10, 200, 2000, 5000, 30000])))
                keys.add(key)
            for key in sorted(keys):
                chance = draw.random()
                if chance < 0.2:
                    transaction.delete(key)
                    keys.discard(key)
                elif chance < 0.3:
                    transaction.put(key, draw.randbytes(draw.choice([0, 100, 3000, 9000])))
    with environment.begin() as transaction:
        records = list(transaction.cursor())
    environment.close()
    return records


@pytest.mark.parametrize("seed", range(12))
def test_every_record_is_the_one_that_liblmdb_reads(tmp_path, monkeypatch, seed):
    expected = written_at_random(tmp_path / "db", seed)
    if seed % 2:  # as where keys take more than can be read at once
        monkeypatch.setattr(lmdb_pages, "_BYTES_AT_ONCE", 2 * PAGE)
    source = open_lmdb(str(tmp_path / "db"))
    assert [(source.key(number), source.value(number)) for number in range(len(source))] == expected


@pytest.fixture
def database(tmp_path):
    """Big values (with pages of their own) and a tree of several levels."""
    return write_lmdb(tmp_path / "db", [datum(image, n) for n, image in enumerate(images(300, (3, 40, 41)))])


def pages(file, kind):
    """The numbers of the pages of a kind."""
    content = file.read_bytes()
    return [n for n in range(2, len(content) // PAGE) if struct.unpack_from("<H", content, n * PAGE + 10)[0] == kind]


def overwrite(file, place, content):
    with file.open("r+b") as opened:
        opened.seek(place)
        opened.write(content)


def opening(folder):
    """What is said when the database is opened."""
    with pytest.raises(DataError) as caught:
        open_lmdb(str(folder))
    assert f"data source '{folder}'" in str(caught.value)
    return caught.value.message


def test_a_page_pointer_outside_the_file_is_found_when_opening(database):
    file = database / "data.mdb"
    branch = pages(file, BRANCH)[0]
    first_node = struct.unpack_from("<H", file.read_bytes(), branch * PAGE + 16)[0]
    overwrite(file, branch * PAGE + first_node, struct.pack("<HH", 0xFFFF, 0x00FF))
    assert "a branch page points to page 16777215" in opening(database)


@pytest.mark.parametrize(
    ("kind", "place", "content", "message"),
    [
        (LEAF, 0, b"\x07\x07\x07", "carries another page's number"),
        (LEAF, 10, b"\x04", "is not of the kind"),
        (BRANCH, 10, b"\x02", "is not of the kind"),
        (LEAF, 12, b"\xff\xff", "has bounds that cannot be"),
        (BRANCH, 14, b"\xff\xff", "has bounds that cannot be"),
        (LEAF, 16, b"\xfe\x0f", "has a node that lies outside of it"),
    ],
)
def test_a_damaged_page_is_found_when_opening_and_named_by_its_number(database, kind, place, content, message):
    file = database / "data.mdb"
    page = pages(file, kind)[0]
    overwrite(file, page * PAGE + place, content)
    assert f"page {page} of data.mdb {message}" in opening(database)


def test_a_page_with_two_parents_is_found_when_opening(database):
    file = database / "data.mdb"
    branch = pages(file, BRANCH)[0]
    first, second = (node_of(file, branch, slot) for slot in (0, 1))
    overwrite(file, second, file.read_bytes()[first : first + 6])
    assert "a page has two parents" in opening(database)


def test_a_record_that_its_page_no_longer_lists_is_missed_when_opening(database):
    file = database / "data.mdb"
    place = pages(file, LEAF)[0] * PAGE + 12
    overwrite(file, place, struct.pack("<H", struct.unpack_from("<H", file.read_bytes(), place)[0] - 2))
    assert "it has 299 records, but its meta page says 300" in opening(database)


def node_of(file, leaf, slot=0):
    place = struct.unpack_from("<H", file.read_bytes(), leaf * PAGE + 16 + 2 * slot)[0]
    return leaf * PAGE + place


def test_a_value_that_would_lie_outside_the_file_is_found_when_opening(database):
    file = database / "data.mdb"
    node = node_of(file, pages(file, LEAF)[0])
    overwrite(file, node, struct.pack("<HH", 0xFFFF, 0xFFFF))
    assert "has a record that lies outside of the file" in opening(database)


def test_two_records_on_one_page_are_found_when_opening(database):
    file = database / "data.mdb"
    leaf = pages(file, LEAF)[0]
    first, second = node_of(file, leaf, 0), node_of(file, leaf, 1)
    pointer = file.read_bytes()[first + 16 : first + 24]
    overwrite(file, second + 16, pointer)
    assert "two records claim the same page" in opening(database)


def nodes_of(file):
    """Where each record's node is, and the first page of its value."""
    content = file.read_bytes()
    for leaf in pages(file, LEAF):
        for slot in range((struct.unpack_from("<H", content, leaf * PAGE + 12)[0] - 16) // 2):
            node = node_of(file, leaf, slot)
            yield node, struct.unpack_from("<Q", content, node + 16)[0]


def test_a_record_that_claims_the_last_page_of_another_one_is_found_when_opening(database):
    file = database / "data.mdb"
    (_, first), (node, _), *_ = nodes_of(file)
    overwrite(file, node + 16, struct.pack("<Q", first + 1))  # each value has two pages
    assert "two records claim the same page" in opening(database)


@pytest.mark.parametrize("moved", [-1, 1])
def test_a_record_that_claims_a_page_of_keys_is_found_when_opening(database, moved):
    """As the first of its value's two pages, or as the last one."""
    file = database / "data.mdb"
    leaves = pages(file, LEAF)
    beside = -1 if moved < 0 else 2
    node, first = next((node, first) for node, first in nodes_of(file) if first + beside in leaves)
    overwrite(file, node + 16, struct.pack("<Q", first + moved))
    assert "a record claims a page that holds keys" in opening(database)


@pytest.mark.parametrize(("place", "content"), [(0, b"\x00\x00"), (10, b"\x02"), (12, b"\x01")])
def test_a_damaged_page_of_a_value_is_named_by_its_key_when_it_is_read(database, place, content):
    file = database / "data.mdb"
    page = pages(file, VALUE)[5]
    overwrite(file, page * PAGE + place, content)
    source = open_lmdb(str(database))
    bad = []
    for number in range(len(source)):
        try:
            source.value(number)
        except DataError as error:
            bad.append(error.message)
    assert len(bad) == 1
    assert f"(key '0000000{bad[0].split()[1]}') of '{database}' cannot be read: page {page} of data.mdb" in bad[0]


@pytest.mark.parametrize("kept", [0, 10, 100, PAGE, 2 * PAGE - 1, 3 * PAGE, -PAGE, -1])
def test_a_cut_off_file_is_refused(database, kept):
    file = database / "data.mdb"
    size = file.stat().st_size
    os.truncate(file, kept if kept >= 0 else size + kept)
    message = opening(database)
    assert "is cut off: " in message, message


def test_a_file_that_is_cut_off_while_it_is_open_is_an_error_not_a_signal(database):
    source = open_lmdb(str(database))
    os.truncate(database / "data.mdb", 5 * PAGE)
    last = len(source) - 1
    with pytest.raises(DataError, match=rf"record {last} \(key '00000299'\).*is cut off"):
        source.value(last)


def test_a_database_that_is_written_while_it_is_read_is_refused(database):
    source = open_lmdb(str(database))
    source.values([0])
    with lmdb.open(str(database), map_size=1 << 24) as environment, environment.begin(write=True) as transaction:
        transaction.put(b"00000000", b"new")
    with pytest.raises(DataError, match="changed while it was being read"):
        source.values([0])


def test_other_formats_and_meta_pages_are_named(database):
    file = database / "data.mdb"
    overwrite(file, 20, b"\x02")
    assert "LMDB's format 2; format 1 is read" in opening(database)
    overwrite(file, 20, b"\x01")
    overwrite(file, 16, b"\x00")
    assert "no LMDB magic number" in opening(database)
    overwrite(file, 16, b"\xde")
    overwrite(file, 40, struct.pack("<I", 12345))
    assert "page size of 12345 bytes" in opening(database)


@pytest.mark.parametrize(
    ("place", "content", "message"),
    [
        (0, b"\x07", "meta page 0 of data.mdb is damaged"),
        (10, b"\x02", "meta page 0 of data.mdb is damaged"),
        (PAGE + 10, b"\x02", "meta page 1 of data.mdb is damaged"),
        (PAGE + 40, struct.pack("<I", 8192), "the meta pages give different page sizes, 4096 and 8192"),
        (PAGE + 92, b"\x04", "the database holds several values a key"),
        (PAGE + 92, b"\x20", "the database holds several values a key"),
        (PAGE + 94, struct.pack("<H", 0), "the tree's depth is 0"),
        (PAGE + 94, struct.pack("<H", 33), "the tree's depth is 33"),
        (PAGE + 120, struct.pack("<Q", 2**47), "meta page 1 of data.mdb counts more pages than a file can have"),
        (PAGE + 128, struct.pack("<Q", 1), "the tree's root points to page 1, but pages 2 to"),
    ],
)
def test_damage_of_a_meta_page_is_named(database, place, content, message):
    """The second one is the newer one."""
    overwrite(database / "data.mdb", place, content)
    assert message in opening(database)


def test_databases_that_caffe_does_not_write_are_refused(tmp_path):
    with lmdb.open(str(tmp_path / "named"), max_dbs=2) as environment:
        environment.open_db(b"inner")
    assert "no plain record (a named database" in opening(tmp_path / "named")


def test_an_index_of_nothing_has_no_records(tmp_path):
    folder = write_lmdb(tmp_path / "db", [])
    file = os.open(folder / "data.mdb", os.O_RDONLY)
    try:
        assert len(lmdb_pages.read_index(file).places) == 0
    finally:
        os.close(file)
