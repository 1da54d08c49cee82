"""Weights alone, as safetensors, npz, HDF5 and caffemodel: the same arrays in each, and a model behind their net."""

from __future__ import annotations

import importlib.util
import zipfile

import numpy as np
import pytest
import torch

from mgcaffe.engine.net import Net
from mgcaffe.errors import DataError, EngineError, NetError, UsageError
from mgcaffe.prototxt import NetParameter, blob_array, fill_blob, parse_text, read_net, write_binary
from mgcaffe.tools.convert import array_files
from mgcaffe.tools.convert.comparison import compare_models
from mgcaffe.tools.convert.conversion import convert
from mgcaffe.tools.convert.format_tables import split_models
from mgcaffe.tools.convert.weights_files import read_saved

safetensors_numpy = pytest.importorskip("safetensors.numpy")
safetensors_torch = pytest.importorskip("safetensors.torch")

NET = """
name: "small"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "block/ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 4 } }
layer { name: "one" type: "InnerProduct" bottom: "ip" top: "one" param { name: "w" }
  inner_product_param { num_output: 4 } }
layer { name: "two" type: "InnerProduct" bottom: "one" top: "two" param { name: "w" }
  inner_product_param { num_output: 4 } }
"""
OWN = {"block/ip/0", "block/ip/1", "one/0", "one/1", "two/1"}  # the first weights of `two` are those of `one`
KINDS = ("safetensors", "npz", "caffemodel.h5", "h5", "caffemodel")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with a net and its weights."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(NET)
    net = Net(parse_text(NET, NetParameter), seed=1)
    for number, parameter in enumerate(net.parameters):
        parameter.data.normal_(generator=torch.Generator().manual_seed(number))
    write_binary(net.to_proto(), "w.caffemodel")
    return tmp_path


def arrays(path):
    return {f"{layer.name}/{number}": blob.load() for layer in read_saved(path) for number, blob in layer.blobs.items()}


def refusal(source, target):
    with pytest.raises(EngineError) as caught:
        convert(source, target)
    assert caught.value.exit_code == (2 if isinstance(caught.value, UsageError) else 65)
    return str(caught.value)


def test_weights_go_from_each_kind_to_each_other_and_stay_the_same(folder):
    original = arrays(folder / "w.caffemodel")
    last = "w.caffemodel"
    for number, kind in enumerate((*KINDS, "npz", "safetensors", "h5", *KINDS)):
        target = f"{number}.{kind}"
        result = convert(last, target)
        assert result.holds and result.tolerance == 0 and [path.name for path in result.files] == [target]
        assert {each.name for each in result.differences} == set(original) == OWN | {"two/0"}
        last = target
        again = arrays(folder / target)
        assert all(np.array_equal(again[name], values) for name, values in original.items())
    layers = {layer.name: layer for layer in read_net(last).layer}
    np.testing.assert_array_equal(blob_array(layers["two"].blobs[0]), original["two/0"])
    assert not [path for path in folder.iterdir() if path.suffix == ".prototxt" and path.name != "net.prototxt"]
    assert compare_models(["w.caffemodel"], [last]).differences[0].largest_absolute == 0


def test_large_weights_keep_their_shape(folder):
    net = Net(parse_text(NET.replace("num_output: 4", "num_output: 600"), NetParameter), seed=1)
    write_binary(net.to_proto(), "large.caffemodel")  # over 1 MiB its values are left in the file until they are read
    for kind in KINDS:
        convert("large.caffemodel", f"copy.{kind}")
        found = arrays(folder / f"copy.{kind}")
        assert found["one/0"].shape == (600, 600), kind
        np.testing.assert_array_equal(found["one/0"], net.parameters[2].data.numpy())


def test_with_a_net_the_weights_are_checked_against_it_and_shared_ones_are_there_once(folder):
    for kind in KINDS[:2]:
        result = convert(["net.prototxt", "w.caffemodel"], f"new.{kind}")
        assert result.holds and {each.name for each in result.differences} == OWN
        assert set(arrays(folder / f"new.{kind}")) == OWN
        back = convert(["net.prototxt", f"new.{kind}"], f"back_{kind}.prototxt")
        assert back.notes == () and {each.name for each in back.differences} == {"ip", "one", "two"}
        assert (folder / f"back_{kind}.caffemodel").read_bytes() == (
            folder / "back_safetensors.caffemodel"
        ).read_bytes()
        both = compare_models(["net.prototxt", "w.caffemodel"], ["net.prototxt", f"new.{kind}"])
        assert both.differences[0].largest_absolute == 0
        said = refusal(f"new.{kind}", "other.caffemodel")
        assert "layer 'two' has no blob 0, which another layer may lend it" in said and "NET.prototxt" in said
    (folder / "other.prototxt").write_text(NET.replace("dim: 3", "dim: 5"))
    assert "blob 0 has shape 4x3 in the file, 4x5 in the net" in refusal(["other.prototxt", "new.npz"], "x.npz")
    (folder / "other.prototxt").write_text(NET.replace('"one"', '"uno"'))
    result = convert(["other.prototxt", "new.npz"], "x.npz")
    assert any("layer 'one': the net has no layer of this name" in note for note in result.notes)


