"""LMDBs of Python's datasets: pairs, mappings, images, arrays and tensors."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from PIL import Image

import mgcaffe
from mgcaffe.engine.data.dataset_writer import write_lmdb
from mgcaffe.engine.data.lmdb.source import open_lmdb
from mgcaffe.errors import DataError, EngineError, UsageError
from mgcaffe.prototxt import Datum
from tests.support.datum_bytes import datum_bytes
from tests.support.paths import ROOT

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 4, 5, 3), dtype=np.uint8)


def values(folder):
    source = open_lmdb(str(folder))
    assert source.has_sums
    assert [source.key(number) for number in range(len(source))] == [b"%08d" % n for n in range(len(source))]
    return [source.value(number) for number in range(len(source))]


def expected(labels):
    return [
        datum_bytes(shape=(3, 4, 5), data=pixels.transpose(2, 0, 1)[::-1].tobytes(), label=label, encoded=False)
        for pixels, label in zip(PIXELS, labels, strict=False)
    ]


FORMS = {
    "images": Image.fromarray,
    "arrays": np.asarray,
    "arrays of planes": lambda pixels: pixels.transpose(2, 0, 1),
    "byte tensors": lambda pixels: torch.from_numpy(pixels).permute(2, 0, 1),
    "float tensors": lambda pixels: torch.from_numpy(pixels).permute(2, 0, 1).float() / 255,
    "images with transparency": lambda pixels: Image.fromarray(pixels).convert("RGBA"),
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_image_becomes_the_record_of_convert_imageset(tmp_path, form):
    pairs = ((FORMS[form](pixels), number) for number, pixels in enumerate(PIXELS))
    assert write_lmdb(pairs, tmp_path / "db", threads=2) == 6
    assert values(tmp_path / "db") == expected(range(6))


def test_mappings_and_labels_of_every_kind(tmp_path):
    labels = [np.int64(3), torch.tensor(-4), np.array(5), True, 2**31 - 1, np.uint8(7)]
    items = [{"img": pixels, "fine": label, "more": 0} for pixels, label in zip(PIXELS, labels, strict=True)]
    mgcaffe.write_lmdb(items, tmp_path / "db", image_field="img", label_field="fine")
    assert values(tmp_path / "db") == expected([3, -4, 5, 1, 2**31 - 1, 7])


def test_grey_resized_and_encoded(tmp_path):
    grey = [(pixels[:, :, 0], 1) for pixels in PIXELS]
    write_lmdb(grey, tmp_path / "grey", gray=True)
    assert values(tmp_path / "grey")[2] == datum_bytes(
        shape=(1, 4, 5), data=PIXELS[2, :, :, 0].tobytes(), label=1, encoded=False
    )
    write_lmdb(grey, tmp_path / "small", gray=True, size=(2, 3))
    assert Datum.FromString(values(tmp_path / "small")[0]).height == 2
    write_lmdb(((pixels, 1) for pixels in PIXELS), tmp_path / "png", encode_type="PNG")
    datum = Datum.FromString(values(tmp_path / "png")[0])
    assert datum.encoded and datum.data.startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "the dataset gives no images"),
        ([(PIXELS[0], 1), 5], "item 1 of the dataset is no pair of image and label, but of type int"),
        ([(PIXELS[0], 1.5)], "item 0 of the dataset: the label is of type float, no whole number"),
        ([(PIXELS[0], torch.tensor(1.0))], "the label is a Tensor of shape none and type torch.float32"),
        ([(PIXELS[0], torch.tensor([1, 2]))], "the label is a Tensor of shape 2"),
        ([(PIXELS[0], 2**31)], "item 0 of the dataset: label 2147483648 does not fit into 32 bits"),
        ([{"image": PIXELS[0]}], "item 0 of the dataset has no field 'label'"),
        ([(PIXELS, 1)], "item 0 of the dataset: the image is a ndarray of shape 6 x 4 x 5 x 3 and type uint8"),
        ([(PIXELS[0].astype(np.int32), 1)], "bytes are needed, or floats from 0 to 1"),
        ([(PIXELS[0] - 0.5, 1)], "the image holds floats from"),
        ([(np.full((2, 2), np.nan), 1)], "the image holds floats from nan"),
        ([(Image.new("I;16", (3, 3)), 1)], "more than 8 bits a channel"),
        ([("dog.jpg", 1)], "the image is of type str"),
    ],
)
def test_items_of_another_kind_are_named(tmp_path, items, message):
    with pytest.raises(DataError) as caught:
        write_lmdb(items, tmp_path / "db")
    assert message in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_wrong_arguments_and_a_folder_that_is_there(tmp_path):
    items = [(PIXELS[0], 0)]
    with pytest.raises(UsageError, match="known types are"):
        write_lmdb(items, tmp_path / "db", encode_type="gif")
    with pytest.raises(UsageError, match="size is 0 x 3"):
        write_lmdb(items, tmp_path / "db", size=(0, 3))
    write_lmdb(items, tmp_path / "db")
    with pytest.raises(EngineError, match="exists already"):
        write_lmdb(items, tmp_path / "db")
    write_lmdb([*items, *items], tmp_path / "db", replace=True)
    assert len(values(tmp_path / "db")) == 2
    assert {path.name for path in tmp_path.iterdir()} == {"db"}


def test_who_writes_no_lmdb_needs_no_liblmdb():
    needs = re.compile(
        r"^(?:import lmdb|from mgcaffe\.engine\.data\.lmdb\.(?:writer|record_file) import)", re.MULTILINE
    )
    files = [path for path in (ROOT / "engine").rglob("*.py") if needs.search(path.read_text(encoding="utf-8"))]
    assert {path.parent.name for path in files} == {"lmdb"}
