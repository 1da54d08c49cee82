"""Text files read at any place, plain and packed."""

import gzip
import random
import zlib

import pytest

from mgcaffe.engine.data.criteo import text_files
from mgcaffe.engine.data.criteo.text_files import open_text
from mgcaffe.errors import DataError

TEXT = bytes(random.Random(0).choices(range(32, 90), k=20_000))
FORMS = {
    "plain": TEXT,
    "gzip": gzip.compress(TEXT),
    "members": b"".join(gzip.compress(TEXT[at : at + 7000]) for at in range(0, len(TEXT), 7000)) + bytes(40),
}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Many pieces and copies of a small file."""
    monkeypatch.setattr(text_files, "_PIECE", 1000)
    monkeypatch.setattr(text_files, "_PACKED_PIECE", 300)
    monkeypatch.setattr(text_files, "_COPY_EVERY", 4000)


@pytest.mark.parametrize("form", FORMS)
def test_any_range_can_be_read_in_any_order(tmp_path, form):
    (tmp_path / "a").write_bytes(FORMS[form])
    file = open_text(str(tmp_path / "a"))
    assert file.packed == (form != "plain")
    assert b"".join(file.pieces()) == TEXT
    draw = random.Random(1)
    at = 0
    for _ in range(150):
        at = draw.randrange(len(TEXT)) if draw.random() < 0.4 else at
        end = at + draw.randrange(3000)
        assert file.read(at, end) == TEXT[at:end]
        at = min(end, len(TEXT))
    assert file.read(len(TEXT) - 5, len(TEXT) + 5) == TEXT[-5:]


def test_reading_on_unpacks_nothing_twice_and_going_back_starts_at_a_copy(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(FORMS["gzip"])
    file = open_text(str(tmp_path / "a"))
    pieces = len(list(file.pieces()))
    unpacked = []
    true = text_files._Unpacking.next_piece
    monkeypatch.setattr(text_files._Unpacking, "next_piece", lambda self: unpacked.append(1) or true(self))
    for at in range(0, len(TEXT), 500):
        file.read(at, at + 500)
    assert len(unpacked) == pieces
    unpacked.clear()
    file.read(15_000, 15_100)
    assert 0 < len(unpacked) < pieces / 2


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (FORMS["gzip"][:-3], "is cut off"),
        (FORMS["gzip"][:2000], "is cut off"),
        (FORMS["gzip"][:2000] + b"xxxx" + FORMS["gzip"][2004:], "is damaged"),
        (FORMS["gzip"][:-8] + bytes(8), "is damaged"),
        (FORMS["gzip"] + b"more", "is damaged"),
        (b"\x1f\x8b", "is cut off"),
    ],
)
def test_a_damaged_gzip_file_is_an_error(tmp_path, content, problem):
    (tmp_path / "a.gz").write_bytes(content)
    with pytest.raises(DataError, match=f"data source '.*a.gz', a gzip file, {problem}"):
        b"".join(open_text(str(tmp_path / "a.gz")).pieces())


@pytest.mark.parametrize("form", ["plain", "gzip"])
def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path, form):
    (tmp_path / "a").write_bytes(FORMS[form])
    file = open_text(str(tmp_path / "a"))
    list(file.pieces())
    file.check_unchanged()
    with (tmp_path / "a").open("ab") as opened:
        opened.write(b"more")
    with pytest.raises(DataError, match="changed while it was being read"):
        file.check_unchanged()


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(DataError, match="does not exist") as caught:
        open_text(str(tmp_path / "nothing"))
    assert "relative paths start from" in str(caught.value)
    with pytest.raises(DataError, match="is no file"):
        open_text(str(tmp_path))
    with pytest.raises(DataError, match="is a device"):
        open_text("/dev/zero")


def test_pythons_and_zlibs_own_compression_are_both_read(tmp_path):
    packer = zlib.compressobj(0, zlib.DEFLATED, 31)
    (tmp_path / "stored.gz").write_bytes(packer.compress(TEXT) + packer.flush())
    assert b"".join(open_text(str(tmp_path / "stored.gz")).pieces()) == TEXT