def test_a_file_without_an_ending_is_known_by_its_content_behind_a_net(folder):
    for kind in KINDS:
        convert("w.caffemodel", f"new.{kind}")
        (folder / f"new.{kind}").rename("snapshot")
        words = ["net.prototxt", "snapshot"]
        assert split_models(words) == [words] and split_models([*words, "w.npz"]) == [words, ["w.npz"]]
        assert convert(words, "back.npz").notes == ()
        assert set(arrays(folder / "back.npz")) == OWN


def test_other_types_of_numbers_become_float32_and_doubles_stay(folder):
    values = np.linspace(-1, 1, 6).reshape(2, 3)
    tensors = {"a/0": torch.from_numpy(values), "a/1": torch.tensor([1.5, 2]).bfloat16(), "b/0": torch.ones(3).half()}
    safetensors_torch.save_file(tensors, "w.safetensors")
    others = {
        "a/1": np.array([1.5, 2], np.float16),
        "b/0": np.ones(3, np.int8),
        "c/0": np.ones((2, 0), np.float32),
        "c/1": np.float32(3),
    }
    np.savez("w.npz", **{"a/0": values.astype(">f8"), **others})
    for name in ("w.safetensors", "w.npz"):
        for target in ("x.npz", "x.caffemodel", "x.h5", "x.safetensors"):
            convert(name, target)
            found = arrays(folder / target)
            kinds = {"a/0": np.float64, "a/1": np.float32, "b/0": np.float32, "c/0": np.float32, "c/1": np.float32}
            assert {key: each.dtype for key, each in found.items()} == {key: kinds[key] for key in found}
            np.testing.assert_array_equal(found["a/0"], values)
            np.testing.assert_array_equal(found["a/1"], [1.5, 2])


