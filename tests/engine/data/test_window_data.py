"""The WindowData layer: its batches against Caffe's loop, written again with OpenCV."""

import logging
from math import floor

import numpy as np
import pytest

from mgcaffe.engine.net import Net
from mgcaffe.engine.shard import Shard, TestShard
from mgcaffe.errors import DataError, NetError
from tests.support.datakit import file_bytes, images, labels, make, write_mean

HEIGHT, WIDTH = 40, 60


def window_file(folder, *blocks, name="windows.txt"):
    """A window file. Each block: an image's path, its size, and its windows as lines."""
    lines = []
    for number, (path, size, windows) in enumerate(blocks):
        lines += [f"# {number}", str(path), *map(str, size), str(len(windows)), *windows]
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder / name


@pytest.fixture
def pictures(tmp_path):
    """Two smooth colour images of 40 x 60, and their pixels B, G, R as Caffe sees them."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    pixels = []
    for number in range(2):
        planes = [128 + 127 * np.sin((rows * (k + 1) + columns * (3 - k)) / (9 + number)) for k in range(3)]
        picture = np.stack(planes, axis=2).astype(np.uint8)
        (tmp_path / f"{number}.png").write_bytes(file_bytes(picture, "PNG"))
        pixels.append(np.ascontiguousarray(picture[:, :, ::-1]))
    return pixels


def layer_text(source, batch, fields="", transform="crop_size: 12", more=""):
    return (
        'name: "w" type: "WindowData" top: "data" top: "label"\n'
        f' window_data_param {{ source: "{source}" root_folder: "{source.parent}/" batch_size: {batch} {fields} }}\n'
        f" transform_param {{ {transform} }} {more}"
    )


def layer_of(source, batch, *text, **context):
    return make(layer_text(source, batch, *text), **context)


def c_round(value):
    return floor(value + 0.5) if value >= 0 else -floor(-value + 0.5)


def caffes_window(image, corners, crop, *, context_pad=0, square=False, mirror=False, mean=None, scale=1.0):
    """What window_data_layer.cpp makes of one window: the loop, without its image cache. `image` is H x W x C."""
    import cv2

    x1, y1, x2, y2 = corners
    pad_w = pad_h = 0
    size_w = size_h = crop
    if context_pad > 0 or square:
        context_scale = crop / (crop - 2 * context_pad)
        half_height, half_width = (y2 - y1 + 1) / 2, (x2 - x1 + 1) / 2
        center_x, center_y = x1 + half_width, y1 + half_height
        if square:
            half_width = half_height = max(half_height, half_width)
        x1, x2 = c_round(center_x - half_width * context_scale), c_round(center_x + half_width * context_scale)
        y1, y2 = c_round(center_y - half_height * context_scale), c_round(center_y + half_height * context_scale)
        unclipped_height, unclipped_width = y2 - y1 + 1, x2 - x1 + 1
        pad_x1, pad_y1 = max(0, -x1), max(0, -y1)
        pad_x2, pad_y2 = max(0, x2 - image.shape[1] + 1), max(0, y2 - image.shape[0] + 1)
        x1, x2, y1, y2 = x1 + pad_x1, x2 - pad_x2, y1 + pad_y1, y2 - pad_y2
        scale_x, scale_y = crop / unclipped_width, crop / unclipped_height
        size_w, size_h = c_round((x2 - x1 + 1) * scale_x), c_round((y2 - y1 + 1) * scale_y)
        pad_x1, pad_x2, pad_h = c_round(pad_x1 * scale_x), c_round(pad_x2 * scale_x), c_round(pad_y1 * scale_y)
        pad_w = pad_x2 if mirror else pad_x1
        size_h, size_w = min(size_h, crop - pad_h), min(size_w, crop - pad_w)
    part = cv2.resize(image[y1 : y2 + 1, x1 : x2 + 1], (size_w, size_h), interpolation=cv2.INTER_LINEAR)
    if mirror:
        part = cv2.flip(part, 1)
    top = np.zeros((3, crop, crop))
    for h in range(size_h):
        for w in range(size_w):
            value = part[h, w].astype(float)
            if mean is not None:
                offset = (mean.shape[2] - crop) // 2
                value -= mean[:, h + offset + pad_h, w + offset + pad_w]
            top[:, h + pad_h, w + pad_w] = value * scale
    return top


CORNERS = [(10, 5, 33, 28), (0, 0, 59, 39), (3, 2, 10, 37), (50, 30, 59, 39), (20, 10, 20, 10), (40, 1, 58, 9)]


@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize(("mode", "context_pad"), [("warp", 0), ("warp", 2), ("square", 0), ("square", 3)])
@pytest.mark.parametrize("corners", CORNERS)
def test_a_window_is_cut_as_caffe_cuts_it(tmp_path, pictures, corners, mode, context_pad, mirror):
    pytest.importorskip("cv2")
    mean = images(1, (3, 16, 16), seed=4)[0].astype(np.float32)
    write_mean(tmp_path / "mean.binaryproto", mean)
    windows = ["7 0.9 {} {} {} {}".format(*corners)]
    source = window_file(tmp_path, ("0.png", (3, HEIGHT, WIDTH), windows))
    layer = layer_of(
        source,
        16,
        f'crop_mode: "{mode}" context_pad: {context_pad} fg_fraction: 1',
        f'crop_size: 12 scale: 0.5 mirror: {str(mirror).lower()} mean_file: "{tmp_path}/mean.binaryproto"',
    )
    data, label = layer.forward([])
    assert label.tolist() == [7] * 16
    seen = set()
    for values in data.numpy():
        differences = {}
        for flipped in [False, True] if mirror else [False]:
            expected = caffes_window(
                pictures[0],
                corners,
                12,
                context_pad=context_pad,
                square=mode == "square",
                mirror=flipped,
                mean=mean,
                scale=0.5,
            )
            # OpenCV rounds its weights to 1/2048, so its result is off by up to one grey level.
            differences[flipped] = np.abs(values - expected).max()
        assert min(differences.values()) <= 0.5
        seen.add(min(differences, key=differences.get))
    if corners[2] > corners[0]:
        assert seen == ({False, True} if mirror else {False})
    layer.close()


def test_what_lies_outside_the_image_is_zero(tmp_path, pictures):
    source = window_file(tmp_path, ("0.png", (3, HEIGHT, WIDTH), ["1 1 0 0 19 19"]))
    layer = layer_of(source, 1, "fg_fraction: 1 context_pad: 4", "crop_size: 16 mean_value: 300")
    (image,), _ = layer.forward([])
    empty = (image == 0).all(0)
    assert empty[:4].all()
    assert empty[:, :4].all()
    assert not empty[5:, 5:].any()
    layer.close()


def test_background_comes_first_and_foreground_last_with_their_labels(tmp_path, pictures):
    lines = ["3 0.8 0 0 9 9", "4 0.5 0 0 9 9", "5 0.3 0 0 9 9", "6 0.1 0 0 9 9"]
    source = window_file(tmp_path, ("0.png", (3, HEIGHT, WIDTH), lines[:2]), ("1.png", (3, HEIGHT, WIDTH), lines[2:]))
    layer = layer_of(source, 8, "bg_threshold: 0.3 fg_fraction: 0.4")
    assert layer.source_records == 3  # 0.3 is neither below the one threshold nor as much as the other
    assert layer.reshape([]) == [(8, 3, 12, 12), (8,)]
    drawn = labels(layer, 40)
    assert all(batch[:5] == [0] * 5 for batch in drawn)
    in_front = [label for batch in drawn for label in batch[5:]]
    assert set(in_front) == {3, 4}
    assert 35 < in_front.count(3) < 85
    layer.close()


def test_the_default_is_a_quarter_of_foreground(tmp_path, pictures):
    source = window_file(tmp_path, ("0.png", (3, HEIGHT, WIDTH), ["1 0.5 0 0 9 9", "1 0.49 0 0 9 9"]))
    layer = layer_of(source, 8)
    assert labels(layer, 1) == [[0] * 6 + [1] * 2]
    layer.close()


@pytest.mark.parametrize(("batch", "fraction", "foreground"), [(10, 0.7, 7), (8, 0.49, 3), (4, 0, 0), (4, 1, 4)])
def test_the_share_of_foreground_is_counted_in_single_precision_and_rounded_down(
    tmp_path, pictures, batch, fraction, foreground
):
    source = window_file(tmp_path, ("0.png", (3, HEIGHT, WIDTH), ["1 1 0 0 9 9", "1 0 0 0 9 9"]))
    layer = layer_of(source, batch, f"fg_fraction: {fraction}")
    assert sum(labels(layer, 1)[0]) == foreground
    layer.close()


def test_a_window_that_both_thresholds_take_is_foreground_alone(tmp_path, pictures):
    source = window_file(tmp_path, ("0.png", (3, HEIGHT, WIDTH), ["1 0.4 0 0 9 9", "2 0.2 0 0 9 9"]))
    layer = layer_of(source, 4, "fg_threshold: 0.3 bg_threshold: 0.5")
    assert layer.source_records == 2
    layer.close()


def test_white_space_around_lines_is_left_out(tmp_path, pictures):
    source = window_file(tmp_path, (" 0.png ", ("3 ", " 40", "\t60"), [" 1  1 0\t0 9 9 ", "", "1 0 0 0 9 9"]))
    source.write_bytes(source.read_text().replace("\n3\n 1", "\n2\n 1").replace("\n", "\r\n").encode())
    layer = layer_of(source, 4)
    assert labels(layer, 1) == [[0, 0, 0, 1]]
    layer.close()


def test_every_window_comes_mirrored_and_not(tmp_path, pictures):
    lines = [f"{n + 1} 0.9 {9 * n} 0 {9 * n + 11} 11" for n in range(4)]
    source = window_file(tmp_path, ("0.png", (3, HEIGHT, WIDTH), lines))
    layer = layer_of(source, 60, "fg_fraction: 1", "crop_size: 12 mirror: true")
    data, label = (top.numpy() for top in layer.forward([]))
    for number in range(4):
        window = pictures[0][:12, 9 * number : 9 * number + 12].transpose(2, 0, 1)
        mirrored = [np.array_equal(found, window[:, :, ::-1]) for found in data[label == number + 1]]
        assert 0 < sum(mirrored) < len(mirrored)
    layer.close()


@pytest.mark.parametrize("shuffled", [False, True])
def test_ranks_together_read_what_one_rank_would(tmp_path, pictures, shuffled):
    lines = [f"{n + 1} {0.9 if n % 2 else 0.1} {n} {n} {n + 20} {n + 15}" for n in range(10)]
    source = window_file(tmp_path, ("0.png", (3, HEIGHT, WIDTH), lines), ("1.png", (3, HEIGHT, WIDTH), lines))
    text = ("fg_fraction: 0.3", "crop_size: 8 mirror: true")
    whole = layer_of(source, 10, *text, seed=3)
    ranks = [layer_of(source, 5, *text, seed=3, shard=Shard(rank, 2)) for rank in range(2)]
    for _ in range(3):
        data, label = whole.forward([])
        for rank, layer in enumerate(ranks):
            part, part_label = layer.forward([])
            assert (part == data[rank::2]).all()
            assert part_label.tolist() == label[rank::2].tolist()
        assert (label > 0).sum() == 3
    for layer in [whole, *ranks]:
        layer.close()


def test_whole_batches_of_a_test_are_shared_out(tmp_path, pictures):
    lines = [f"{n + 1} {0.9 if n % 2 else 0.1} {n} {n} {n + 20} {n + 15}" for n in range(10)]
    source = window_file(tmp_path, ("0.png", (3, HEIGHT, WIDTH), lines))
    whole = layer_of(source, 4, seed=3, phase=1)
    expected = labels(whole, 3)
    parts = [layer_of(source, 4, seed=3, phase=1, shard=TestShard(rank, 2, 3)) for rank in range(2)]
    assert [labels(parts[0], 1)[0], labels(parts[1], 1)[0], labels(parts[0], 1)[0]] == expected
    beyond = layer_of(source, 4, seed=3, phase=1, shard=TestShard(3, 4, 3))  # more ranks than batches
    assert (beyond.position(), beyond.context.shard.batches) == (0, 0)
    for layer in [whole, *parts, beyond]:
        layer.close()


def test_the_seed_decides_and_a_position_can_be_returned_to(tmp_path, pictures):
    lines = [f"{n + 1} 0.9 {n} {n} {n + 20} {n + 15}" for n in range(10)]
    source = window_file(tmp_path, ("0.png", (3, HEIGHT, WIDTH), lines))
    one, same, other = (layer_of(source, 6, "fg_fraction: 1", seed=seed) for seed in (1, 1, 2))
    first, second = labels(one, 1), labels(one, 2)
    assert labels(same, 1) == first
    assert labels(other, 1) != first
    same.seek(one.position() - 12)
    assert labels(same, 2) == second
    for layer in (one, same, other):
        layer.close()


def test_grey_images_and_cached_files(tmp_path):
    grey = images(1, (20, 30, 1))[0, :, :, 0]
    (tmp_path / "grey.png").write_bytes(file_bytes(grey, "PNG"))
    source = window_file(tmp_path, ("grey.png", (1, 20, 30), ["2 1 5 4 16 15"]))
    layer = layer_of(source, 1, "fg_fraction: 1 cache_images: true", more := "crop_size: 12 mean_value: 10")
    assert layer.reshape([]) == [(1, 1, 12, 12), (1,)]
    (image,), _ = layer.forward([])
    np.testing.assert_array_equal(image[0].numpy(), grey[4:16, 5:17] - 10.0)
    (tmp_path / "grey.png").unlink()
    layer.forward([])
    layer.close()
    uncached = layer_of(source, 1, "fg_fraction: 1", more)
    with pytest.raises(DataError, match=r"grey\.png' cannot be read: No such file") as caught:
        uncached.forward([])
    assert str(caught.value).startswith(f"{source}:2:1: ")
    uncached.close()


def test_an_image_of_another_size_than_stated_is_reported_once(tmp_path, pictures, caplog):
    source = window_file(tmp_path, ("0.png", (3, WIDTH, HEIGHT), ["2 1 5 4 16 15"]))
    layer = layer_of(source, 4, "fg_fraction: 1")
    with caplog.at_level(logging.WARNING, logger="mgcaffe.engine"):
        layer.forward([])
        layer.forward([])
    layer.close()
    (message,) = [
        record.getMessage() for record in caplog.records if "though the window file says" in record.getMessage()
    ]
    assert f"{source}:2:1: image '{tmp_path}/0.png' is 40 x 60 (height x width)" in message


def test_an_image_that_cannot_be_decoded_is_located(tmp_path, pictures):
    (tmp_path / "text.png").write_text("no image")
    layer = layer_of(window_file(tmp_path, ("text.png", (3, 9, 9), ["9 0.9 1 1 8 8"])), 1, "fg_fraction: 1")
    with pytest.raises(DataError, match=r"text\.png': the encoded image cannot be decoded.*layer 'w'") as caught:
        layer.forward([])
    assert str(caught.value).startswith(f"{tmp_path}/windows.txt:2:1: ")
    layer.close()


def test_a_bad_image_can_be_skipped(tmp_path, pictures, caplog):
    lines = [f"{n + 1} 0.9 1 1 9 9" for n in range(3)]
    source = window_file(
        tmp_path,
        ("nowhere.png", (3, HEIGHT, WIDTH), ["9 0.9 1 1 9 9"]),
        ("0.png", (3, HEIGHT, WIDTH), lines),
    )
    layer = layer_of(source, 50, "fg_fraction: 1", "crop_size: 4", "data_param { bad_record: SKIP }")
    assert set(labels(layer, 2)[0]) == {1, 2, 3}
    assert caplog.text.count("the next good record stands in (bad record 1, limit 100)") == 1
    layer.close()


OLD = 'layers { name: "w" type: WINDOW_DATA top: "data" top: "label" window_data_param {'


def test_old_nets_have_the_transformation_beside_the_source(tmp_path, pictures):
    source = window_file(tmp_path, ("0.png", (3, HEIGHT, WIDTH), ["2 1 5 4 16 15"]))
    path = tmp_path / "net.prototxt"
    path.write_text(
        f'{OLD} source: "{source}" root_folder: "{tmp_path}/" batch_size: 2 fg_fraction: 1'
        " crop_size: 12 scale: 0.25 } }"
    )
    net = Net.from_file(path)
    net.forward()
    expected = pictures[0][4:16, 5:17].transpose(2, 0, 1) * 0.25
    np.testing.assert_array_equal(net.blobs["data"].data[0].numpy(), expected)
    net.close()
    written_directly = make(
        'name: "w" type: "WindowData" top: "data" top: "label" window_data_param {'
        f' source: "{source}" root_folder: "{tmp_path}/" batch_size: 2 fg_fraction: 1 crop_size: 12 scale: 0.25 }}'
    )
    np.testing.assert_array_equal(written_directly.forward([])[0][0].numpy(), expected)
    written_directly.close()


def test_shapes_are_known_without_the_file(tmp_path):
    layer = layer_of(tmp_path / "nowhere.txt", 4, input_shapes={})
    assert layer.reshape([]) == [(4, 3, 12, 12), (4,)]


GOOD = ["# 0", "0.png", "3", "40", "60", "2", "1 0.9 0 0 9 9", "1 0.1 0 0 9 9"]


@pytest.mark.parametrize(
    ("line", "text", "place", "message"),
    [
        (0, "0", 1, "stands where the next image begins"),
        (2, "5", 2, "has 5 channels"),
        (2, "three", 3, "'three' is not the number of channels of '0.png', a whole number from 1 on"),
        (3, "0", 4, "'0' is not the height"),
        (5, "-1", 6, "the number of windows of '.*0.png', a whole number from 0 on"),
        (5, "1", 8, "stands where the next image begins"),
        (5, "3", 8, "the window file ends where window 3 of 3"),
        (6, "1 0.9 0 0 9", 7, "is not a window"),
        (7, "1 0.1 0 0 9 nine", 8, "is not a window"),
        (7, "1 0.1 0 0 9 9.5", 8, "have to be whole numbers"),
        (7, "1 0.1 0 0 9 nan", 8, "have to be whole numbers"),
        (7, "1 0.1 5 0 4 9", 8, "the window is empty"),
        (6, "0 0.9 0 0 9 9", 7, "the label of a foreground window has to be at least 1"),
    ],
)
def test_bad_lines_are_located(tmp_path, line, text, place, message):
    source = tmp_path / "windows.txt"
    source.write_text("\n".join([*GOOD[:line], text, *GOOD[line + 1 :]]))
    with pytest.raises(DataError, match=message) as caught:
        layer_of(source, 2)
    assert str(caught.value).startswith(f"{source}:{place}:1: ")
    assert "layer 'w'" in str(caught.value)


def test_files_that_cannot_be_used_are_named(tmp_path, pictures):
    source = tmp_path / "windows.txt"
    with pytest.raises(DataError, match=r"windows\.txt' does not exist"):
        layer_of(source, 2)
    source.write_text("")
    with pytest.raises(DataError, match="names no images"):
        layer_of(source, 2)
    source.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(DataError, match="no text file"):
        layer_of(source, 2)
    source.write_text("\n".join(GOOD[:3]))
    with pytest.raises(DataError, match=r"ends where the height of '0.png' should follow"):
        layer_of(source, 2)
    window_file(tmp_path, ("0.png", (3, 4, 4), ["1 1 0 0 1 1"]), ("1.png", (1, 4, 4), []))
    with pytest.raises(DataError, match=r"has 1 channel.s., those before have 3"):
        layer_of(source, 2)
    window_file(tmp_path, ("0.png", (3, 4, 4), ["1 0 0 0 1 1"]))
    with pytest.raises(DataError, match=r"has no foreground window \(overlap fg_threshold 0.5 or more\).* takes 1"):
        layer_of(source, 4)
    window_file(tmp_path, ("0.png", (3, 4, 4), ["1 1 0 0 1 1"]))
    with pytest.raises(DataError, match="has no background window"):
        layer_of(source, 4)


@pytest.mark.parametrize(
    ("window", "fields", "message"),
    [
        ("1 1 -1 0 5 5", "", r"window \(-1, 0\) to \(5, 5\) reaches out of its image, of 40 x 60"),
        ("1 1 0 0 60 5", "", "reaches out of its image"),
        ("1 1 100 0 120 5", "context_pad: 1", "lies outside its image"),
    ],
)
def test_windows_that_do_not_fit_their_image_are_located(tmp_path, pictures, window, fields, message):
    source = window_file(tmp_path, ("0.png", (3, HEIGHT, WIDTH), ["1 1 0 0 9 9", window][1:]))
    layer = layer_of(source, 1, f"fg_fraction: 1 {fields}")
    with pytest.raises(DataError, match=message) as caught:
        layer.forward([])
    assert str(caught.value).startswith(f"{source}:7:1: ")
    layer.close()


@pytest.mark.parametrize(
    ("fields", "transform", "message"),
    [
        ("", "mirror: true", "crop_size is missing"),
        ('crop_mode: "stretch"', "crop_size: 8", 'crop_mode has to be "warp" or "square", not "stretch"'),
        ("context_pad: 4", "crop_size: 8", "context_pad 4 on both sides leaves nothing of crop_size 8"),
        ("fg_fraction: 1.5", "crop_size: 8", "fg_fraction has to be from 0 to 1, not 1.5"),
        ("", "crop_size: 8 force_color: true", "force_color is a field of another Caffe|force_color"),
        ("", "crop_size: 8 mean_value: 1 mean_value: 2", "mean_value is given 2 times, but images have 3"),
    ],
)
def test_wrong_fields_are_errors(tmp_path, pictures, fields, transform, message):
    source = window_file(tmp_path, ("0.png", (3, HEIGHT, WIDTH), ["1 1 0 0 9 9", "1 0 0 0 9 9"]))
    with pytest.raises((NetError, DataError), match=message):
        layer_of(source, 2, fields, transform)


def test_the_middle_of_a_mean_file_is_taken_in_rows_and_columns(tmp_path, pictures):
    mean = images(1, (3, 17, 24), seed=4)[0].astype(np.float32)
    write_mean(tmp_path / "mean.binaryproto", mean)
    source = window_file(tmp_path, ("0.png", (3, HEIGHT, WIDTH), ["1 1 5 4 16 15"]))
    layer = layer_of(source, 1, "fg_fraction: 1", f'crop_size: 12 mean_file: "{tmp_path}/mean.binaryproto"')
    window = pictures[0][4:16, 5:17].transpose(2, 0, 1)
    np.testing.assert_array_equal(layer.forward([])[0][0].numpy(), window - mean[:, 2:14, 6:18])
    layer.close()


def test_a_mean_file_that_is_too_small_is_refused(tmp_path, pictures):
    source = window_file(tmp_path, ("0.png", (3, HEIGHT, WIDTH), ["1 1 0 0 9 9", "1 0 0 0 9 9"]))
    write_mean(tmp_path / "mean.binaryproto", np.zeros((3, 20, 11), np.float32))
    with pytest.raises(DataError, match=r"3 x 20 x 11; it needs 3 channel.s. and at least 12 x 12"):
        layer_of(source, 2, "", f'crop_size: 12 mean_file: "{tmp_path}/mean.binaryproto"')
