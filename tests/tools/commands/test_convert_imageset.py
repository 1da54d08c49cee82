"""convert_imageset: its records byte by byte, its sources, and what is left of runs that are killed."""

from __future__ import annotations

import io
import os
import random
import shutil
import signal
import sys
import tarfile

import lmdb
import numpy as np
import pytest
from PIL import Image

from mgcaffe.engine.data.datum import decode_datum
from mgcaffe.engine.data.lmdb.source import LmdbSource, open_lmdb
from mgcaffe.engine.data.lmdb.writer import LmdbWriter
from mgcaffe.errors import DataError
from tests.support.datum_bytes import datum_bytes
from tests.support.jobs import RunningJob
from tests.support.killed_commands import KilledCommands


def records(folder):
    """Keys and values, read by liblmdb."""
    with lmdb.open(str(folder), readonly=True, lock=False) as environment, environment.begin() as transaction:
        return list(transaction.cursor())


@pytest.fixture
def pictures(engine):
    """Eight images of two classes in a tree of folders, and a list of them; gives their pixels by path."""
    draw = np.random.default_rng(0)
    pixels = {}
    for number in range(8):
        path = f"{('dog', 'cat')[number % 2]}/{number}.{'png' if number < 6 else 'jpg'}"
        pixels[path] = draw.integers(0, 256, (7, 5, 3), dtype=np.uint8)
        (engine.folder / "tree" / path).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels[path]).save(engine.folder / "tree" / path)
    engine.write("list.txt", "".join(f"{path} {number - 3}\n" for number, path in enumerate(pixels)))
    return pixels


def planes(pixels):
    return pixels.transpose(2, 0, 1)[::-1].tobytes()


def test_records_of_pixels_are_caffes_byte_for_byte(engine, pictures):
    result = engine.run("convert_imageset", "tree/", "list.txt", "db")
    assert result.returncode == 0, result.stderr
    found = records("db")
    for number, (path, pixels) in enumerate(pictures.items()):
        if path.endswith("png"):
            value = datum_bytes(shape=(3, 7, 5), data=planes(pixels), label=number - 3, encoded=False)
            assert found[number] == (f"{number:08d}_{path}".encode(), value)
    assert len(found) == 8


def test_decoded_resized_and_encoded_images_are_those_of_opencv(engine, pictures):
    cv2 = pytest.importorskip("cv2")
    names = list(pictures)
    size = ("--resize_height=9", "--resize_width=4")
    for flags, made in {
        (): lambda image: image,
        size: lambda image: cv2.resize(image, (4, 9)),
    }.items():
        assert engine.run("convert_imageset", *flags, "tree/", "list.txt", f"db{len(flags)}").returncode == 0
        for number, (_, value) in enumerate(records(f"db{len(flags)}")):
            image = made(cv2.imread(f"tree/{names[number]}"))
            data = image.transpose(2, 0, 1).tobytes()
            expected = datum_bytes(shape=(3, *image.shape[:2]), data=data, label=number - 3, encoded=False)
            assert value == expected
    assert engine.run("convert_imageset", "--encode_type=jpg", "tree/", "list.txt", "jpg").returncode == 0
    for number, (_, value) in enumerate(records("jpg")[:6]):  # the others are JPEG files already
        data = cv2.imencode(".jpg", cv2.imread(f"tree/{names[number]}"))[1].tobytes()
        assert value == datum_bytes(data=data, label=number - 3, encoded=True)
    assert engine.run("convert_imageset", "--gray", "tree/", "list.txt", "gray").returncode == 0
    image = cv2.imread(f"tree/{names[7]}", cv2.IMREAD_GRAYSCALE)
    expected = datum_bytes(shape=(1, 7, 5), data=image.tobytes(), label=4, encoded=False)
    assert records("gray")[7] == (b"00000007_" + names[7].encode(), expected)


