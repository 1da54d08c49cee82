"""Rows in an LMDB: the same as those of the text, in narrow and wide records; damage."""

import lmdb
import numpy as np
import pytest

from mgcaffe.engine.data.criteo.packed_rows import ROWS, PackedRows, pack, rows_of, unpack
from mgcaffe.engine.data.criteo.rows import Rows, parse_row
from mgcaffe.errors import DataError
from mgcaffe.prototxt import Datum
from tests.support.criteokit import row


def parsed(lines: list[bytes]) -> Rows:
    found = Rows.zeros(0)
    for line in lines:
        found = found.joined(parse_row(line))
    return found


def same(first: Rows, second: Rows) -> bool:
    return all(
        np.array_equal(getattr(first, name), getattr(second, name)) for name in ("labels", "integers", "categories")
    )


@pytest.fixture
def database(tmp_path):
    """150 rows, the 100th with a value of 64 bits; liblmdb wrote it, without sums."""
    rows = parsed([row(number, c5="f" * 16 if number == 100 else "1") for number in range(150)])
    with lmdb.open(str(tmp_path / "db"), map_size=1 << 24) as environment, environment.begin(write=True) as writing:
        for start in range(0, 150, ROWS):
            writing.put(b"%010d" % start, pack(rows.take(np.arange(start, min(start + ROWS, 150)))))
    return tmp_path / "db", rows


def test_records_are_datums_of_four_or_eight_bytes_a_value(database):
    folder, _ = database
    with lmdb.open(str(folder), readonly=True, lock=False) as environment, environment.begin() as reading:
        datums = [Datum.FromString(value) for _, value in reading.cursor()]
    assert [(datum.channels, datum.height, datum.width) for datum in datums] == [
        (64, 1, 157),
        (64, 1, 313),
        (22, 1, 157),
    ]
    one = parsed([row(3, i1="-7", c1="01020304")])
    assert Datum.FromString(pack(one)).data[:5] == bytes([int(one.labels[0]), 0xF9, 255, 255, 255])
    assert Datum.FromString(pack(one)).data[53:57] == bytes([4, 3, 2, 1])
    for edge in ({"i1": str(2**31)}, {"i1": str(-(2**31) - 1)}, {"c26": "100000000"}):
        wide = parsed([row(3, **edge)])
        assert len(Datum.FromString(pack(wide)).data) == 313 and same(rows_of(unpack(pack(wide))), wide)


def test_all_rows_come_back_in_any_order(database):
    folder, rows = database
    source = PackedRows(str(folder))
    assert len(source) == 150
    for numbers in (range(150), [149, 0, 100, 100, 63, 64]):
        found, right = source.rows(numbers)
        assert right.all() and same(found, rows.take(np.array(numbers)))
    assert same(source.row(100), rows.take(np.array([100])))


def test_a_damaged_record_leaves_the_others_right(database):
    folder, _ = database
    path = folder / "data.mdb"
    content = bytearray(path.read_bytes())
    place = content.index(parse_row(row(70)).integers.astype("<i8").tobytes()) - 1
    content[place] = 9  # its label
    path.write_bytes(content)
    source = PackedRows(str(folder))
    _, right = source.rows([0, 70, 64, 130])
    assert right.tolist() == [True, False, False, True]
    with pytest.raises(DataError, match=r"record 1 \(key '0000000064'\) of '.*db': it holds the label 9"):
        source.row(64)


def test_another_lmdb_is_refused(tmp_path):
    short = pack(parsed([row(0)]))
    for name, records, message in [
        ("images", [Datum(channels=1, height=2, width=2, data=b"1234").SerializeToString()], "it is no record of rows"),
        ("noise", [b"\xff\xff"], "not a Datum message"),
        ("short", [short, short], "record 0 .* it holds 1 rows, not 64"),
    ]:
        with lmdb.open(str(tmp_path / name), map_size=1 << 20) as environment, environment.begin(write=True) as writing:
            for number, record in enumerate(records):
                writing.put(b"%010d" % number, record)
        with pytest.raises(DataError, match=message):
            PackedRows(str(tmp_path / name)).row(0)