def test_files_that_cannot_be_read_are_one_message(folder):
    for kind in KINDS:
        convert("w.caffemodel", f"whole.{kind}")
        content = (folder / f"whole.{kind}").read_bytes()
        for name, damaged in (("cut", content[: len(content) // 2]), ("noise", b"\xff" * 99), ("empty", b"")):
            (folder / f"{name}.{kind}").write_bytes(damaged)
            for source in (f"{name}.{kind}", ["net.prototxt", f"{name}.{kind}"]):
                said = refusal(source, "out.safetensors")
                assert f"{name}.{kind}" in said and len(said.splitlines()) <= 4, said
        assert f"none.{kind}" in refusal(f"none.{kind}", "out.npz")
    assert not list(folder.glob("out*"))


def test_nothing_is_unpickled_and_what_is_no_number_is_refused(folder):
    np.savez("object.npz", **{"a/0": np.array([{}], object)})
    assert "object.npz cannot be read" in refusal("object.npz", "out.npz")
    np.savez("text.npz", **{"a/0": np.array(["a"])})
    assert "text.npz: array 'a/0' holds no numbers (<U1)" in refusal("text.npz", "out.npz")
    np.save("single.npy", np.ones(3))
    (folder / "single.npy").rename("single.npz")
    assert "single.npz cannot be read: cut short or damaged (it is no zip file)" in refusal("single.npz", "out.npz")
    torch.save({"a.weight": torch.ones(3)}, "saved.pt")
    for source in (["net.prototxt", "saved.pt"], "saved.pt"):
        assert "saved.pt is" in (said := refusal(source, "out.npz")) and "a checkpoint of PyTorch" in said
        assert "FILE.py:FUNCTION" in said
    with zipfile.ZipFile("twice.npz", "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        for _ in range(2):
            with archive.open("a/0.npy", "w") as file:
                np.lib.format.write_array(file, np.ones(3))
    assert "array 'a/0' is there twice" in refusal("twice.npz", "out.npz")


def test_names_of_other_programs_are_listed_and_not_guessed(folder):
    names = ["conv1/0", "conv1.weight", "conv1.bias", "bn1.running_mean", "bn/-1", "bn/01", "7"]
    safetensors_numpy.save_file({name: np.ones(2, np.float32) for name in names}, "module.safetensors")
    for source in ("module.safetensors", ["net.prototxt", "module.safetensors"]):
        said = refusal(source, "out.npz")
        assert said.startswith("module.safetensors: 6 of 7 arrays are not called layer/number: ")
        assert "'bn/01'" in said and "and 2 more" in said and "'conv1/0' for the first one of layer" in said
    np.savez("none.npz")
    assert "none.npz holds no arrays" in refusal("none.npz", "out.npz")
    np.savez("other.npz", **{"elsewhere/0": np.ones(2)})
    with pytest.raises(DataError, match=r"no layer of net\.prototxt is named in other\.npz"):
        convert(["net.prototxt", "other.npz"], "out.npz")


def test_weights_that_say_too_little_without_their_net_are_refused(folder):
    old = NetParameter()
    blob = old.layer.add(name="ip").blobs.add()
    fill_blob(blob, np.ones(4, np.float32))
    blob.ClearField("shape")
    blob.num, blob.channels, blob.height, blob.width = 1, 1, 1, 4
    write_binary(old, "old.caffemodel")
    assert "blob 0 of layer 'ip' is stored in the old form, 1x1x1x4" in refusal("old.caffemodel", "out.npz")
    twice = read_net("w.caffemodel")
    twice.layer[2].name = "block/ip"
    write_binary(twice, "twice.caffemodel")
    assert "several layers 'block/ip' with weights" in refusal("twice.caffemodel", "out.safetensors")
    write_binary(NetParameter(name="none"), "none.caffemodel")
    assert "none.caffemodel holds no weights" in refusal("none.caffemodel", "out.npz")


def test_weights_alone_become_no_model_and_are_compared_with_weights_alone(folder):
    for source in ("w.caffemodel", "w.npz"):
        assert f"{source} is taken as weights alone" in refusal(source, "out.onnx")
    convert(["net.prototxt", "w.caffemodel"], "w.npz")
    with pytest.raises(UsageError, match=r"w\.npz holds weights alone, and the other is a model that runs"):
        compare_models(["net.prototxt", "w.caffemodel"], ["w.npz"])
    with pytest.raises(DataError, match="only one of the two has two/0"):
        compare_models(["w.caffemodel"], ["w.npz"])
    values = arrays(folder / "w.npz")
    values["one/1"] = values["one/1"] + np.float32(1)
    np.savez("changed.npz", **values)
    result = compare_models(["w.npz"], ["changed.npz"])
    assert not result.holds and result.differences[0].name == "one/1"
    assert split_models(["w.npz", "changed.npz"]) == [["w.npz"], ["changed.npz"]]


def test_what_is_written_is_read_back(folder, monkeypatch):
    """A fault between writing and reading is seen, and keeps the file from getting its name."""
    write = array_files._write_npz

    def wrong(blobs, path):
        write(blobs, path)
        with np.load(path) as file:
            changed = {name: file[name] for name in file.files}
        changed["one/0"][0, 0] += np.float32(1e-6)
        np.savez(path, **changed)

    monkeypatch.setattr(array_files, "_write_npz", wrong)
    result = convert("w.caffemodel", "out.npz", tolerance=1)
    assert not result.holds and result.differences[0].name == "one/0"
    assert [path.name for path in folder.glob("out*")] == ["out.unproven.npz"]


def test_a_missing_package_is_named_with_the_command_that_installs_it(folder, monkeypatch):
    convert("w.caffemodel", "w.safetensors")
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "safetensors" else find(name))
    for source, target in (("w.safetensors", "w.npz"), ("w.caffemodel", "x.safetensors")):
        with pytest.raises(UsageError, match="safetensors is not installed\n  pip install 'mgcaffe\\[safetensors\\]'"):
            convert(source, target)
    with pytest.raises(NetError, match="cannot be read"):
        (folder / "bad.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
        convert("bad.h5", "w.npz")


def test_a_file_that_cannot_be_written_is_named(folder):
    for kind in KINDS:
        with pytest.raises(EngineError, match=rf"none/out\.unproven\.{kind}.*: No such file") as caught:
            convert("w.caffemodel", f"none/out.{kind}")
        assert caught.value.exit_code == 73
