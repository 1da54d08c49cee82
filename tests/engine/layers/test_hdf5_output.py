"""The HDF5Output layer."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from mgcaffe.engine.layer_context import LayerContext
from mgcaffe.engine.net import Net
from mgcaffe.engine.shard import Shard, TestShard
from mgcaffe.errors import DataError, NetError
from tests.support.datakit import make as make_data
from tests.support.layerkit import make_layer
from tests.support.layouts import random_input


def text(path):
    return f'name: "out" type: "HDF5Output" bottom: "x" bottom: "t" hdf5_output_param {{ file_name: "{path}" }}'


def make(path, rows=3, **context):
    context.setdefault("dtype", torch.float64)
    layer, shapes = make_layer(text(path), [(rows, 2, 4), (rows,)], context=LayerContext(**context))
    assert shapes == []
    return layer


def batch(seed, rows=3):
    return [random_input((rows, 2, 4), seed=seed), torch.arange(rows, dtype=torch.float64) + 10 * seed]


def four_axes(x):
    """Return the values with ones behind their shape, as the file has them."""
    return x.reshape(*x.shape, *[1] * (4 - x.dim())).numpy()


def read(path):
    with h5py.File(path) as file:
        return {name: values[...] for name, values in file.items()}


def test_every_pass_appends_and_the_file_is_whole_after_each(tmp_path):
    layer = make(tmp_path / "out.h5")
    batches = [batch(0), batch(1), batch(2, rows=1), batch(3, rows=0)]
    for count, bottoms in enumerate(batches, 1):
        layer.reshape([tuple(x.shape) for x in bottoms])
        assert layer.forward(bottoms) == []
        found = read(tmp_path / "out.h5")
        assert sorted(found) == ["data", "label"]
        for name, index in (("data", 0), ("label", 1)):
            expected = four_axes(torch.cat([bottoms[index] for bottoms in batches[:count]]))
            np.testing.assert_array_equal(found[name], expected)
            assert found[name].dtype == np.float64


def test_the_file_is_read_by_hdf5_data(tmp_path):
    layer = make(tmp_path / "out.h5", dtype=torch.float32)
    bottoms = [x.float() for x in batch(1)]
    for _ in range(2):
        layer.forward(bottoms)
    (tmp_path / "list.txt").write_text(f"{tmp_path}/out.h5\n")
    data = make_data(
        f'name: "d" type: "HDF5Data" top: "data" top: "label"'
        f' hdf5_data_param {{ source: "{tmp_path}/list.txt" batch_size: 6 }}'
    )
    found, labels = data.forward([])
    assert torch.equal(found, torch.cat([bottoms[0]] * 2)[..., None])
    assert labels.shape == (6, 1, 1, 1)
    assert labels.flatten().tolist() == [10, 11, 12, 10, 11, 12]
    data.close()


def test_both_datasets_have_four_axes_as_caffes(tmp_path):
    """Caffe copies both bottoms into blobs of num x channels x height x width; a scalar is one row."""
    for number, shape in enumerate([(), (1,), (1, 3), (1, 2, 3), (1, 2, 3, 4)]):
        layer, _ = make_layer(text(tmp_path / f"{number}.h5"), [shape, (1,)])
        x = random_input(shape)
        layer.forward([x, torch.zeros(1)])
        found = read(tmp_path / f"{number}.h5")
        assert found["data"].shape == ((*shape, 1, 1, 1, 1) if shape else (1, 1, 1, 1))[:4]
        assert found["label"].shape == (1, 1, 1, 1)
        np.testing.assert_array_equal(found["data"], four_axes(x))


def test_values_in_channels_last_keep_their_places(tmp_path):
    x = random_input((2, 3, 4, 5), "channels_last")
    layer, _ = make_layer(text(tmp_path / "out.h5"), [(2, 3, 4, 5), (2, 1)])
    layer.forward([x, torch.zeros(2, 1)])
    np.testing.assert_array_equal(read(tmp_path / "out.h5")["data"], x.numpy())


def test_rows_longer_than_a_chunk(tmp_path):
    layer, _ = make_layer(text(tmp_path / "out.h5"), [(2, 200_000), (2,)])
    x = random_input((2, 200_000))
    layer.forward([x, torch.zeros(2)])
    layer.forward([x + 1, torch.zeros(2)])
    np.testing.assert_array_equal(read(tmp_path / "out.h5")["data"], four_axes(torch.cat([x, x + 1])))


def test_an_earlier_file_is_kept_and_left_alone_until_the_first_pass(tmp_path):
    path = tmp_path / "out.h5"
    make(path).forward(batch(1))
    second = make(path)
    assert len(read(path)["label"]) == 3
    second.forward(batch(2))
    assert read(path)["label"].flatten().tolist() == [20, 21, 22]
    assert read(tmp_path / "out.h5.previous")["label"].flatten().tolist() == [10, 11, 12]


def test_two_layers_that_write_one_file_are_an_error(tmp_path):
    path = tmp_path / "out.h5"
    first, second = make(path), make(path)
    first.forward(batch(1))
    second.forward(batch(2))
    with pytest.raises(DataError, match="does another layer write it, too"):
        first.forward(batch(3))


def test_ranks_write_files_of_their_own_and_the_batch_of_every_row(tmp_path):
    for rank in (0, 1):
        layer = make(tmp_path / "train.h5", shard=Shard(rank, 2))
        layer.forward(batch(rank))
        layer.forward(batch(rank + 2))
    assert not (tmp_path / "train.h5").exists()
    for rank in (0, 1):
        found = read(tmp_path / f"train.rank{rank}.h5")
        assert found["batch"].tolist() == [rank] * 3 + [rank + 2] * 3
        assert found["label"].flatten().tolist() == [n + 10 * seed for seed in (rank, rank + 2) for n in range(3)]


def test_rows_of_a_test_sorted_by_batch_are_in_the_order_of_one_rank(tmp_path):
    for rank in (0, 1):
        shard = TestShard(rank, 2, test_iter=3)
        layer = make(tmp_path / "test.h5", shard=shard)
        for number in range(2 * shard.batches):
            first = shard.records(0, number, 3)[0]
            layer.forward([batch(0)[0], torch.arange(first, first + 3, dtype=torch.float64)])
    parts = [read(tmp_path / f"test.rank{rank}.h5") for rank in (0, 1)]
    order = np.argsort(np.concatenate([part["batch"] for part in parts]), kind="stable")
    assert np.concatenate([part["label"] for part in parts])[order].flatten().tolist() == list(range(18))


def test_a_process_that_is_killed_between_passes_leaves_a_whole_file(tmp_path):
    script = (
        "import os, signal, torch\n"
        "from tests.engine.layers.test_hdf5_output import batch, make\n"
        f"layer = make({str(tmp_path / 'out.h5')!r})\n"
        "for seed in range(3): layer.forward(batch(seed))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], timeout=60, env={**os.environ, "PYTHONPATH": str(Path.cwd())}
    )
    assert ended.returncode == -signal.SIGKILL
    found = read(tmp_path / "out.h5")
    np.testing.assert_array_equal(found["data"], four_axes(torch.cat([batch(seed)[0] for seed in range(3)])))


def test_a_net_trains_past_it(tmp_path):
    path = tmp_path / "net.prototxt"
    path.write_text(
        'layer { name: "x" type: "Input" top: "x" top: "t" input_param { shape { dim: 2 dim: 3 } shape { dim: 2 } } }\n'
        'layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 4'
        ' weight_filler { type: "xavier" } } }\n'
        'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "y" bottom: "t" top: "loss" }\n'
        'layer { name: "out" type: "HDF5Output" bottom: "y" bottom: "t"\n'
        f' hdf5_output_param {{ file_name: "{tmp_path}/out.h5" }} }}\n'
    )
    net = Net.from_file(path, seed=1)
    net.blobs["x"].data.normal_()
    for _ in range(2):
        net.clear_param_diffs()
        net.forward_backward()
    assert net.parameters[0].diff.abs().sum() > 0
    np.testing.assert_array_equal(read(tmp_path / "out.h5")["data"][2:], four_axes(net.blobs["y"].data))


def test_what_cannot_be_written_is_a_located_error(tmp_path):
    path = tmp_path / "net.prototxt"
    layer = 'layer {{ name: "out" type: "HDF5Output" bottom: "x" bottom: "t"\n hdf5_output_param {{ {} }} }}'
    inputs = (
        'layer {{ name: "i" type: "Input" top: "x" top: "t"'
        " input_param {{ shape {{ dim: 2 dim: 3 }} shape {{ {} }} }} }}\n"
    )

    def build(fields, labels="dim: 2"):
        path.write_text(inputs.format(labels) + layer.format(fields))
        return Net.from_file(path)

    with pytest.raises(NetError, match="file_name is missing") as caught:
        build("")
    assert str(caught.value).startswith(f"{path}:3:")
    with pytest.raises(DataError, match=r"folder '.*nowhere' does not exist") as caught:
        build(f'file_name: "{tmp_path}/nowhere/out.h5"')
    assert str(caught.value).startswith(f"{path}:3:")
    assert caught.value.exit_code == 73
    with pytest.raises(NetError, match="as many rows as each other, not 2 and 3"):
        build(f'file_name: "{tmp_path}/out.h5"', "dim: 3")
    with pytest.raises(NetError, match=r"bottom 1 \('t'\) has 5 axes, shape \(2, 1, 1, 1, 3\).*datasets have 4"):
        build(f'file_name: "{tmp_path}/out.h5"', "dim: 2 dim: 1 dim: 1 dim: 1 dim: 3")
    (tmp_path / "folder.h5").mkdir()
    net = build(f'file_name: "{tmp_path}/folder.h5"')
    with pytest.raises(DataError, match="cannot be written: it is a folder") as caught:
        net.forward()
    assert caught.value.exit_code == 73


def test_rows_of_another_shape_are_an_error_and_leave_the_file_as_it_was(tmp_path):
    layer = make(tmp_path / "out.h5")
    layer.forward(batch(1))
    with pytest.raises(DataError, match=r"rows of 'data' have shape \(3, 4, 1\) now, but \(2, 4, 1\)"):
        layer.forward([torch.zeros(3, 3, 4, dtype=torch.float64), torch.zeros(3)])
    assert len(read(tmp_path / "out.h5")["data"]) == 3


def test_a_net_that_is_only_looked_at_needs_no_folder(tmp_path):
    make(tmp_path / "nowhere" / "out.h5", input_shapes={})
    assert list(tmp_path.iterdir()) == []
