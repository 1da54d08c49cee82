"""The Data layer: what it reads from an LMDB, and what it says of sources that it cannot read."""

import io
import os

import numpy as np
import pytest
import torch
from PIL import Image

from mgcaffe.engine.layer import TEST
from mgcaffe.engine.net import Net
from mgcaffe.errors import DataError, NetError
from tests.support.datakit import (
    data_layer,
    datum,
    encoded,
    file_bytes,
    images,
    labels,
    make,
    numbered,
    write_lmdb,
    write_mean,
)


def test_raw_records_come_in_the_order_of_their_keys_and_wrap_around(tmp_path):
    pixels = images(5)
    source = write_lmdb(tmp_path / "db", [datum(image, 300 * n - 1) for n, image in enumerate(pixels)])
    layer = data_layer(source, 3)
    assert layer.reshape([]) == [(3, 3, 6, 8), (3,)]
    for expected in ([0, 1, 2], [3, 4, 0], [1, 2, 3]):
        data, label = layer.forward([])
        assert data.dtype == label.dtype == torch.float32
        np.testing.assert_array_equal(data.numpy(), pixels[expected])
        assert label.tolist() == [300 * n - 1 for n in expected]
    layer.close()


def test_float_records_keep_their_values(tmp_path):
    values = np.random.default_rng(0).normal(size=(2, 4, 1, 3)).astype(np.float32)
    layer = data_layer(write_lmdb(tmp_path / "db", [datum(v) for v in values]), 2, dtype=torch.float64)
    data, _ = layer.forward([])
    assert data.dtype == torch.float64
    np.testing.assert_array_equal(data.numpy(), values)
    layer.close()


def test_records_of_bytes_and_of_floats_share_a_batch(tmp_path):
    values = [images(1)[0], images(1, seed=1)[0] / np.float32(7), images(1, seed=2)[0]]
    layer = data_layer(write_lmdb(tmp_path / "db", [datum(value) for value in values]), 2)
    for expected in ([0, 1], [2, 0], [1, 2]):
        np.testing.assert_array_equal(layer.forward([])[0].numpy(), [values[n] for n in expected])
    layer.close()


def test_encoded_colour_images_have_their_channels_in_the_order_bgr(tmp_path):
    picture = np.zeros((4, 5, 3), np.uint8)
    picture[..., 0], picture[..., 1], picture[..., 2] = 200, 100, 50
    layer = data_layer(write_lmdb(tmp_path / "db", [encoded(picture, "PNG")]), 1)
    data, _ = layer.forward([])
    assert data.shape == (1, 3, 4, 5)
    assert data[0, :, 0, 0].tolist() == [50, 100, 200]
    layer.close()


@pytest.mark.parametrize(
    ("field", "grey", "channels"),
    [("", True, 1), ("", False, 3), ("force_color: true", True, 3), ("force_gray: true", False, 1)],
)
def test_encoded_images_are_made_colour_or_grey_where_forced(tmp_path, field, grey, channels):
    picture = images(1, (4, 4, 3))[0]
    source = write_lmdb(tmp_path / "db", [encoded(picture[..., 0] if grey else picture, "PNG")])
    layer = data_layer(source, 1, f"transform_param {{ {field} }}")
    data, _ = layer.forward([])
    assert data.shape == (1, channels, 4, 4)
    if field == "force_gray: true":
        luminance = picture @ np.array([0.299, 0.587, 0.114])
        assert np.abs(data[0, 0].numpy() - luminance).max() <= 1
    layer.close()


def test_a_grey_jpeg_gives_its_luminance(tmp_path):
    picture = np.full((16, 16, 3), (10, 200, 90), np.uint8)
    layer = data_layer(
        write_lmdb(tmp_path / "db", [encoded(picture, "JPEG")]), 1, "transform_param { force_gray: true }"
    )
    data, _ = layer.forward([])
    assert np.abs(data.numpy() - (0.299 * 10 + 0.587 * 200 + 0.114 * 90)).max() <= 2
    layer.close()


