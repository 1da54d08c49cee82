"""Archives with damage: samples or one error, never anything else."""

from __future__ import annotations

import io
import random
import tarfile

from mgcaffe.errors import DataError
from mgcaffe.tools.datasets.image_sources import read_archives


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