def test_encoded_records_hold_the_files_and_other_numbers_of_channels_are_told(engine, pictures):
    Image.fromarray(pictures["dog/0.png"]).convert("L").save(engine.folder / "tree" / "dog" / "0.png")
    result = engine.run("convert_imageset", "--encoded", "tree/", "list.txt", "db")
    assert result.returncode == 0, result.stderr
    assert records("db") == [
        (
            f"{number:08d}_{path}".encode(),
            datum_bytes(data=(engine.folder / "tree" / path).read_bytes(), label=number - 3, encoded=True),
        )
        for number, path in enumerate(pictures)
    ]
    assert "1 images are stored as the files that they are, which do not have three channels: set" in result.stderr
    assert "transform_param { force_color: true }" in result.stderr


def test_files_of_the_kind_that_is_asked_for_are_stored_as_they_are_unless_resized(engine, pictures):
    """Caffe's matchExt: in any case, and a file that ends in .jpeg is a jpg, though none in .jpg a jpeg."""
    jpeg = (engine.folder / "tree" / "dog" / "6.jpg").read_bytes()
    for name in ("a.JPG", "b.jpeg"):
        (engine.folder / "tree" / name).write_bytes(jpeg)
    engine.write("jpegs.txt", "a.JPG 1\nb.jpeg 2\ndog/0.png 3\n")
    for flags, kept in {
        ("--encode_type=jpg",): [True, True, False],
        ("--encode_type=JPEG",): [False, True, False],
        ("--encode_type=png",): [False, False, True],
        ("--encode_type=jpg", "--resize_height=7", "--resize_width=5"): [False] * 3,
    }.items():
        shutil.rmtree("db", ignore_errors=True)
        result = engine.run("convert_imageset", *flags, "tree/", "jpegs.txt", "db")
        assert result.returncode == 0, result.stderr
        stored = [
            value == datum_bytes(data=(engine.folder / "tree" / name).read_bytes(), label=label, encoded=True)
            for label, (name, (_, value)) in enumerate(
                zip(("a.JPG", "b.jpeg", "dog/0.png"), records("db"), strict=True), 1
            )
        ]
        assert stored == kept, flags


def test_labels_are_read_as_caffe_reads_them_and_the_first_odd_line_is_named(engine, pictures):
    lines = ("dog/0.png 4", "dog/2.png 3x", "cat/1.png", "cat/3.png -1_0")
    engine.write("odd.txt", "".join(f"{line}\n" for line in lines))
    result = engine.run("convert_imageset", "tree/", "odd.txt", "db")
    assert result.returncode == 0, result.stderr
    assert [(key, decode_datum(value)[1]) for key, value in records("db")] == [
        (b"00000000_dog/0.png", 4),
        (b"00000001_dog/2.png", 3),
        (b"00000002_cat/1.png", 0),
        (b"00000003_cat/3.png", -1),
    ]
    warnings = [line for line in result.stderr.splitlines() if line.startswith("W")]
    assert len(warnings) == 1
    assert "odd.txt:2:1: a line is a path, a space and a label, a whole number, but 'dog/2.png' has '3x'" in warnings[0]
    assert warnings[0].endswith("as in Caffe its label is 3; 2 more lines do not end in a label")


def test_names_in_lists_need_not_be_utf8(engine, pictures):
    name = b"\xe9t\xe9.png"
    shutil.copy("tree/dog/0.png", engine.folder / "tree" / os.fsdecode(name))
    (engine.folder / "bytes.txt").write_bytes(name + b" 1\nabsent\xe9.png 2\n")
    result = engine.run("convert_imageset", "tree/", "bytes.txt", "db")
    assert result.returncode == 0, result.stderr
    assert [key for key, _ in records("db")] == [b"00000000_" + name]
    assert r"image 'tree/absent\udce9.png' is left out: No such file" in result.stderr


