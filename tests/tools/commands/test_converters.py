"""convert_imageset, compute_image_mean, check_lmdb and convert_leveldb, run as their users run them."""

from __future__ import annotations

import lmdb
import numpy as np
import plyvel
import pytest
from PIL import Image

from mgcaffe.engine.data.datum import decode_datum
from mgcaffe.engine.data.lmdb.source import open_lmdb
from mgcaffe.prototxt import BlobProto, Datum, blob_array


@pytest.fixture
def pictures(engine):
    """Ten images in folders with spaces in their names, and a list of them; gives the pixels."""
    draw = np.random.default_rng(0)
    folder = engine.folder / "my images"
    folder.mkdir()
    pixels, lines = [], []
    for number in range(10):
        pixels.append(draw.integers(0, 256, (8, 6, 3), dtype=np.uint8))
        Image.fromarray(pixels[-1]).save(folder / f"a {number}.png")
        lines.append(f"a {number}.png {number % 3}\n")
    engine.write("list.txt", "".join(lines))
    return pixels


def records(folder):
    """Key, image and label of each record, read by liblmdb."""
    with lmdb.open(str(folder), readonly=True, lock=False) as environment, environment.begin() as transaction:
        return [(key, *decode_datum(value)) for key, value in transaction.cursor()]


def convert(engine, *words):
    return engine.run("convert_imageset", *words)


def test_images_become_records_in_the_order_of_the_list_with_caffes_keys(engine, pictures):
    result = convert(engine, "my images/", "list.txt", "db")
    assert result.returncode == 0, result.stderr
    assert "Processed 10 files." in result.stderr
    for number, (key, image, label) in enumerate(records("db")):
        assert key == b"%08d_a %d.png" % (number, number)
        np.testing.assert_array_equal(image, pictures[number].transpose(2, 0, 1)[::-1])
        assert label == number % 3
    assert open_lmdb("db").has_sums
    assert not list(engine.folder.glob("*.tmp"))


def test_grey_resized_and_shuffled_as_flags_say(engine, pictures):
    result = convert(
        engine, "--gray=true", "-shuffle", "--resize_height=5", "--resize_width", "4", "my images/", "list.txt", "db"
    )
    assert result.returncode == 0, result.stderr
    found = records("db")
    assert {image.shape for _, image, _ in found} == {(1, 5, 4)}
    names = [key.partition(b"_")[2] for key, _, _ in found]
    assert sorted(names) == [b"a %d.png" % number for number in range(10)]
    assert names != sorted(names)
    assert [label for _, _, label in found] == [int(name[2:3]) % 3 for name in names]


def test_encoded_images_are_stored_as_they_are_or_in_the_kind_asked_for(engine, pictures):
    assert convert(engine, "--encoded", "my images/", "list.txt", "as_is").returncode == 0
    assert convert(engine, "--encode_type=jpg", "my images/", "list.txt", "jpg").returncode == 0
    first = Datum.FromString(open_lmdb("as_is").value(0))
    assert first.encoded
    assert first.data == (engine.folder / "my images" / "a 0.png").read_bytes()
    assert Datum.FromString(open_lmdb("jpg").value(0)).data.startswith(b"\xff\xd8")
    np.testing.assert_array_equal(records("as_is")[3][1], pictures[3].transpose(2, 0, 1)[::-1])


def test_images_that_cannot_be_read_are_reported_and_left_out(engine, pictures):
    (engine.folder / "my images" / "a 4.png").write_bytes(b"no image")
    (engine.folder / "my images" / "a 7.png").unlink()
    result = convert(engine, "my images/", "list.txt", "db")
    assert result.returncode == 0
    assert "list.txt:5:1: image 'my images/a 4.png' is left out: the encoded image cannot be decoded" in result.stderr
    assert "list.txt:8:1: image 'my images/a 7.png' is left out: No such file" in result.stderr
    assert "2 images could not be read and were left out" in result.stderr
    assert len(records("db")) == 8


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--backend=leveldb", "r/", "list.txt", "db"], 2, "LevelDB databases are not written here"),
        (["--resize_width=3", "r/", "list.txt", "db"], 2, "go together"),
        (["--encode_type=xyz", "r/", "list.txt", "db"], 2, "known types are"),
        (["r/", "list.txt"], 2, "takes three names, not 2"),
        (["r/", "absent.txt", "db"], 65, "'absent.txt' does not exist"),
        (["r/", "list.txt", "db"], 65, "none of the 10 images of 'list.txt' can be read"),
        (["my images/", "list.txt", "my images"], 73, "'my images' exists already"),
    ],
)
def test_mistakes_are_named(engine, pictures, words, code, message):
    result = convert(engine, *words)
    assert (result.returncode, message in result.stderr) == (code, True), result.stderr
    assert not (engine.folder / "db").exists()


def test_check_size_stops_at_the_first_image_of_another_size(engine, pictures):
    Image.new("RGB", (3, 3)).save(engine.folder / "my images" / "a 5.png")
    result = convert(engine, "--check_size", "my images/", "list.txt", "db")
    assert result.returncode == 65
    assert "list.txt:6:1: image 'my images/a 5.png' has shape 3 x 3 x 3, the first one 3 x 8 x 6" in result.stderr
    assert not (engine.folder / "db").exists()


