"""The ImageData layer."""

import os

import numpy as np
import pytest

from mgcaffe.engine.shard import Shard
from mgcaffe.errors import DataError, NetError
from tests.support.datakit import file_bytes, images, labels, make


@pytest.fixture
def folder(tmp_path):
    """Five colour images of 6 x 8 with a list; a space is part of every name."""
    lines = []
    for number, picture in enumerate(images(5, (6, 8, 3))):
        (tmp_path / f"image {number}.png").write_bytes(file_bytes(picture, "PNG"))
        lines.append(f"image {number}.png {number}\n")
    (tmp_path / "list.txt").write_text("".join(lines))
    return tmp_path


def layer_of(folder, batch, fields="", more="", **context):
    return make(
        f'name: "images" type: "ImageData" top: "data" top: "label" image_data_param {{'
        f' source: "{folder}/list.txt" root_folder: "{folder}/" batch_size: {batch} {fields} }} {more}',
        **context,
    )


def test_images_come_in_the_order_of_the_list(folder):
    layer = layer_of(folder, 3)
    assert layer.reshape([]) == [(3, 3, 6, 8), (3,)]
    pixels = images(5, (6, 8, 3)).transpose(0, 3, 1, 2)[:, ::-1]
    for expected in ([0, 1, 2], [3, 4, 0]):
        data, label = layer.forward([])
        np.testing.assert_array_equal(data.numpy(), pixels[expected])
        assert label.tolist() == expected
    layer.close()


def test_the_default_batch_is_one_image(folder):
    layer = make(
        f'name: "i" type: "ImageData" top: "data" top: "label"'
        f' image_data_param {{ source: "{folder}/list.txt" root_folder: "{folder}/" }}'
    )
    assert layer.batch_size == 1
    assert layer.forward([])[0].shape == (1, 3, 6, 8)
    layer.close()


def test_grey_and_resized(folder):
    layer = layer_of(folder, 2, "is_color: false new_height: 3 new_width: 4")
    data, _ = layer.forward([])
    assert data.shape == (2, 1, 3, 4)
    luminance = images(5, (6, 8, 3))[:2] @ np.array([0.299, 0.587, 0.114])
    halved = luminance.reshape(2, 3, 2, 4, 2).mean(axis=(2, 4))
    assert np.abs(data[:, 0].numpy() - halved).max() <= 1.5
    layer.close()


def test_enlarging_interpolates_and_repeats_the_edge(tmp_path):
    (tmp_path / "i.png").write_bytes(file_bytes(np.array([[0, 100]], np.uint8), "PNG"))
    (tmp_path / "list.txt").write_text("i.png 0\n")
    layer = layer_of(tmp_path, 1, "is_color: false new_height: 1 new_width: 4")
    assert np.abs(layer.forward([])[0].numpy().ravel() - [0, 25, 75, 100]).max() <= 1
    layer.close()