def test_channels_last_changes_memory_but_not_values(tmp_path):
    source = write_lmdb(tmp_path / "db", [datum(image) for image in images(4)])
    transform = "transform_param { crop_size: 5 mirror: true mean_value: 3 scale: 0.5 }"
    plain = data_layer(source, 4, transform)
    last = data_layer(source, 4, transform, memory_format=torch.channels_last)
    expected, found = plain.forward([])[0], last.forward([])[0]
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(expected, found)
    plain.close()
    last.close()


def test_one_top_gives_no_labels(tmp_path):
    source = write_lmdb(tmp_path / "db", [datum(images(1)[0])])
    layer = make(f'name: "d" type: "Data" top: "data" data_param {{ source: "{source}" batch_size: 2 }}')
    assert layer.reshape([]) == [(2, 3, 6, 8)]
    assert [tuple(top.shape) for top in layer.forward([])] == [(2, 3, 6, 8)]
    layer.close()


def test_two_layers_read_the_same_source(tmp_path):
    source = numbered(tmp_path / "db", 4)
    first, second = data_layer(source, 2), data_layer(source, 2)
    assert labels(first, 2) == labels(second, 2) == [[0, 1], [2, 3]]
    first.close()
    assert labels(second, 1) == [[0, 1]]
    second.close()


def test_batches_may_differ_in_size_but_not_the_images_of_one(tmp_path):
    sizes = [(1, 2, 3), (1, 4, 4)]
    source = write_lmdb(tmp_path / "db", [datum(np.zeros(size, np.uint8)) for size in sizes])
    single = data_layer(source, 1)
    assert [tuple(single.forward([])[0].shape) for _ in sizes] == [(1, 1, 2, 3), (1, 1, 4, 4)]
    single.close()
    layer = data_layer(source, 2)
    with pytest.raises(DataError, match=r"record 1 \(key '00000001'\).*1 x 4 x 4.*1 x 2 x 3.*layer 'data'"):
        layer.forward([])
    layer.close()
    cropped = data_layer(source, 2, "transform_param { crop_size: 2 }")
    assert cropped.forward([])[0].shape == (2, 1, 2, 2)
    cropped.close()


def test_an_unset_backend_reads_an_lmdb(tmp_path):
    source = numbered(tmp_path / "db", 2)
    layer = make(f'name: "d" type: "Data" top: "data" top: "label" data_param {{ source: "{source}" batch_size: 2 }}')
    assert labels(layer, 1) == [[0, 1]]
    layer.close()


def test_shuffle_gives_every_record_once_an_epoch_in_a_new_order(tmp_path):
    text = (
        f'name: "d" type: "Data" top: "data" top: "label"'
        f' data_param {{ source: "{numbered(tmp_path / "db", 12)}" batch_size: 12 shuffle: true }}'
    )
    layer = make(text, seed=5)
    first, second = labels(layer, 2)
    assert sorted(first) == sorted(second) == list(range(12))
    assert first != second
    assert first != list(range(12))
    layer.close()


# -- sources that cannot be read -------------------------------------------------------------------------


def test_a_missing_source_is_named_with_its_place(tmp_path):
    prototxt = tmp_path / "net.prototxt"
    prototxt.write_text(
        'layer {\n  name: "data"\n  type: "Data"\n  top: "data"\n'
        '  data_param { source: "nowhere" batch_size: 2 backend: LMDB }\n}\n'
    )
    with pytest.raises(DataError) as caught:
        Net.from_file(prototxt)
    message = str(caught.value)
    assert message.startswith(f"{prototxt}:5:16: data source 'nowhere' does not exist (layer 'data', type Data)")
    assert caught.value.exit_code == 65


