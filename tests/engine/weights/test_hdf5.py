"""Weights in HDF5: Caffe's layout, names with slashes and twice, shared parameters, damaged files."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from mgcaffe.engine.net import Net
from mgcaffe.engine.weights.hdf5 import load_hdf5, save_hdf5
from mgcaffe.errors import EXIT_BAD_INPUT, EXIT_CANNOT_WRITE, NetError, SnapshotError
from tests.support.netkit import inputs, make_net
from tests.support.paths import MODELS


def ip(name: str, bottom: str, top: str, more: str = "") -> str:
    return (
        f'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{top}" {more}'
        ' inner_product_param { num_output: 3 weight_filler { type: "gaussian" } bias_filler { type: "gaussian" } } }\n'
    )


def chain(*names: str) -> str:
    """Inner products one after the other, under these names."""
    blobs = ["data", *(f"t{index}" for index in range(len(names)))]
    return inputs(data=(2, 3)) + "".join(map(ip, names, blobs[:-1], blobs[1:]))


def with_diffs(net: Net) -> Net:
    net.arena.diff.copy_(torch.randn(net.arena.diff.shape, generator=torch.Generator().manual_seed(5)))
    return net


def paths(file: Path) -> list[str]:
    found: list[str] = []
    with h5py.File(file) as opened:
        opened.visit(found.append)
    return found


def refusal(net: Net, path: Path) -> str:
    kept = net.arena.data.clone()
    with pytest.raises(NetError) as caught:
        net.copy_trained_layers(path)
    assert caught.value.exit_code == EXIT_BAD_INPUT
    assert str(path) in str(caught.value)
    assert torch.equal(net.arena.data, kept)
    return str(caught.value)


# -- what is written -----------------------------------------------------------------------------------------


def test_the_layout_is_caffes(tmp_path):
    net = with_diffs(make_net(chain("one", "two"), dtype=torch.float32))
    save_hdf5(net, tmp_path / "plain.h5")
    layers = ["data", "data/data", "data/one", "data/one/0", "data/one/1", "data/two", "data/two/0", "data/two/1"]
    assert paths(tmp_path / "plain.h5") == layers
    save_hdf5(net, tmp_path / "diff.h5", diff=True)
    with h5py.File(tmp_path / "diff.h5") as file:
        for index, name in ((1, "one"), (2, "two")):
            for number, parameter in enumerate(net.layers[index].parameters):
                data, diff = file[f"data/{name}/{number}"], file[f"diff/{name}/{number}"]
                assert data.dtype == diff.dtype == np.float32
                assert np.array_equal(data[()], parameter.data.numpy())
                assert np.array_equal(diff[()], parameter.diff.numpy())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weights_come_back_to_the_bit(tmp_path, dtype):
    source, target = (make_net(chain("one", "two"), seed=seed, dtype=dtype) for seed in (1, 2))
    save_hdf5(source, tmp_path / "w.h5")
    report = load_hdf5(target, tmp_path / "w.h5")
    assert torch.equal(target.arena.data, source.arena.data)
    assert [(row.layer, row.detail) for row in report.copied] == [("one", "3x3, 3"), ("two", "3x3, 3")]


def test_the_same_weights_give_the_same_file(tmp_path):
    net = make_net(chain("one"))
    save_hdf5(net, tmp_path / "a.h5")
    save_hdf5(net, tmp_path / "b.h5")
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.h5", "b.h5"]


def test_an_unwritable_file(tmp_path):
    with pytest.raises(SnapshotError, match=r"cannot write .*no/w\.h5: No such file") as caught:
        save_hdf5(make_net(chain("one")), tmp_path / "no" / "w.h5")
    assert caught.value.exit_code == EXIT_CANNOT_WRITE


# -- names ---------------------------------------------------------------------------------------------------


def test_names_with_slashes_are_paths_and_come_back(tmp_path):
    source, target = (Net.from_file(MODELS / "googlenet" / "deploy.prototxt", seed=seed, phase=1) for seed in (1, 2))
    save_hdf5(source, tmp_path / "w.caffemodel.h5")
    report = target.copy_trained_layers(tmp_path / "w.caffemodel.h5")
    assert torch.equal(target.arena.data, source.arena.data)
    assert len(report.copied) == 58 and not report.skipped
    with h5py.File(tmp_path / "w.caffemodel.h5") as file:
        assert list(file) == ["data"]
        assert file["data"]["inception_3a/1x1"]["0"].shape == (64, 192, 1, 1)


@pytest.mark.parametrize(
    ("names", "aside"),
    [
        (["same", "same"], [2]),
        (["a", "a/0", "a/0/x"], [2, 3]),
        (["a/0", "a"], [1]),
        (["a/b", "a/c"], []),
        (["", "/", "a/", "/a", "a//b", "./a", "."], [1, 2, 3, 4, 5, 6, 7]),
        (["7", "data", "diff", "layers", "\N{GREEK SMALL LETTER ALPHA}"], []),
    ],
)
def test_no_names_lose_anything(tmp_path, names, aside):
    source, target = with_diffs(make_net(chain(*names), seed=1)), make_net(chain(*names), seed=2)
    save_hdf5(source, tmp_path / "w.h5", diff=True)
    report = target.copy_trained_layers(tmp_path / "w.h5")
    assert torch.equal(target.arena.data, source.arena.data)
    assert len(report.copied) == len(names) and not report.skipped
    with h5py.File(tmp_path / "w.h5") as file:
        assert sorted(map(int, file["layers"])) == aside if aside else "layers" not in file
        for index in aside:
            group = file[f"layers/{index}"]
            assert bytes(group.attrs["name"]).decode() == names[index - 1]
            assert np.array_equal(group["diff/1"][()], source.layers[index].parameters[1].diff.numpy())
        # What Caffe reads: each group right under /data holds just the numbered blobs of its layer.
        for name in set(names) & set(file["data"]):
            assert list(file["data"][name]) == ["0", "1"]


# -- what is read --------------------------------------------------------------------------------------------


def test_a_file_as_caffe_writes_it(tmp_path):
    net = make_net(chain("one", "two"))
    path = tmp_path / "caffe.h5"
    with h5py.File(path, "w") as file:
        for name in ("data", "one", "gone", "zero"):
            file.create_group(f"data/{name}")
        file["data/one/0"] = np.arange(9, dtype=np.float32).reshape(3, 3)
        file["data/one/1"] = np.ones(3)
        file["data/gone/0"] = np.ones(2)
    kept = net.layers[2].parameters[0].data.clone()
    report = net.copy_trained_layers(path)
    assert net.layers[1].parameters[0].data.flatten().tolist() == list(range(9))
    assert net.layers[1].parameters[1].data.tolist() == [1, 1, 1]
    assert torch.equal(net.layers[2].parameters[0].data, kept)
    assert [(row.layer, row.detail) for row in report.skipped] == [
        ("gone", "the net has no layer of this name"),
        ("two", "the file has no layer of this name; keeps its values"),
    ]


def test_names_that_are_not_utf8_are_read_as_latin1(tmp_path, caplog):
    """Caffe writes a layer's name as the bytes that the prototxt has, as in Chinese files in GBK."""
    with h5py.File(tmp_path / "w.h5", "w") as file:
        group = file.create_group("data").create_group(b"\xc4\xe3")
        group["0"], group["1"] = np.arange(9.0).reshape(3, 3), np.ones(3)
        file["data"].create_group(b"\xba\xc3")
    net = make_net(chain("\xc4\xe3"), seed=2)
    for _ in range(2):
        report = net.copy_trained_layers(tmp_path / "w.h5")
    assert net.layers[1].parameters[0].data.flatten().tolist() == list(range(9))
    assert [row.layer for row in report.copied] == ["\xc4\xe3"]
    (message,) = caplog.messages
    assert message.startswith(f"{tmp_path}/w.h5: the name of a layer is not UTF-8 and is read as Latin-1, ")
    assert "and so is 1 more string (" in message


