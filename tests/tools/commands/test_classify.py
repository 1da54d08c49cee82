"""`engine classify` as its users run it."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import mgcaffe.pycaffe as caffe
from mgcaffe.prototxt import BlobProto, fill_blob
from tests.support.surgerykit import SMALL, full, save_weights

# Without the Softmax, whose values are next to 0 and 1 here.
NET = SMALL[: SMALL.index('layer { name: "prob"')].replace("dim: 2 dim: 3", "dim: 1 dim: 3")


@pytest.fixture
def photos(engine):
    """Two images, a net with weights, labels and a mean."""
    draw = np.random.default_rng(0)
    for name in ("a.png", "b.png"):
        Image.fromarray(draw.integers(0, 256, (12, 9, 3), dtype=np.uint8)).save(engine.folder / name)
    engine.write("net.prototxt", NET)
    save_weights(full(NET), engine.folder / "w")
    engine.write("labels.txt", "".join(f"n{number} thing {number}\n" for number in range(5)))
    blob = BlobProto()
    fill_blob(blob, draw.random((1, 3, 12, 9)).astype(np.float32) * 200)
    (engine.folder / "mean.binaryproto").write_bytes(blob.SerializeToString())
    return engine


def expected(name, **options):
    """The scores that pycaffe's Classifier gives."""
    oversample = options.pop("oversample", False)
    net = caffe.Classifier("net.prototxt", "w", **{"raw_scale": 255, "channel_swap": (2, 1, 0), **options})
    return net.predict([caffe.io.load_image(name)], oversample=oversample)[0]


def test_a_table_for_each_image_and_json(photos):
    result = photos.run("classify", "net.prototxt", "w", "a.png", "b.png", "--labels=labels.txt", "--top=2",
                        "--raw_scale=1", "--json=p.json")  # fmt: skip
    assert result.returncode == 0, result.stderr
    scores = expected("b.png", raw_scale=1)
    best = np.argsort(-scores)[:2].tolist()
    lines = result.stdout.splitlines()
    place = lines.index("b.png")
    assert lines[place + 1].split() == ["score", "class", "label"]
    assert lines[place + 3].split() == [f"{scores[best[0]]:.4f}", str(best[0]), f"n{best[0]}", "thing", str(best[0])]
    found = json.loads(Path("p.json").read_text())
    assert found["output"] == "ip" and [row["file"] for row in found["images"]] == ["a.png", "b.png"]
    rows = found["images"][1]["predictions"]
    assert [row["class"] for row in rows] == best and rows[0]["label"] == f"n{best[0]} thing {best[0]}"
    assert [row["score"] for row in rows] == pytest.approx(scores[best].tolist(), rel=1e-4)


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["--mean_value=1,20,30"], {"mean": np.float32([1, 20, 30])}),
        (["--mean_value=7", "--channel_swap=0,1,2"], {"mean": np.float32([7, 7, 7]), "channel_swap": (0, 1, 2)}),
        (["--mean_file=mean.binaryproto", "--input_scale=0.01"], {"mean": "image", "input_scale": 0.01}),
        (["--mean_file=mean.binaryproto", "--channel_mean"], {"mean": "channels"}),
        (["--images_dim=8,8", "--oversample", "--raw_scale=1"],
         {"image_dims": (8, 8), "oversample": True, "raw_scale": 1}),
    ],
)  # fmt: skip
def test_flags_are_those_of_classify_py(photos, words, options):
    if isinstance(options.get("mean"), str):
        blob = caffe.io.caffe_pb2.BlobProto.FromString(Path("mean.binaryproto").read_bytes())
        mean = caffe.io.blobproto_to_array(blob)[0]
        options["mean"] = mean if options["mean"] == "image" else mean.mean(axis=(1, 2))
    result = photos.run("classify", "net.prototxt", "w", "a.png", "--top=9", "--json=p.json", *words)
    assert result.returncode == 0, result.stderr
    rows = json.loads(Path("p.json").read_text())["images"][0]["predictions"]
    scores = {row["class"]: row["score"] for row in rows}
    assert [scores[number] for number in range(5)] == pytest.approx(expected("a.png", **options).tolist(), rel=1e-4)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["net.prototxt", "w"], 2, "classify takes a net, its weights and images, not 2 file(s)"),
        (["net.prototxt", "w", "a.png", "--oversample"], 2, "--images_dim 256,256"),
        (["net.prototxt", "w", "a.png", "--channel_mean"], 2, "--channel_mean goes with --mean_file"),
        (["net.prototxt", "w", "a.png", "--mean_value=1", "--mean_file=m"], 2, "exclude each other"),
        (["net.prototxt", "w", "a.png", "--mean_value=1,2"], 2, "'1,2' is not one number, or three"),
        (["net.prototxt", "w", "a.png", "--channel_swap=b"], 2, "'b' is not an order of channels"),
        (["net.prototxt", "w", "a.png", "--channel_swap=0,1"], 2, "each of the channels 0 to 2"),
        (["net.prototxt", "w", "a.png", "--images_dim=8"], 2, "'8' is not a height and a width"),
        (["net.prototxt", "w", "a.png", "--labels=net.prototxt"], 65, "labels, and the net has 5 classes"),
        (["net.prototxt", "w", "a.png", "--mean_file=w"], 65, "w: "),
        (["net.prototxt", "w", "absent.png"], 65, "absent.png: the image cannot be read"),
        (["net.prototxt", "absent", "a.png"], 65, "absent"),
        (["absent.prototxt", "w", "a.png"], 65, "absent.prototxt"),
        (["net.prototxt", "w", "a.png", "--json=no/p.json"], 73, "cannot write no/p.json"),
    ],
)
def test_mistakes_are_named(photos, words, code, said):
    result = photos.run("classify", *words)
    assert (result.returncode, said in result.stderr) == (code, True), result.stderr
    assert "Traceback" not in result.stderr


def test_images_that_cannot_be_read_are_named_and_the_others_scored(photos):
    result = photos.run("classify", "net.prototxt", "w", "labels.txt", "a.png", "absent.png", "b.png", "--json=p.json")
    assert result.returncode == 65
    assert [line.split(": ")[:2] for line in result.stderr.splitlines()] == [
        ["error", "labels.txt"], ["error", "absent.png"]
    ]  # fmt: skip
    bad, good, absent, last = json.loads(Path("p.json").read_text())["images"]
    assert "the image cannot be read" in bad["error"] and "the image cannot be read" in absent["error"]
    for name, row in (("a.png", good), ("b.png", last)):
        assert row["file"] == name and name in result.stdout
        assert row["predictions"][0]["score"] == pytest.approx(float(expected(name).max()), rel=1e-4)


def test_a_net_that_trains_is_refused_with_the_command_that_makes_a_deploy_net(photos):
    absent = 'layer { name: "d" type: "Data" top: "image" top: "label" data_param { source: "absent" batch_size: 1 } }'
    for text in (photos.net, absent):
        photos.write("train.prototxt", text)
        result = photos.run("classify", "train.prototxt", "w", "a.png")
        assert result.returncode == 2 and "engine edit train_val.prototxt -o deploy" in result.stderr, result.stderr
