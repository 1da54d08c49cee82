"""Records of the converters, byte by byte; the files of MNIST and CIFAR; features; squares."""

from __future__ import annotations

import gzip
import os
import random
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import lmdb
import numpy as np
import pytest
from PIL import Image

from mgcaffe.engine.data.lmdb.source import open_lmdb
from mgcaffe.prototxt import read_net
from mgcaffe.tools.commands.convert_mnist_siamese_data import random_pairs
from tests.support.datum_bytes import datum_bytes
from tests.support.killed_commands import KilledCommands


def records(folder):
    """Keys and values, read by liblmdb."""
    with lmdb.open(str(folder), readonly=True, lock=False) as environment, environment.begin() as transaction:
        return list(transaction.cursor())


def write_mnist(folder, count=12, rows=4, columns=3, pack=bytes):
    draw = np.random.default_rng(1)
    images = draw.integers(0, 256, (count, rows, columns), dtype=np.uint8)
    labels = draw.integers(0, 10, count, dtype=np.uint8)
    (folder / "images").write_bytes(pack(struct.pack(">4I", 2051, count, rows, columns) + images.tobytes()))
    (folder / "labels").write_bytes(pack(struct.pack(">2I", 2049, count) + labels.tobytes()))
    return images, labels


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_mnist_becomes_caffes_records(engine, pack):
    images, labels = write_mnist(engine.folder, pack=pack)
    result = engine.run("convert_mnist_data", "--backend=lmdb", "images", "labels", "db")
    assert result.returncode == 0, result.stderr
    assert "A total of 12 items." in result.stderr and "Rows: 4 Cols: 3" in result.stderr
    assert records("db") == [
        (b"%08d" % number, datum_bytes(shape=(1, 4, 3), data=images[number].tobytes(), label=int(labels[number])))
        for number in range(12)
    ]
    assert open_lmdb("db").has_sums


def test_siamese_pairs_are_those_of_caffes_generator(engine):
    images, labels = write_mnist(engine.folder)
    result = engine.run("convert_mnist_siamese_data", "--seed=5489", "images", "labels", "db")
    assert result.returncode == 0, result.stderr
    pairs = random_pairs(5489, 12)
    # The first numbers of MT19937 with its default seed, 5489.
    assert pairs[:2].ravel().tolist() == [number % 12 for number in (3499211612, 581869302, 3890346734, 3586334585)]
    assert records("db") == [
        (
            b"%08d" % number,
            datum_bytes(
                shape=(2, 4, 3), data=images[[first, second]].tobytes(), label=int(labels[first] == labels[second])
            ),
        )
        for number, (first, second) in enumerate(pairs)
    ]
    assert engine.run("convert_mnist_siamese_data", "images", "labels", "other").returncode == 0
    assert records("other") != records("db")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda images, labels: (labels, images), "no file of MNIST's images: it begins with 2049, not 2051"),
        (lambda images, labels: (images[:-1], labels), "takes 160 bytes, but it has 159"),
        (lambda images, labels: (images[:10], labels), "has 10 bytes, fewer than the head"),
        (lambda images, labels: (images, labels[:4] + struct.pack(">I", 11) + labels[8:-1]), "12 images, but"),
        (lambda images, labels: (images + b"1", labels), "which takes 160 bytes, but it has 161"),
        (lambda images, labels: (gzip.compress(images)[:-9], labels), "cannot be unpacked"),
        (lambda images, labels: (b"\x1f\x8bno gzip", labels), "cannot be unpacked"),
        (lambda images, labels: (struct.pack(">4I", 2051, 0, 4, 3), labels), "its head says 0 x 4 x 3"),
    ],
)
def test_damaged_mnist_files_are_named(engine, change, message):
    write_mnist(engine.folder)
    changed = change(*((engine.folder / name).read_bytes() for name in ("images", "labels")))
    for name, content in zip(("images", "labels"), changed, strict=True):
        (engine.folder / name).write_bytes(content)
    result = engine.run("convert_mnist_data", "images", "labels", "db")
    assert (result.returncode, message in result.stderr) == (65, True), result.stderr
    assert not list(engine.folder.glob("db*"))


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["convert_mnist_data", "images", "labels"], 2, "takes 3 words, not 2"),
        (["convert_mnist_data", "images", "absent", "db"], 65, "'absent' does not exist"),
        (["convert_mnist_data", "--backend=leveldb", "images", "labels", "db"], 2, "not written here"),
        (["convert_mnist_siamese_data", "--seed=4294967296", "images", "labels", "db"], 2, "4294967295 is the most"),
        (["convert_cifar_data", "in", "out", "leveldb"], 2, "not written here"),
        (["convert_cifar_data", "in", "out", "rocksdb"], 2, "'rocksdb' is no kind of database"),
        (["convert_cifar_data", "in", "out", "lmdb"], 65, "'in/data_batch_1.bin' does not exist"),
        (["extract_features", "w", "net.prototxt", "ip"], 2, "takes 6 to 8 words, not 3"),
        (
            ["extract_features", "w", "net.prototxt", "ip,loss", "a", "1", "lmdb"],
            2,
            "2 blobs (ip,loss) and 1 databases",
        ),
        (["extract_features", "w", "net.prototxt", "ip", "a", "0", "lmdb"], 2, "NUM_MINI_BATCHES is '0'"),
        (["extract_features", "w", "net.prototxt", "ip", "a", "1", "lmdb", "TPU"], 2, "'TPU' is no device"),
        (["extract_features", "w", "net.prototxt", "fc9", "a", "1", "lmdb"], 65, "Unknown feature blob name fc9"),
        (["resize_and_crop_images", "--input_folder=x"], 2, "--output_folder is missing"),
        (["resize_and_crop_images", "--input_folder=.", "--output_folder=."], 2, "are the same"),
        (["resize_and_crop_images", "--input_folder=x", "--output_folder=y"], 65, "'x' is no folder"),
        (["resize_and_crop_images", "--input_folder=.", "--output_folder=y", "--image_lib=x"], 2, "known are opencv"),
        (["resize_and_crop_images", "--input_folder=.", "--output_folder=y"], 65, "'.' holds no images"),
    ],
)
def test_mistakes_are_named(engine, words, code, message):
    write_mnist(engine.folder)
    result = engine.run(*words)
    assert (result.returncode, message in result.stderr) == (code, True), result.stderr
    assert "Traceback" not in result.stderr
    assert not list(engine.folder.glob("*.partial"))