def test_the_content_decides_not_the_name(tmp_path):
    source, target = make_net(chain("one"), seed=1), make_net(chain("one"), seed=2)
    save_hdf5(source, tmp_path / "w.caffemodel")
    target.copy_trained_layers(tmp_path / "w.caffemodel")
    assert torch.equal(target.arena.data, source.arena.data)
    (tmp_path / "w.caffemodel.h5").write_bytes(make_net(chain("one"), seed=3).to_proto().SerializeToString())
    target.copy_trained_layers(tmp_path / "w.caffemodel.h5")
    assert not torch.equal(target.arena.data, source.arena.data)


SHARED = chain().strip() + "\n" + ip("a", "data", "x", 'param { name: "w" } param { name: "b" }') + "{second}"


def shared(second: str, seed: int) -> Net:
    return make_net(SHARED.replace("{second}", ip("b", "x", "y", second)), seed=seed)


BOTH = 'param { name: "w" } param { name: "b" }'
WEIGHTS = 'param { name: "w" }'


@pytest.mark.parametrize(("specs", "written"), [(BOTH, []), (WEIGHTS, ["1"])])
def test_shared_parameters_are_written_once(tmp_path, specs, written):
    source, target = shared(specs, 1), shared(specs, 2)
    save_hdf5(with_diffs(source), tmp_path / "w.h5", diff=True)
    with h5py.File(tmp_path / "w.h5") as file:
        assert list(file["data/b"]) == written
        assert list(file["diff/b"]) == ["0", "1"]  # as Caffe does
    target.copy_trained_layers(tmp_path / "w.h5")
    assert torch.equal(target.arena.data, source.arena.data)