def test_encoded_records_hold_files_of_any_kind_that_can_be_decoded(engine, pictures):
    Image.fromarray(pictures["dog/0.png"]).save("tree/0.webp")
    (engine.folder / "tree" / "without_ending").write_bytes((engine.folder / "tree" / "dog" / "0.png").read_bytes())
    engine.write("others.txt", "0.webp 1\nwithout_ending 2\n")
    result = engine.run("convert_imageset", "--encoded", "--nogray", "-noshuffle", "tree/", "others.txt", "db")
    assert result.returncode == 0, result.stderr
    assert [value for _, value in records("db")] == [
        datum_bytes(data=(engine.folder / "tree" / name).read_bytes(), label=label, encoded=True)
        for label, name in enumerate(("0.webp", "without_ending"), 1)
    ]


def test_a_tree_of_folders_labels_its_classes_in_the_order_of_their_names(engine, pictures):
    (engine.folder / "tree" / "dog" / "notes.txt").write_text("none")
    (engine.folder / "tree" / "ant").mkdir()
    for hidden in ("tree/dog/._0.png", "tree/dog/.checkpoints/0.png", "tree/.cache/0.png"):
        (engine.folder / hidden).parent.mkdir(exist_ok=True)
        (engine.folder / hidden).write_bytes(b"hidden")
    (engine.folder / "tree" / "dog" / "more").mkdir()
    (engine.folder / "tree" / "dog" / "2.png").rename(engine.folder / "tree" / "dog" / "more" / "2.PNG")
    result = engine.run("convert_imageset", "--source=folders", "tree", "db")
    assert result.returncode == 0, result.stderr
    assert "passed over: tree/dog/notes.txt" in result.stderr and "classes without an image: ant" in result.stderr
    names = [
        "cat/1.png",
        "cat/3.png",
        "cat/5.png",
        "cat/7.jpg",
        "dog/0.png",
        "dog/4.png",
        "dog/6.jpg",
        "dog/more/2.PNG",
    ]
    found = records("db")
    assert [key for key, _ in found] == [f"{number:08d}_{name}".encode() for number, name in enumerate(names)]
    assert [decode_datum(value)[1] for _, value in found] == [1] * 4 + [2] * 4
    assert found[0][1] == datum_bytes(shape=(3, 7, 5), data=planes(pictures["cat/1.png"]), label=1, encoded=False)
    assert (engine.folder / "db" / "classes.txt").read_text() == "ant\ncat\ndog\n"
    assert open_lmdb("db").has_sums


def test_names_that_are_no_text_and_names_that_are_too_long(engine, pictures):
    name = os.fsdecode(b"\xe9t\xe9.png")
    (engine.folder / "tree" / "cat" / "1.png").rename(engine.folder / "tree" / "cat" / name)
    result = engine.run("convert_imageset", "--source=folders", "tree", "db")
    assert result.returncode == 0, result.stderr
    assert b"00000003_cat/\xe9t\xe9.png" in [key for key, _ in records("db")]
    folders = "/".join(["a" * 120] * 5)
    (engine.folder / "tree" / folders).mkdir(parents=True)
    (engine.folder / "tree" / "cat" / "3.png").rename(engine.folder / "tree" / folders / "3.png")
    result = engine.run("convert_imageset", "--source=folders", "tree", "long")
    assert (result.returncode, "has 619 bytes; LMDB takes 1 to 511" in result.stderr) == (65, True), result.stderr


def write_tar(path, members):
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def test_archives_become_the_same_records_as_their_files(engine, pictures):
    shards = [{}, {}]
    for number, path in enumerate(pictures):
        stem, _, ending = path.partition(".")
        members = shards[number % 2]
        members[f"./{stem}.{ending}"] = (engine.folder / "tree" / path).read_bytes()
        if number < 4:
            members[f"./{stem}.cls"] = b"%d\n" % (number - 3)
        else:
            members[f"./{stem}.json"] = b'{"text": "x", "label": %d}' % (number - 3)
    for number, members in enumerate(shards):
        write_tar(engine.folder / f"{number}.tar", members)
    result = engine.run("convert_imageset", "--source=tar", "--encoded", "0.tar", "1.tar", "db")
    assert result.returncode == 0, result.stderr
    order = [*list(pictures)[::2], *list(pictures)[1::2]]
    labels = {path: number - 3 for number, path in enumerate(pictures)}
    assert records("db") == [
        (
            f"{number:08d}_{path}".encode(),
            datum_bytes(data=(engine.folder / "tree" / path).read_bytes(), label=labels[path], encoded=True),
        )
        for number, path in enumerate(order)
    ]
    shuffled = engine.run("convert_imageset", "--source=tar", "--shuffle", "0.tar", "1.tar", "shuffled")
    assert shuffled.returncode == 0, shuffled.stderr
    keys = [key.decode().partition("_")[2] for key, _ in records("shuffled")]
    assert sorted(keys) == sorted(pictures) and keys != order