def write_cifar(folder, count=3):
    folder.mkdir()
    draw = np.random.default_rng(2)
    contents = {}
    for name in [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]:
        pixels = draw.integers(0, 256, (count, 3072), dtype=np.uint8)
        labels = draw.integers(0, 10, count, dtype=np.uint8)
        contents[name] = (pixels, labels)
        (folder / name).write_bytes(np.column_stack([labels, pixels]).tobytes())
    return contents


def test_cifar_becomes_caffes_two_databases(engine):
    contents = write_cifar(engine.folder / "cifar")
    (engine.folder / "out").mkdir()
    result = engine.run("convert_cifar_data", "cifar", "out", "lmdb")
    assert result.returncode == 0, result.stderr
    assert "data_batch_1.bin: 3 records, where CIFAR-10's files have 10000" in result.stderr

    def expected(name, first):
        pixels, labels = contents[name]
        return [
            (b"%05d" % (first + item), datum_bytes(shape=(3, 32, 32), data=pixel.tobytes(), label=int(label)))
            for item, (pixel, label) in enumerate(zip(pixels, labels, strict=True))
        ]

    train = [record for number in range(5) for record in expected(f"data_batch_{number + 1}.bin", 10000 * number)]
    assert records("out/cifar10_train_lmdb") == train
    assert records("out/cifar10_test_lmdb") == expected("test_batch.bin", 0)
    again = engine.run("convert_cifar_data", "cifar", "out", "lmdb")
    assert (again.returncode, "'out/cifar10_train_lmdb' exists already" in again.stderr) == (73, True)


def test_a_cifar_file_of_another_size_is_refused_before_anything_is_written(engine):
    write_cifar(engine.folder / "cifar")
    with (engine.folder / "cifar" / "test_batch.bin").open("ab") as file:
        file.write(b"x")
    result = engine.run("convert_cifar_data", "cifar", ".", "lmdb")
    assert result.returncode == 65
    assert "cifar/test_batch.bin: it has 9220 bytes; 10000 records of 3073 bytes are 30730000" in result.stderr
    assert not list(engine.folder.glob("cifar10*"))


CONV_NET = """
layer { name: "data" type: "Data" top: "data" top: "label" data_param { source: "images" batch_size: 4 backend: LMDB } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 2 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
"""