def test_a_database_that_is_written_during_the_training_stops_it(tmp_path):
    source = numbered(tmp_path / "db", 4)
    layer = make(
        f'name: "d" type: "Data" top: "data" top: "label" data_param {{ source: "{source}" batch_size: 2 prefetch: 0 }}'
    )
    assert labels(layer, 1) == [[0, 1]]
    write_lmdb(source, [datum(images(1)[0], 7)])
    with pytest.raises(DataError, match=r"changed while it was being read .*layer 'd'"):
        layer.forward([])
    layer.close()


def test_a_file_as_source_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="is a file"):
        data_layer(tmp_path / "file", 1)


def test_a_folder_without_a_database_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"neither an LMDB \(data\.mdb\) nor"):
        data_layer(tmp_path, 1)


def test_an_empty_database_is_refused(tmp_path):
    with pytest.raises(DataError, match="holds no records"):
        data_layer(write_lmdb(tmp_path / "db", []), 1)


def test_a_database_that_is_something_else_is_refused(tmp_path):
    (tmp_path / "data.mdb").write_bytes(b"nonsense" * 4096)
    with pytest.raises(DataError, match="cannot be opened as LMDB"):
        data_layer(tmp_path, 1)


def test_a_cut_off_database_is_refused(tmp_path):
    source = write_lmdb(tmp_path / "db", [datum(image) for image in images(40, (3, 32, 32))])
    file = source / "data.mdb"
    file.write_bytes(file.read_bytes()[:40000])
    with pytest.raises(DataError, match=r"is cut off: data\.mdb has 40000 bytes"):
        data_layer(source, 1)


BAD_RECORDS = [
    (b"\xff\xff\xff", "not a Datum"),
    (datum(images(1)[0]).SerializeToString()[:-30], "not a Datum"),
    (b"", "shape is 0 x 0 x 0"),
    (encoded(images(1, (9, 9, 3))[0], "PNG").SerializeToString().replace(b"IDAT", b"XXXX"), "cannot be decoded"),
]


@pytest.mark.parametrize(("record", "why"), BAD_RECORDS)
@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_damaged_record_is_named_by_key_and_source(tmp_path, record, why, prefetch):
    source = write_lmdb(tmp_path / "db", [datum(images(1)[0]), record])
    layer = make(
        f'name: "d" type: "Data" top: "data" data_param {{ source: "{source}" batch_size: 1 prefetch: {prefetch} }}'
    )
    layer.forward([])
    for _ in range(2):  # the thread's error stays
        with pytest.raises(DataError, match=why) as caught:
            layer.forward([])
            layer.forward([])
    assert f"record 1 (key '00000001') of '{source}'" in str(caught.value)
    layer.close()


def test_a_datum_whose_shape_lies_is_refused(tmp_path):
    lying = datum(images(1)[0])
    lying.height = 7
    with pytest.raises(DataError, match="shape is 3 x 7 x 8, but holds 144 values"):
        data_layer(write_lmdb(tmp_path / "db", [lying]), 1)


