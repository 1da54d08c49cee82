"""The HDF5Data layer, also on the files that a real Caffe was trained with."""

import os

import h5py
import numpy as np
import pytest
import torch

from mgcaffe.engine.net import Net
from mgcaffe.engine.shard import Shard
from mgcaffe.errors import DataError, NetError
from tests.support.datakit import make
from tests.support.paths import GOLDEN

SOLVERS = GOLDEN / "solvers"


def write(folder, *files, names=None):
    """HDF5 files of these columns, and the list of them."""
    names = names or [f"{n}.h5" for n in range(len(files))]
    for name, columns in zip(names, files, strict=True):
        with h5py.File(folder / name, "w") as opened:
            for column, values in columns.items():
                opened[column] = values
    (folder / "list.txt").write_text("".join(f"{folder / name}\n" for name in names))
    return folder / "list.txt"


def layer_text(source, batch, tops="data label", more=""):
    words = " ".join(f'top: "{top}"' for top in tops.split())
    return f'name: "d" type: "HDF5Data" {words} hdf5_data_param {{ source: "{source}" batch_size: {batch} {more} }}'


def rows(start, stop):
    return {"data": np.arange(start, stop)[:, None] * 10.0, "label": np.arange(start, stop)}


def numbers(layer, batches):
    return [[int(label) for label in layer.forward([])[1]] for _ in range(batches)]


def test_golden_files_are_read_relative_to_the_working_directory(monkeypatch):
    monkeypatch.chdir(SOLVERS)
    with h5py.File("train.h5") as opened:
        data, label = opened["data"][...], opened["label"][...]
    net = Net.from_file("net.prototxt", phase=0)
    layer = net.data_layers[0]
    assert layer.reshape([]) == [(5, 6), (5,)]
    for batch in range(8):
        wanted = [n % 30 for n in range(batch * 5, batch * 5 + 5)]
        found = layer.forward([])
        np.testing.assert_array_equal(found[0].numpy(), data[wanted])
        np.testing.assert_array_equal(found[1].numpy(), label[wanted])
    net.close()


@pytest.mark.parametrize("stop", [4, 9])
def test_a_file_that_is_written_again_before_it_is_read_is_refused(tmp_path, stop):
    """With fewer rows than it had, or as many others."""
    source = write(tmp_path, rows(0, 3), rows(3, 8))
    layer = make(layer_text(source, 3))
    write(tmp_path, rows(4, stop), names=["1.h5"])
    assert numbers(layer, 1) == [[0, 1, 2]]
    with pytest.raises(DataError, match=r"list.txt:2:1: '.*1.h5' was written to since this run.*\n.*from a copy"):
        layer.forward([])
    layer.close()


def test_rows_run_on_through_the_files_and_wrap_around(tmp_path):
    layer = make(layer_text(write(tmp_path, rows(0, 3), rows(3, 4), rows(4, 9)), 4))
    assert numbers(layer, 4) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 0, 1, 2], [3, 4, 5, 6]]
    data, label = layer.forward([])
    assert data.tolist() == [[70.0], [80.0], [0.0], [10.0]]
    assert label.dtype == data.dtype == torch.float32
    layer.close()


def test_any_number_of_tops_of_any_rank(tmp_path):
    columns = {"a": np.zeros((4, 2, 3, 4, 5)), "b": np.arange(4), "c": np.ones((4, 2, 3, 4), np.int8)}
    layer = make(
        layer_text(write(tmp_path, columns), 2, "a b c"),
        dtype=torch.float64,
        memory_format=torch.channels_last,
    )
    tops = layer.forward([])
    assert [tuple(top.shape) for top in tops] == layer.reshape([]) == [(2, 2, 3, 4, 5), (2,), (2, 2, 3, 4)]
    assert all(top.dtype == torch.float64 for top in tops)
    assert tops[2].is_contiguous(memory_format=torch.channels_last)
    layer.close()