def test_a_slash_is_advised_only_behind_a_folder(engine):
    engine.write("list.txt", "absent.png 1\n")
    result = engine.run("convert_imageset", "", "list.txt", "db")
    assert result.returncode == 65 and "none of the 1 images" in result.stderr
    assert "stands in front" not in result.stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["tree", "list.txt", "db"], 65, "can be read\n  'tree' stands in front of each path as it is; say 'tree/'"),
        (["tree/", "tab.txt", "db"], 65, "'dog/0.png\\t1' has no space in front of a label; as in Caffe its"),
        (["--resize_height=65536", "--resize_width=65536", "tree/", "list.txt", "db"], 2, "have more than the"),
        (["--source=folders", "tree", "list.txt", "db"], 2, "--source=folders takes two names, not 3"),
        (["--source=folders", "absent", "db"], 65, "'absent' is no folder"),
        (["--source=folders", "tree/dog", "db"], 65, "'tree/dog' holds no folders"),
        (["--source=folders", "empty", "db"], 65, "the folders of 'empty' hold no images"),
        (["--source=tar", "db"], 2, "takes two names or more, not 1"),
        (["--source=tar", "absent.tar", "db"], 65, "archive 'absent.tar' does not exist"),
        (["--source=tar", "list.txt", "db"], 65, "'list.txt' cannot be read as a tar archive"),
        (["--source=tar", "two.tar", "db"], 65, "two.tar: sample 'a' has 2 images, not 1"),
        (["--source=tar", "none.tar", "db"], 65, "none.tar: sample 'a' has no label"),
        (["--source=tar", "word.tar", "db"], 65, "word.tar(a.cls): 'seven' is no label, a whole number"),
        (["--source=tar", "json.tar", "db"], 65, "json.tar(a.json):1:11: no label: label should be a whole number"),
        (
            ["--source=list", "tree/", "large.txt", "db"],
            65,
            "large.txt:1:1: label 2147483648 does not fit into 32 bits",
        ),
    ],
)
def test_mistakes_in_sources_are_named(engine, pictures, words, code, message):
    picture = (engine.folder / "tree" / "dog" / "0.png").read_bytes()
    (engine.folder / "empty" / "class").mkdir(parents=True)
    write_tar("two.tar", {"a.png": picture, "a.left.png": picture, "a.cls": b"1"})
    write_tar("none.tar", {"a.png": picture, "a.txt": b"1"})
    write_tar("word.tar", {"a.png": picture, "a.cls": b"seven"})
    write_tar("json.tar", {"a.png": picture, "a.json": b'{"label": "x"}'})
    engine.write("tab.txt", "dog/0.png\t1\n")
    engine.write("large.txt", "dog/0.png 2147483648\n")
    result = engine.run("convert_imageset", *words)
    assert (result.returncode, message in result.stderr) == (code, True), result.stderr
    assert not list(engine.folder.glob("db*"))


@pytest.fixture
def many(engine):
    """A list of 3,000 lines, and the database of it."""
    draw = np.random.default_rng(5)
    (engine.folder / "many").mkdir()
    for number in range(50):
        side = 24 if number % 2 else 32  # values among the keys, and values with pages of their own
        Image.fromarray(draw.integers(0, 256, (side, side, 3), dtype=np.uint8)).save(f"many/{number}.jpg")
    engine.write("many.txt", "".join(f"{number % 50}.jpg {number}\n" for number in range(3000)))
    assert engine.run("convert_imageset", "many/", "many.txt", "whole").returncode == 0
    return engine