def test_features_become_caffes_records(engine):
    from mgcaffe import Net

    draw = np.random.default_rng(3)
    (engine.folder / "classes").mkdir()
    (engine.folder / "classes" / "a").mkdir()
    for number in range(8):
        Image.fromarray(draw.integers(0, 256, (6, 5, 3), dtype=np.uint8)).save(f"classes/a/{number}.png")
    assert engine.run("convert_imageset", "--source=folders", "classes", "images").returncode == 0
    engine.write("features.prototxt", CONV_NET)
    net = Net(read_net("features.prototxt"), phase=1)
    (engine.folder / "net.caffemodel").write_bytes(net.to_proto().SerializeToString())
    words = ("net.caffemodel", "features.prototxt", "conv,ip", "conv_lmdb,ip_lmdb", "2", "lmdb", "CPU")
    result = engine.run("extract_features", *words)
    assert result.returncode == 0, result.stderr
    assert "Extracted features of 8 query images for feature blob conv" in result.stderr
    expected = {"conv": [], "ip": []}
    for batch in range(2):
        net.forward()
        for name, found in expected.items():
            for row, values in enumerate(net.blobs[name].data.numpy()):
                shape = (*values.shape, 1, 1)[:3]
                found.append((b"%010d" % (4 * batch + row), datum_bytes(shape=shape, floats=values.ravel().tolist())))
    assert records("conv_lmdb") == expected["conv"]
    assert records("ip_lmdb") == expected["ip"]
    net.close()
    assert "no weights in" not in result.stderr
    engine.write("renamed.prototxt", CONV_NET.replace('"conv" type', '"conv_new" type'))
    renamed = engine.run("extract_features", "net.caffemodel", "renamed.prototxt", "ip", "renamed_lmdb", "1", "lmdb")
    assert "no weights in net.caffemodel for 1 layer(s): conv_new; they compute with" in renamed.stderr

    again = engine.run("extract_features", *words)
    assert (again.returncode, "'conv_lmdb' exists already" in again.stderr) == (73, True)


def test_features_of_zeros_are_warned_about(engine):
    text = 'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }'
    engine.write("deploy.prototxt", text)
    engine.write("empty.caffemodel", 'name: "empty"')
    result = engine.run("extract_features", "empty.caffemodel", "deploy.prototxt", "x", "x_lmdb", "1", "lmdb")
    assert "nothing fills the input(s) x: they hold zeros; give a net that reads data" in result.stderr
    assert result.returncode == 0


def test_the_mean_image_is_caffes_blob(engine):
    images, _ = write_mnist(engine.folder)
    engine.run("convert_mnist_data", "images", "labels", "db")
    result = engine.run("compute_image_mean", "db", "mean.binaryproto")
    assert result.returncode == 0 and "Processed 12 files." in result.stderr
    # Caffe adds in float32 and divides by the count.
    mean = images.astype(np.float32).sum(axis=0, dtype=np.float32) / np.float32(12)
    values = struct.pack("<12f", *mean.ravel().tolist())
    head = b"\x08\x01\x10\x01\x18\x04\x20\x03\x2a"  # num, channels, height, width, and data, packed
    assert (engine.folder / "mean.binaryproto").read_bytes() == head + bytes([len(values)]) + values


@pytest.mark.slow
def test_the_other_converters_leave_nothing_under_a_name_of_their_own_either(engine):
    write_mnist(engine.folder, count=8000)
    write_cifar(engine.folder / "cifar", count=1000)
    draw = random.Random(3)
    lines = ("convert_mnist_data images labels db", "convert_mnist_siamese_data images labels db")
    with KilledCommands(engine.folder) as commands:
        for line in (*lines, "convert_cifar_data cifar . lmdb"):
            words = line.split()
            targets = {"cifar10_train_lmdb": 5000, "cifar10_test_lmdb": 1000} if "cifar" in words else {"db": 8000}
            code, length = commands.run(*words)
            assert code == 0
            for share in (draw.uniform(0, 0.5), draw.uniform(0.5, 1)):
                for target in targets:
                    shutil.rmtree(target)
                commands.run(*words, kill_after_s=length * share)
                for target, count in targets.items():
                    if Path(target).exists():
                        assert open_lmdb(target).has_sums and len(records(target)) == count
                        shutil.rmtree(target)
                result = engine.run(*words)
                assert result.returncode == 0, result.stderr
                assert not list(engine.folder.glob("*.partial"))
            for target in targets:
                shutil.rmtree(target)


@pytest.fixture
def originals(engine):
    """Images, wide and tall, some in a folder of their own."""
    draw = np.random.default_rng(4)
    pixels = {"wide.png": (20, 31), "more/tall.png": (33, 20), "more/photo.jpg": (24, 24)}
    for name, size in pixels.items():
        path = engine.folder / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels[name] = draw.integers(0, 256, (*size, 3), dtype=np.uint8)
        Image.fromarray(pixels[name]).save(path)
    return pixels