def test_a_net_that_does_not_share_needs_its_own_values(tmp_path):
    save_hdf5(shared(WEIGHTS, 1), tmp_path / "w.h5")
    assert "layer 'b': 1 blob(s) in the file, 2 in the net" in refusal(shared("", 2), tmp_path / "w.h5")


def test_another_shape_is_refused(tmp_path):
    save_hdf5(make_net(chain("one")), tmp_path / "w.h5")
    with h5py.File(tmp_path / "w.h5", "r+") as file:
        del file["data/one/0"]
        file["data/one/0"] = np.ones((3, 4))
    message = refusal(make_net(chain("one"), seed=2), tmp_path / "w.h5")
    assert "layer 'one': blob 0 has shape 3x4 in the file, 3x3 in the net" in message
    assert "rename the layer" in message


@pytest.mark.parametrize(
    ("fill", "says"),
    [
        (lambda file: None, "its group 'data' is missing"),
        (lambda file: file.update(data=np.ones((4, 3))), "its group 'data' is a dataset"),
        (lambda file: file.update({"data/label": np.ones(3)}), "dataset '/data/label' is none"),
        (lambda file: file.update({"data/one/weights": np.ones(3)}), "dataset '/data/one/weights' is none"),
        (lambda file: file.update({"data/one/00": np.ones(3)}), "dataset '/data/one/00' is none"),
        (lambda file: file.update({"data/one/0": "text"}), "dataset '/data/one/0'"),
        (lambda file: file.update({"data/one/0": np.ones((3, 3))}), "1 blob(s) in the file"),
        (lambda file: (file.create_group("data"), file.create_group("layers/1")), "cut short or damaged"),
    ],
)
def test_other_hdf5_files_are_refused(tmp_path, fill, says):
    with h5py.File(tmp_path / "w.h5", "w") as file:
        fill(file)
    assert says in refusal(make_net(chain("one")), tmp_path / "w.h5")


def test_groups_that_lie_in_a_circle_end(tmp_path):
    save_hdf5(make_net(chain("one"), seed=2), tmp_path / "w.h5")
    with h5py.File(tmp_path / "w.h5", "r+") as file:
        file["data/circle"] = file["data"]
    net = make_net(chain("one"))
    net.copy_trained_layers(tmp_path / "w.h5")
    assert torch.equal(net.arena.data, make_net(chain("one"), seed=2).arena.data)


def test_damaged_files_are_refused_and_leave_the_net_as_it_was(tmp_path):
    save_hdf5(make_net(chain("one"), seed=2), tmp_path / "whole.h5")
    whole = (tmp_path / "whole.h5").read_bytes()
    path = tmp_path / "w.h5"
    for length in range(8, len(whole), len(whole) // 23):
        path.write_bytes(whole[:length])
        assert "cut short or damaged" in refusal(make_net(chain("one")), path)
    random = np.random.default_rng(3)
    for _ in range(60):
        mutated = bytearray(whole)
        for place in random.integers(8, len(whole), 20):
            mutated[place] = random.integers(256)
        path.write_bytes(bytes(mutated))
        net = make_net(chain("one"))
        try:
            net.copy_trained_layers(path)
        except NetError as error:
            assert error.exit_code == EXIT_BAD_INPUT