def test_a_cut_off_image_is_refused(tmp_path):
    message = encoded(images(1, (64, 64, 3))[0], "JPEG")
    message.data = message.data[: len(message.data) // 2]
    with pytest.raises(DataError, match=r"record 0.*cannot be decoded"):
        data_layer(write_lmdb(tmp_path / "db", [message]), 1)


def test_sixteen_bit_images_are_refused(tmp_path):
    buffer = io.BytesIO()
    Image.fromarray(np.full((4, 4), 3000, np.uint16)).save(buffer, "PNG")
    message = encoded(np.zeros((1, 1), np.uint8), "PNG")
    message.data = buffer.getvalue()
    with pytest.raises(DataError, match="more than 8 bits"):
        data_layer(write_lmdb(tmp_path / "db", [message]), 1)


@pytest.mark.parametrize(
    ("field", "channels", "warns"),
    [("force_color", 1, True), ("force_gray", 3, True), ("force_color", 3, False), ("force_gray", 1, False)],
)
def test_forced_colours_leave_pixels_as_they_are_with_one_warning(tmp_path, caplog, field, channels, warns):
    pixels = images(4, (channels, 2, 3))
    source = write_lmdb(tmp_path / "db", [datum(image) for image in pixels])
    for _ in range(2):  # as in a training net and a test net
        layer = data_layer(source, 2, f"transform_param {{ {field}: true }}")
        for expected in ([0, 1], [2, 3]):
            np.testing.assert_array_equal(layer.forward([])[0].numpy(), pixels[expected])
        layer.close()
    assert len(caplog.records) == warns
    if warns:
        assert f"record 0 (key '00000000') of '{source}' holds pixels" in caplog.text
        assert f"so {field} leaves its {channels} channel(s) as they are, as in Caffe" in caplog.text


def test_pixels_behind_encoded_images_are_warned_of_when_they_are_met(tmp_path, caplog):
    picture = images(1, (4, 5, 3))[0]
    source = write_lmdb(tmp_path / "db", [encoded(picture, "PNG"), *(datum(image) for image in images(2, (3, 4, 5)))])
    layer = data_layer(source, 3, "transform_param { force_gray: true }")
    assert not caplog.records
    with pytest.raises(DataError, match="shape"):
        layer.forward([])
    assert [record.message.partition(" holds")[0] for record in caplog.records] == [
        f"record 1 (key '00000001') of '{source}'"
    ]


def test_a_database_and_a_mean_file_whose_names_are_not_utf8_are_found(tmp_path):
    pixels = images(2)
    source = write_lmdb(tmp_path / "db", [datum(image) for image in pixels])
    source.rename(tmp_path / os.fsdecode(b"d\xe4"))
    write_mean(tmp_path / os.fsdecode(b"m\xe4"), np.full((3, 6, 8), 5))
    layer = make(
        rf'name: "d" type: "Data" top: "x" data_param {{ source: "{tmp_path}/d\344" batch_size: 2 backend: LMDB }}'
        rf' transform_param {{ mean_file: "{tmp_path}/m\344" }}'
    )
    np.testing.assert_array_equal(layer.forward([])[0].numpy(), pixels.astype(np.float32) - 5)
    layer.close()


def test_a_missing_batch_size_or_source_is_refused(tmp_path):
    with pytest.raises(NetError, match="batch_size is missing"):
        make(f'name: "d" type: "Data" top: "x" data_param {{ source: "{tmp_path}" }}')
    with pytest.raises(NetError, match="source is missing"):
        make('name: "d" type: "Data" top: "x" data_param { batch_size: 1 }')


# -- nets that are only looked at ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shapes", "transform", "expected"),
    [
        ({"data": (3, 40, 50)}, "", (2, 3, 40, 50)),
        ({"*": (3, 40, 50)}, "crop_size: 32", (2, 3, 32, 32)),
        ({}, "crop_size: 27", (2, 3, 27, 27)),
        ({}, "crop_size: 27 force_gray: true", (2, 1, 27, 27)),
    ],
)
def test_shapes_are_known_without_the_source(shapes, transform, expected):
    transform = f'transform_param {{ {transform} mean_file: "nowhere.binaryproto" }}'
    layer = data_layer("nowhere", 2, transform, input_shapes=shapes)
    assert layer.reshape([]) == [expected, (2,)]
    with pytest.raises(DataError, match="no open source"):
        layer.forward([])


def test_an_unknown_shape_asks_for_the_flag():
    with pytest.raises(NetError, match="--input_shape=data=C,H,W"):
        data_layer("nowhere", 2, input_shapes={})


def test_a_test_phase_layer_crops_the_centre(tmp_path):
    pixels = images(1, (1, 7, 8))
    layer = data_layer(
        write_lmdb(tmp_path / "db", [datum(pixels[0])]), 1, "transform_param { crop_size: 4 }", phase=TEST
    )
    np.testing.assert_array_equal(layer.forward([])[0].numpy(), pixels[:, :, 1:5, 2:6])
    layer.close()


def test_helpers_write_readable_images():
    assert Image.open(io.BytesIO(file_bytes(images(1, (5, 4, 3))[0], "PNG"))).size == (4, 5)