def test_squares_are_those_of_opencv(engine, originals):
    cv2 = pytest.importorskip("cv2")
    result = engine.run(
        "resize_and_crop_images", "-input_folder", "in", "-output_folder", "out", "-output_side_length", "16"
    )
    assert result.returncode == 0, result.stderr
    wide = cv2.resize(originals["wide.png"], (16 * 31 // 20, 16))[:, 4:20]
    np.testing.assert_array_equal(np.asarray(Image.open("out/wide.png")), wide)
    tall = cv2.resize(originals["more/tall.png"], (16, 16 * 33 // 20))[5:21]
    np.testing.assert_array_equal(np.asarray(Image.open("out/more/tall.png")), tall)
    photo = cv2.resize(cv2.imread("in/more/photo.jpg"), (16, 16))
    assert (engine.folder / "out/more/photo.jpg").read_bytes() == cv2.imencode(".jpg", photo)[1].tobytes()


def test_squares_of_pillow_are_jpeg_files_and_never_enlarged(engine, originals):
    words = ("--image_lib=PIL", "--input_folder=in", "--output_folder=out")
    assert engine.run("resize_and_crop_images", "--output_side_length=8", *words).returncode == 0
    with Image.open("out/wide.png") as image:
        assert (image.format, image.size) == ("JPEG", (8, 8))
    before = (engine.folder / "out/wide.png").stat().st_mtime_ns
    assert engine.run("resize_and_crop_images", "--output_side_length=64", "--resume", *words).returncode == 0
    assert (engine.folder / "out/wide.png").stat().st_mtime_ns == before
    assert engine.run("resize_and_crop_images", "--output_side_length=64", *words).returncode == 0
    with Image.open("out/wide.png") as image:
        assert image.size == (20, 20)


def test_what_a_killed_run_left_of_these_images_is_removed(engine, originals):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (engine.folder / "out/more").mkdir(parents=True)
    stale = [f"wide.png.{ended.pid}.tmp", f"more/tall.png.{ended.pid}.tmp"]
    kept = [f"wide.png.{os.getppid()}.tmp", "..1.tmp", f"other.png.{ended.pid}.tmp", f"more/photo.jpg.{ended.pid}.tmp"]
    for name in (*stale, *kept):
        (engine.folder / "out" / name).write_bytes(b"half an image")
    for name in (*stale, *kept[:3]):
        os.utime(engine.folder / "out" / name, (0, 0))  # the last one was written to just now
    assert engine.run("resize_and_crop_images", "--input_folder=in", "--output_folder=out").returncode == 0
    left = {path.relative_to(engine.folder / "out").as_posix() for path in (engine.folder / "out").rglob("*.tmp")}
    assert left == set(kept)


def test_squares_of_pillow_have_no_palette_and_no_transparency(engine, originals):
    pixels = Image.fromarray(originals["wide.png"])
    for mode in ("P", "LA", "RGBA"):
        pixels.convert(mode).save(f"in/{mode}.png")
    words = ("--image_lib=PIL", "--input_folder=in", "--output_folder=out", "--output_side_length=8")
    assert "left out" not in engine.run("resize_and_crop_images", *words).stderr
    for mode, left in {"P": "RGB", "LA": "L", "RGBA": "RGB"}.items():
        with Image.open(f"out/{mode}.png") as image:
            assert (image.format, image.mode) == ("JPEG", left)


def test_squares_of_a_list_leave_out_what_cannot_be_read(engine, originals):
    engine.write("list.txt", "more/tall.png 3\nin/wide.png\nabsent.png\n")
    (engine.folder / "in" / "bad.png").write_bytes(b"no image")
    words = ("--input_folder=in", "--output_folder=out", "--output_side_length=8")
    result = engine.run("resize_and_crop_images", "--input=list.txt", *words)
    assert result.returncode == 0, result.stderr
    assert "'in/absent.png' is left out: No such file" in result.stderr
    assert sorted(path.name for path in (engine.folder / "out").rglob("*.png")) == ["tall.png", "wide.png"]
    engine.write("list.txt", "../list.txt\n")
    outside = engine.run("resize_and_crop_images", "--input=list.txt", *words)
    assert (outside.returncode, "list.txt:1:1: '../list.txt' lies outside" in outside.stderr) == (65, True)
    for library in ("opencv", "PIL"):
        result = engine.run("resize_and_crop_images", f"--image_lib={library}", *words)
        assert "'in/bad.png' is left out" in result.stderr


def test_what_the_mnist_tools_say_of_random_damage_is_one_message(engine):
    write_mnist(engine.folder)
    whole = (engine.folder / "images").read_bytes()
    draw = random.Random(0)
    for _ in range(30):
        content = bytearray(whole)
        for _ in range(draw.randrange(1, 4)):
            content[draw.randrange(16)] = draw.randrange(256)
        (engine.folder / "images").write_bytes(bytes(content[: draw.randrange(len(content) + 1)]))
        result = engine.run("convert_mnist_data", "images", "labels", "db")
        assert result.returncode == 65, result.stderr
        assert result.stderr.count("error: ") == 1 and "Traceback" not in result.stderr