def test_the_mean_image_is_the_mean_and_fits_a_data_layer(engine, pictures):
    convert(engine, "my images/", "list.txt", "db")
    result = engine.run("compute_image_mean", "db", "mean.binaryproto")
    assert result.returncode == 0, result.stderr
    expected = np.mean(pictures, axis=0).transpose(2, 0, 1)[::-1]
    blob = BlobProto.FromString((engine.folder / "mean.binaryproto").read_bytes())
    assert (blob.num, blob.channels, blob.height, blob.width) == (1, 3, 8, 6)
    np.testing.assert_allclose(blob_array(blob)[0], expected, rtol=1e-6)
    assert f"mean_value channel [0]: {expected[0].mean():g}" in result.stderr
    assert "Number of channels: 3" in result.stderr


def test_check_lmdb_names_every_bad_record_and_writes_sums_anew(engine, pictures):
    convert(engine, "my images/", "list.txt", "db")
    good = engine.run("check_lmdb", "db")
    assert (good.returncode, good.stdout) == (
        0, "db: 10 records, 0 bad, checked against their sums; images: 10 of 3x8x6\n",
    )  # fmt: skip
    file = engine.folder / "db" / "data.mdb"
    content = file.read_bytes()
    file.write_bytes(content.replace(pictures[6].transpose(2, 0, 1)[::-1].tobytes(), bytes(144)))
    assert file.read_bytes() != content
    bad = engine.run("check_lmdb", "db")
    assert bad.returncode == 65
    assert "record 6 (key '00000006_a 6.png') of 'db' is damaged: its sum is not" in bad.stdout
    assert "db: 10 records, 1 bad" in bad.stdout
    assert engine.run("check_lmdb", "--write_sums", "db").returncode == 0
    assert engine.run("check_lmdb", "db").returncode == 0


def test_check_lmdb_names_the_command_that_converts_a_leveldb_and_that_works(engine, pictures):
    convert(engine, "my images/", "list.txt", "db")
    source = open_lmdb("db")
    with plyvel.DB(str(engine.folder / "train_leveldb"), create_if_missing=True) as database:
        for number in range(len(source)):
            database.put(source.key(number), source.value(number))
    refused = engine.run("check_lmdb", "train_leveldb")
    assert refused.returncode == 65
    command = "engine convert_leveldb train_leveldb train_lmdb"
    assert f"{command} makes an LMDB of it" in refused.stderr
    assert engine.run("compute_image_mean", "train_leveldb", "of_leveldb").returncode == 0
    assert engine.run("compute_image_mean", "db", "of_lmdb").returncode == 0
    assert (engine.folder / "of_leveldb").read_bytes() == (engine.folder / "of_lmdb").read_bytes()
    result = engine.run(*command.split()[1:])
    assert result.returncode == 0, result.stderr
    copied = open_lmdb("train_lmdb")
    assert [(copied.key(n), copied.value(n)) for n in range(10)] == [
        (source.key(n), source.value(n)) for n in range(10)
    ]


def test_what_is_no_leveldb_is_not_converted(engine):
    result = engine.run("convert_leveldb", ".", "out")
    assert (result.returncode, "'.' is not the folder of a LevelDB" in result.stderr) == (65, True)


@pytest.mark.mpi
@pytest.mark.slow
def test_training_skips_bad_records_behind_its_flag(engine, pictures, mpi_ranks):
    convert(engine, "my images/", "list.txt", "db")
    file = engine.folder / "db" / "data.mdb"
    content = file.read_bytes()
    file.write_bytes(content.replace(pictures[6].transpose(2, 0, 1)[::-1].tobytes(), bytes(144)))
    assert file.read_bytes() != content
    data = (
        'layer { name: "data" type: "Data" top: "data" top: "label"'
        ' data_param { source: "db" batch_size: 5 backend: LMDB } }\n'
    )
    engine.write("net.prototxt", 'name: "tiny"\n' + data + engine.net[engine.net.index('layer {\n  name: "ip"') :])
    stopped = engine.run("train", "solver.prototxt", "--max_iter=4")
    assert stopped.returncode == 65
    assert "record 6 (key '00000006_a 6.png') of 'db' is damaged" in stopped.stderr
    assert "--bad_record=skip" in stopped.stderr
    skipped = engine.run("train", "solver.prototxt", "--max_iter=4", "--bad_record=skip", "--bad_record_limit=1")
    assert skipped.returncode == 0, skipped.stderr
    assert "record 6 (key '00000006_a 6.png') of 'db' is damaged" in skipped.stderr
    assert "skipped, the next good record stands in (bad record 1, limit 1)" in skipped.stderr
    both = mpi_ranks(2).run(engine.folder, "train", "solver.prototxt", "--max_iter=2", "--bad_record=skip")
    assert both.returncode == 0, both.stderr
    assert "skipped, the next good record stands in" in both.stderr
    limited = engine.run("train", "solver.prototxt", "--max_iter=4", "--bad_record=skip", "--bad_record_limit=0")
    assert (limited.returncode, "bad_record_limit is 0" in limited.stderr) == (65, True)
