"""Archives with damage: samples or one error, never anything else. Folders that cannot be read."""

from __future__ import annotations

import io
import os
import random
import tarfile

import pytest

from mgcaffe.errors import DataError
from mgcaffe.tools.datasets.image_sources import read_archives, read_folders


def archive() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        long = "b/" + "x" * 120
        members = {"a.png": b"image" * 20, "a.cls": b"3", f"{long}.png": b"other" * 20, f"{long}.json": b'{"label": 4}'}
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            made.addfile(info, io.BytesIO(content))
    return out.getvalue()


def test_entries_say_where_each_image_lies(tmp_path):
    path = tmp_path / "shard.tar"
    path.write_bytes(archive())
    entries = read_archives([str(path)]).entries
    assert [(entry.name, entry.label, entry.read()) for entry in entries] == [
        ("a.png", 3, b"image" * 20),
        ("b/" + "x" * 120 + ".png", 4, b"other" * 20),
    ]


def test_damaged_archives_are_errors_or_fewer_samples(tmp_path):
    draw, whole, path, refused = random.Random(0), archive(), tmp_path / "shard.tar", 0
    for _ in range(300):
        content = bytearray(whole)
        for _ in range(draw.randrange(1, 6)):
            content[draw.randrange(len(content))] = draw.choice([0, 255, draw.randrange(256)])
        if draw.random() < 0.3:
            content = content[: draw.randrange(len(content))]
        path.write_bytes(content)
        try:
            assert len(read_archives([str(path)]).entries) <= 2
        except DataError as error:
            refused += 1
            assert "shard.tar" in str(error)
    assert refused > 50


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (archive()[: 4 * 512 + 100], "at byte 2048, behind 2 files, no further file begins"),
        (archive()[: 2 * 512] + b"\xff" * 512 + archive()[3 * 512 :], "at byte 1024, behind 1 file, no further file"),
        (archive() + archive(), r"at byte 6144, behind 4 files, is its end, and more data follow \(several archives"),
        (archive()[: 2 * 512] + bytes(512) + archive()[3 * 512 :], "at byte 1024, behind 1 file, is its end, and"),
    ],
    ids=["cut within a header", "overwritten", "two in one", "zeros"],
)
def test_what_tarfile_takes_for_the_end_is_an_error_unless_it_is_the_end(tmp_path, content, message):
    (tmp_path / "shard.tar").write_bytes(content)
    with pytest.raises(DataError, match=f"archive '.*shard.tar' is damaged: {message}"):
        read_archives([str(tmp_path / "shard.tar")])


def test_an_archive_may_lack_the_zeros_at_its_end(tmp_path):
    content = archive().rstrip(b"\0")
    (tmp_path / "shard.tar").write_bytes(content + bytes(-len(content) % 512))
    assert len(read_archives([str(tmp_path / "shard.tar")]).entries) == 2


def test_a_folder_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    (tmp_path / "cat" / "more").mkdir(parents=True)
    (tmp_path / "cat" / "1.png").write_bytes(b"image")
    scan = os.scandir

    def refuse(path):
        if str(path).endswith("more"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DataError, match=r"cat/more' cannot be read: Permission denied"):
        read_folders(str(tmp_path))