COMMAND = [sys.executable, "-m", "mgcaffe.tools.main", "convert_imageset", "--threads=1"]


def has_records(folder):
    try:
        return len(LmdbSource(str(folder), without_sums=True)) > 0
    except DataError:
        return False


def interrupt(folder, how):
    """Return how a run ended that got a signal once it had records; one that was faster than that is repeated."""
    for _ in range(20):
        with RunningJob([*COMMAND, "many/", "many.txt", "db"], cwd=folder) as job:
            job.await_(lambda: has_records(folder / "db.partial"), 60)
            job.process.send_signal(how)
            result = job.end(60)
        if result.returncode != 0:
            break
        shutil.rmtree(folder / "db")
    return result


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_is_resumed_where_it_stopped(many, how):
    result = interrupt(many.folder, how)
    assert result.returncode != 0 and not (many.folder / "db").exists(), result.describe()
    assert ("the same command with --resume goes on from here" in result.stderr) == (how != signal.SIGKILL)
    refused = many.run("convert_imageset", "many/", "many.txt", "db")
    assert refused.returncode == 73
    assert "of a run that was interrupted" in refused.stderr and "go on from them with --resume" in refused.stderr
    other = many.run("convert_imageset", "--resume", "--gray", "many/", "many.txt", "db")
    assert (other.returncode, "with another list, other files or other flags" in other.stderr) == (73, True)
    resumed = many.run("convert_imageset", "--resume", "many/", "many.txt", "db")
    assert resumed.returncode == 0, resumed.stderr
    assert "Going on after" in resumed.stderr and "Processed 3000 files." in resumed.stderr
    assert records("db") == records("whole")
    assert many.run("check_lmdb", "db").returncode == 0
    assert {path.name for path in many.folder.glob("db*")} == {"db"}
    assert {path.name for path in (many.folder / "db").iterdir()} == {"data.mdb", "sums.crc32"}


@pytest.mark.slow
def test_a_run_that_is_killed_at_any_moment_leaves_a_complete_database_or_none(many):
    draw = random.Random(1)
    many.write("few.txt", "".join((many.folder / "many.txt").read_text().splitlines(keepends=True)[:1200]))
    command = ("convert_imageset", "--threads=1", "many/", "few.txt")
    outcomes = []
    with KilledCommands(many.folder) as commands:
        commands.run(*command, "first")
        code, length = commands.run(*command, "db")
        assert code == 0
        whole = records("db")
        for number in range(10):
            folder = many.folder / f"db{number}"
            commands.run(*command, folder.name, kill_after_s=length * draw.uniform(0, 1.1))
            outcomes.append(folder.exists())
            if not folder.exists():
                again = many.run("convert_imageset", "--resume", "many/", "few.txt", folder.name)
                assert again.returncode == 0, again.stderr
            assert records(folder) == whole
            assert open_lmdb(str(folder)).has_sums
    assert outcomes.count(False) >= 3


@pytest.mark.slow
def test_two_runs_do_not_write_one_database(many):
    with LmdbWriter(many.folder / "db") as writer:
        writer.put(b"key", b"value")
        result = many.run("convert_imageset", "many/", "many.txt", "db")
    assert (result.returncode, "another process is writing the database 'db'" in result.stderr) == (73, True)
    assert records("db") == [(b"key", b"value")]


def test_a_damaged_leftover_is_told_and_not_used(engine, pictures):
    partial = engine.folder / "db.partial"
    partial.mkdir()
    (partial / "data.mdb").write_bytes(bytes(10000))
    (partial / "work.txt").write_text("x")
    result = engine.run("convert_imageset", "--resume", "tree/", "list.txt", "db")
    assert result.returncode == 0, result.stderr
    assert "what an earlier run left is of no use" in result.stderr
    assert len(records("db")) == 8 and not partial.exists()