def test_shuffle_is_the_same_on_all_ranks_and_gives_every_image_once(folder):
    whole = layer_of(folder, 4, "shuffle: true", seed=3)
    layers = [layer_of(folder, 2, "shuffle: true", seed=3, shard=Shard(rank, 2)) for rank in range(2)]
    expected = labels(whole, 5)
    parts = [labels(layer, 5) for layer in layers]
    assert [[parts[n % 2][i][n // 2] for n in range(4)] for i in range(5)] == expected
    flat = [label for batch in expected for label in batch]
    epochs = [flat[start : start + 5] for start in range(0, 20, 5)]
    assert all(sorted(epoch) == [0, 1, 2, 3, 4] for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1
    for layer in [whole, *layers]:
        layer.close()


def test_an_image_is_cropped_and_mirrored_anew_in_every_epoch(folder):
    (folder / "list.txt").write_text("image 0.png 0\n")
    layer = layer_of(folder, 8, more="transform_param { crop_size: 4 mirror: true }", seed=3)
    first, second = (layer.forward([])[0] for _ in range(2))
    assert len(np.unique(first.numpy().reshape(8, -1), axis=0)) > 4
    assert not np.array_equal(first, second)
    layer.seek(8)
    assert np.array_equal(layer.forward([])[0], second)
    layer.close()


def test_rand_skip_starts_somewhere_below_it(folder):
    starts = set()
    for seed in range(20):
        layer = layer_of(folder, 1, "rand_skip: 3", seed=seed)
        starts.add(labels(layer, 1)[0][0])
        layer.close()
    assert starts == {0, 1, 2}


def test_images_of_different_sizes_need_a_crop(folder):
    (folder / "image 1.png").write_bytes(file_bytes(images(1, (9, 7, 3))[0], "PNG"))
    layer = layer_of(folder, 2)
    with pytest.raises(DataError, match=r"image '.*image 1\.png' has shape 3 x 9 x 7"):
        layer.forward([])
    layer.close()
    cropped = layer_of(folder, 2, more="transform_param { crop_size: 5 }")
    assert cropped.forward([])[0].shape == (2, 3, 5, 5)
    cropped.close()


def test_lists_and_images_that_cannot_be_read_are_named(folder):
    path = folder / "list.txt"
    path.write_text("image 0.png 0\nnowhere.png 1\n")
    layer = layer_of(folder, 2)
    with pytest.raises(DataError, match=r"nowhere\.png' cannot be read: No such file") as caught:
        layer.forward([])
    assert str(caught.value).startswith(f"{path}:2:1: ")
    layer.close()
    path.write_text("image 0.png 2147483648\n")
    with pytest.raises(DataError, match="label 2147483648 does not fit into 32 bits") as caught:
        layer_of(folder, 2)
    assert str(caught.value).startswith(f"{path}:1:1: ")
    path.write_text("\ufeffimage 0.png 0\n")
    with pytest.raises(DataError, match="begins with a byte order mark") as caught:
        layer_of(folder, 2)
    assert str(caught.value).startswith(f"{path}:1:1: ")
    (folder / "text.png").write_text("no image")
    path.write_text("text.png 0\n")
    with pytest.raises(DataError, match=r"text\.png': the encoded image cannot be decoded"):
        layer_of(folder, 2)


def test_labels_are_those_that_caffes_atoi_reads_with_one_warning_for_the_list(folder, caplog):
    path = folder / "list.txt"
    (folder / "3.png").write_bytes((folder / "image 0.png").read_bytes())
    path.write_text("image 0.png 7\nimage 1.png 3.7\nimage 2.png 1_0\nimage 3.png x\n3.png\n")
    layer = layer_of(folder, 5)
    assert layer.forward([])[1].tolist() == [7, 3, 1, 0, 3]
    layer.close()
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.message == (
        f"{path}:2:1: a line is a path, a space and a label, a whole number, but 'image 1.png' has '3.7'; as in Caffe"
        " its label is 3; 3 more lines do not end in a label (layer 'images')"
    )


def test_a_line_without_a_space_and_a_list_that_two_nets_read_are_warned_about_once(folder, caplog):
    path = folder / "list.txt"
    (folder / "3.png").write_bytes((folder / "image 0.png").read_bytes())
    path.write_text("3.png\nimage 1.png x\n")
    for _ in range(2):
        layer_of(folder, 2).close()
    (record,) = caplog.records
    assert record.message == (
        f"{path}:1:1: a line is a path, a space and a label, a whole number, but '3.png' has no space in front of a"
        " label; as in Caffe its label is 3; 1 more line does not end in a label (layer 'images')"
    )


def test_images_whose_names_are_not_utf8_are_found(folder):
    name = b"b\xe4ume.png"
    (folder / os.fsdecode(name)).write_bytes((folder / "image 0.png").read_bytes())
    (folder / "list.txt").write_bytes(name + b" 4\nb\xfcro.png 5\n")
    layer = layer_of(folder, 1)
    assert layer.forward([])[1].tolist() == [4]
    with pytest.raises(DataError, match=r"ro\.png' cannot be read: No such file"):
        layer.forward([])
    layer.close()


def test_a_list_and_a_folder_whose_names_are_not_utf8_are_found(folder, caplog):
    folder.joinpath("list.txt").rename(folder / os.fsdecode(b"\xe4.txt"))
    inner = folder / os.fsdecode(b"\xfc")
    inner.mkdir()
    (folder / "image 0.png").rename(inner / "image 0.png")
    layer = make(
        'name: "i" type: "ImageData" top: "data" top: "label"'
        rf' image_data_param {{ source: "{folder}/\344.txt" root_folder: "{folder}/\xfc/" }}'
    )
    assert layer.forward([])[1].tolist() == [0]
    layer.close()
    (record,) = caplog.records
    assert "source is not UTF-8 and is read as Latin-1" in record.message
    assert "and so is 1 more string (root_folder)" in record.message


def test_half_a_new_size_is_refused(folder):
    with pytest.raises(NetError, match="go together"):
        layer_of(folder, 2, "new_height: 3")


def test_a_new_size_that_no_image_has_is_refused_before_an_image_is_brought_to_it(folder):
    with pytest.raises(NetError, match="new_width is 4294967295; images have at most 65536 pixels a side"):
        layer_of(folder, 2, "new_height: 3 new_width: 4294967295")


def test_shapes_are_known_without_the_images(tmp_path):
    layer = layer_of(tmp_path, 2, "new_height: 30 new_width: 40 is_color: false", input_shapes={})
    assert layer.reshape([]) == [(2, 1, 30, 40), (2,)]
    layer = layer_of(tmp_path, 2, "", "transform_param { crop_size: 20 }", input_shapes={})
    assert layer.reshape([]) == [(2, 3, 20, 20), (2,)]


@pytest.mark.parametrize(("height", "width"), [(3, 4), (4, 4), (12, 16)])
def test_colour_images_are_resized(folder, height, width):
    layer = layer_of(folder, 2, f"new_height: {height} new_width: {width}")
    data, _ = layer.forward([])
    assert data.shape == (2, 3, height, width)
    layer.close()
    plain = layer_of(folder, 2)
    whole = plain.forward([])[0]
    plain.close()
    # Averages survive a change of size, channel by channel.
    assert np.abs(data.mean((2, 3)).numpy() - whole.mean((2, 3)).numpy()).max() < 20
    if (height, width) == (3, 4):
        halved = whole.numpy().reshape(2, 3, 3, 2, 4, 2).mean(axis=(3, 5))
        assert np.abs(data.numpy() - halved).max() <= 1


def test_one_image_a_batch_may_change_its_size(folder):
    (folder / "image 1.png").write_bytes(file_bytes(images(1, (9, 7, 3))[0], "PNG"))
    layer = layer_of(folder, 1)
    assert [tuple(layer.forward([])[0].shape) for _ in range(3)] == [(1, 3, 6, 8), (1, 3, 9, 7), (1, 3, 6, 8)]
    layer.close()