@pytest.mark.parametrize("ranks", [2, 3])
def test_shuffled_rows_are_shared_out_in_the_same_order_on_all_ranks(tmp_path, ranks):
    source = write(tmp_path, rows(0, 5), rows(5, 7), rows(7, 18))
    text = layer_text(source, 2, more="shuffle: true")
    whole = make(layer_text(source, 2 * ranks, more="shuffle: true"), seed=4)
    layers = [make(text, seed=4, shard=Shard(rank, ranks)) for rank in range(ranks)]
    parts = [numbers(layer, 10) for layer in layers]
    expected = numbers(whole, 10)
    for iteration in range(10):
        assert [parts[n % ranks][iteration][n // ranks] for n in range(2 * ranks)] == expected[iteration]
    for layer in [whole, *layers]:
        layer.close()


def test_shuffling_keeps_files_together_and_changes_every_epoch(tmp_path):
    source = write(tmp_path, rows(0, 6), rows(6, 12), rows(12, 18))
    layer = make(layer_text(source, 18, more="shuffle: true"), seed=1)
    epochs = numbers(layer, 6)
    assert all(sorted(epoch) == list(range(18)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 6
    files = [tuple(epoch[n] // 6 for n in range(0, 18, 6)) for epoch in epochs]
    assert all(epoch[n] // 6 == epoch[n - n % 6] // 6 for epoch in epochs for n in range(18))
    assert len(set(files)) > 1
    assert len({tuple(row % 6 for row in epoch[n : n + 6]) for epoch in epochs for n in range(0, 18, 6)}) > 12
    layer.seek(18 * 3)
    assert numbers(layer, 3) == epochs[3:]
    layer.close()


def test_several_files_may_stand_on_a_line_and_names_with_spaces_alone(tmp_path, monkeypatch):
    """Caffe reads the list by `file >> line`, so all white space separates."""
    monkeypatch.chdir(tmp_path)
    names = ["a.h5", "b.h5", "c.h5", "my file.h5"]
    source = write(tmp_path, rows(0, 1), rows(1, 2), rows(2, 3), rows(3, 4), names=names)
    source.write_text("  c.h5\ta.h5  b.h5 \n\nmy file.h5\n")
    layer = make(layer_text(source, 4))
    assert numbers(layer, 1) == [[2, 0, 1, 3]]
    layer.close()
    source.write_text("a.h5\nb.h5 no file.h5\n")
    with pytest.raises(DataError, match="HDF5 file 'no' does not exist") as caught:
        make(layer_text(source, 2))
    assert str(caught.value).startswith(f"{source}:2:1: ")
    assert "a space ends a name, unless the whole line names a file" in caught.value.hint


def test_a_list_and_files_whose_names_are_not_utf8_are_found(tmp_path):
    source = write(tmp_path, rows(0, 2))
    (tmp_path / "0.h5").rename(tmp_path / os.fsdecode(b"\xe4.h5"))
    source.write_bytes(os.fsencode(tmp_path) + b"/\xe4.h5\n")
    source.rename(tmp_path / os.fsdecode(b"\xfc.txt"))
    layer = make(layer_text(f"{tmp_path}/\\xfc.txt", 2))
    assert numbers(layer, 1) == [[0, 1]]
    layer.close()


def test_a_missing_file_names_the_list_and_the_line(tmp_path):
    source = write(tmp_path, rows(0, 3))
    source.write_text(source.read_text() + "\nnowhere.h5\n")
    with pytest.raises(DataError) as caught:
        make(layer_text(source, 2))
    assert str(caught.value).startswith(f"{source}:3:1: HDF5 file 'nowhere.h5' does not exist (layer 'd'")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"data": np.zeros(3)}, "has no dataset 'label'"),
        ({"data": np.zeros(3), "label": np.zeros(4)}, "different numbers of rows: 'data' 3, 'label' 4"),
        ({"data": np.zeros((2, 3)), "label": np.zeros(2)}, r"have shape \(3,\).*but \(1,\)"),
        ({"data": 1.0, "label": np.zeros(1)}, "one number; it needs rows"),
        ({"data": np.array([b"a", b"b"]), "label": np.zeros(2)}, "not numbers"),
    ],
)
def test_files_that_do_not_fit_are_refused(tmp_path, columns, message):
    source = write(tmp_path, rows(0, 3), columns)
    with pytest.raises(DataError, match=message) as caught:
        make(layer_text(source, 2))
    assert str(caught.value).startswith(f"{source}:2:1: ")


def test_values_that_only_float64_can_hold_are_refused_in_float32(tmp_path):
    source = write(tmp_path, rows(0, 2), {"data": np.array([[1.0], [1e39]]), "label": np.array([np.inf, 2])})
    wide = make(layer_text(source, 4), dtype=torch.float64)
    assert wide.forward([])[0].tolist() == [[0.0], [10.0], [1.0], [1e39]]
    wide.close()
    layer = make(layer_text(source, 3))
    assert layer.forward([])[1].tolist() == [0, 1, np.inf]
    with pytest.raises(
        DataError, match=r"row \d of dataset 'data' of '.*1\.h5' holds values that are too large for float32"
    ) as caught:
        layer.forward([])
    assert str(caught.value).startswith(f"{source}:2:1: ")
    layer.close()


def test_files_that_are_no_hdf5_or_hold_nothing_are_refused(tmp_path):
    source = write(tmp_path, rows(0, 3))
    (tmp_path / "0.h5").write_text("text")
    with pytest.raises(DataError, match="cannot be opened as HDF5"):
        make(layer_text(source, 2))
    with pytest.raises(DataError, match="hold no rows"):
        make(layer_text(write(tmp_path, rows(0, 0)), 2))
    source.write_text("\n \n")
    with pytest.raises(DataError, match="names no files"):
        make(layer_text(source, 2))
    source.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="no text file"):
        make(layer_text(source, 2))
    with pytest.raises(DataError, match=r"'nowhere\.txt' does not exist"):
        make(layer_text("nowhere.txt", 2))


def test_transform_param_is_refused(tmp_path):
    with pytest.raises(NetError, match="does not transform"):
        make(layer_text(write(tmp_path, rows(0, 3)), 2) + " transform_param { scale: 2 }")


def test_shapes_are_known_without_the_files():
    shapes = {"d": (3, 4), "mask": (7,)}
    layer = make(layer_text("nowhere", 2, "data label mask"), input_shapes=shapes)
    assert layer.reshape([]) == [(2, 3, 4), (2,), (2, 7)]
