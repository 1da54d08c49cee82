"""Conversions as a whole: formats by name, the proof, files under another name until it holds; comparisons."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys

import numpy as np
import pytest

import mgcaffe
from mgcaffe.engine.weights.caffemodel import save_caffemodel
from mgcaffe.errors import DataError, EngineError, UsageError
from mgcaffe.prototxt import blob_array, fill_blob, read_net, write_binary, write_text
from mgcaffe.tools.convert import conversion
from mgcaffe.tools.convert.comparison import compare_models
from mgcaffe.tools.convert.conversion import convert
from mgcaffe.tools.convert.format_tables import open_model, split_models
from mgcaffe.tools.convert.formats import Options
from mgcaffe.tools.convert.model import read_model
from tests.support.onnxkit import fill_at_random

pytestmark = pytest.mark.slow

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

NET = """
name: "small"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 6 dim: 6 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 4 kernel_size: 3 } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip" inner_product_param { num_output: 5 } }
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }
"""
OLD_NET = """
name: "old"
input: "data" input_dim: 2 input_dim: 3 input_dim: 6 input_dim: 6
layers { name: "conv" type: CONVOLUTION bottom: "data" top: "conv" convolution_param { num_output: 4 kernel_size: 3 } }
layers { name: "relu" type: RELU bottom: "conv" top: "conv" }
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with a net and its weights."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(NET)
    net = read_model("net.prototxt").build(seed=1)
    fill_at_random(net)
    write_binary(net.to_proto(), "net.caffemodel")
    return tmp_path


@pytest.fixture
def wrong_onnx(monkeypatch):
    """The ONNX side gives other values than it should."""
    from mgcaffe.tools.convert.onnx_side import OnnxSide

    right = OnnxSide.run

    def run(self, inputs):
        return {name: value + (name == "ip") * np.float32(0.5) for name, value in right(self, inputs).items()}

    monkeypatch.setattr(OnnxSide, "run", run)


def names(folder):
    return sorted(path.name for path in folder.iterdir() if path.name not in ("net.prototxt", "net.caffemodel"))


def test_values_that_are_not_finite_on_both_sides_are_named(folder):
    log = 'layer { name: "log" type: "Log" bottom: "ip" top: "log" }'
    (folder / "log.prototxt").write_text(NET + log)
    result = convert(["log.prototxt", "net.caffemodel"], "out.onnx")
    assert result.holds and result.notes[-1] == "values that are not finite, which proves little: log"
    compared = compare_models(["log.prototxt", "net.caffemodel"], ["out.onnx"])
    assert compared.notes == result.notes[-1:]
    assert not any("finite" in note for note in convert(["net.prototxt", "net.caffemodel"], "fine.onnx").notes)


def test_a_net_becomes_an_onnx_file_that_is_proven(folder):
    result = mgcaffe.convert(["net.prototxt", "net.caffemodel"], "out.onnx")
    assert result.holds and names(folder) == ["out.onnx"]
    assert {each.name for each in result.differences} == {"conv@conv", "conv", "ip", "prob"}
    assert result.differences[0].largest_relative < 1e-5
    assert str(result).endswith("wrote out.onnx")


def test_another_input_shape_is_written_into_the_model(folder):
    result = convert("net.prototxt", "out.onnx", input_shape=(5, 3, 6, 6))
    assert result.notes == ("no weights are given: those of the fillers are used (seed 0)",)
    side = open_model(["out.onnx"], Options()).side()
    assert side.inputs == {"data": (5, 3, 6, 6)}
    with pytest.raises(UsageError, match="--input_shape image: the net has no such input"):
        convert("net.prototxt", "out.onnx", input_shape={"image": (1, 3, 6, 6)})


def test_where_the_proof_fails_the_files_keep_another_name(folder, wrong_onnx):
    (folder / "out.onnx").write_bytes(b"from before")
    result = convert(["net.prototxt", "net.caffemodel"], "out.onnx")
    assert not result.holds and result.differences[0].name == "ip"
    assert names(folder) == ["out.onnx", "out.unproven.onnx"]
    assert (folder / "out.onnx").read_bytes() == b"from before"
    assert [path.name for path in result.files] == ["out.unproven.onnx"]
    assert convert(["net.prototxt", "net.caffemodel"], "out.onnx", tolerance=9).holds
    assert names(folder) == ["out.onnx"]


@pytest.mark.parametrize(("factor", "holds"), [(1 + 0.9e-4, True), (1 + 1.1e-4, False)])
def test_a_ten_thousandth_is_accepted_unless_told_otherwise(folder, monkeypatch, factor, holds):
    from mgcaffe.tools.convert.onnx_side import OnnxSide

    right = OnnxSide.run
    monkeypatch.setattr(
        OnnxSide,
        "run",
        lambda self, inputs: {name: value * np.float32(factor) for name, value in right(self, inputs).items()},
    )
    assert convert(["net.prototxt", "net.caffemodel"], "out.onnx").holds == holds
    assert compare_models(["net.prototxt", "net.caffemodel"], [names(folder)[0]]).holds == holds


def test_an_error_leaves_nothing_behind(folder, monkeypatch):
    def fail(*arguments):
        raise DataError("broken")

    monkeypatch.setattr(conversion, "compare", fail)
    with pytest.raises(DataError, match="broken"):
        convert("net.prototxt", "out.onnx")
    assert names(folder) == []


def test_without_the_check_the_result_and_the_file_say_so(folder, wrong_onnx):
    import onnx

    result = convert("net.prototxt", "out.onnx", check=False)
    assert result.holds and not result.differences
    assert "not compared with its source (--no_check)" in str(result)
    assert onnx.load("out.onnx").doc_string == "not compared with its source (--no_check)"


@pytest.mark.parametrize(
    ("target", "written"),
    [
        ("new.prototxt", ["new.caffemodel", "new.prototxt"]),
        ("new.caffemodel", ["new.caffemodel", "new.prototxt"]),
        ("new.caffemodel.h5", ["new.caffemodel.h5", "new.prototxt"]),
        ("new.h5", ["new.h5", "new.prototxt"]),
    ],
)
def test_nets_and_weights_are_written_in_other_forms_and_back(folder, target, written):
    result = convert(["net.prototxt", "net.caffemodel"], target)
    assert names(folder) == written and result.differences[0].largest_absolute == 0
    weights = next(path for path in result.files if path.suffix != ".prototxt")
    back = convert(["new.prototxt", weights], "back.prototxt")
    assert back.differences[0].largest_absolute == 0
    assert read_net("back.caffemodel").layer[1].blobs[0] == read_net("net.caffemodel").layer[1].blobs[0]
    assert read_net("back.prototxt") == read_net("net.prototxt")


def test_an_old_net_is_upgraded_on_the_way(folder):
    (folder / "old.prototxt").write_text(OLD_NET)
    convert("old.prototxt", "new.prototxt")
    text = (folder / "new.prototxt").read_text()
    assert "layers" not in text and 'type: "Convolution"' in text and "input_param" in text
    assert read_net("new.prototxt") == read_net("old.prototxt")


def test_weights_that_are_missing_and_weights_that_are_not_needed_are_named(folder):
    weights = read_net("net.caffemodel")
    weights.layer[1].name = "gone"
    write_binary(weights, "other.caffemodel")
    result = convert(["net.prototxt", "other.caffemodel"], "out.onnx")
    assert result.notes == (
        "layer 'gone': the net has no layer of this name",
        "layer 'conv': the file has no layer of this name; keeps its values",
    )


def test_weights_in_the_definition_are_no_fillers_and_are_written_beside_the_net(folder):
    full, empty = read_net("net.prototxt"), read_net("net.prototxt")
    for layer, row in zip(read_model("net.prototxt", "net.caffemodel").build().layers, full.layer, strict=True):
        for parameter in layer.parameters:
            fill_blob(row.blobs.add(), parameter.data.numpy())
    write_text(full, "full.prototxt")
    assert convert("full.prototxt", "out.onnx").notes == ()
    result = convert("full.prototxt", "new.prototxt")
    assert result.holds and result.notes == () and read_net("new.prototxt") == empty
    values = [[blob_array(blob).tolist() for blob in layer.blobs] for layer in full.layer if layer.blobs]
    layers = read_net("new.caffemodel").layer
    assert [[blob_array(blob).tolist() for blob in layer.blobs] for layer in layers if layer.blobs] == values
    assert convert("full.prototxt", "new.caffemodel").holds  # what is there already is replaced by no fillers
    full.layer[3].ClearField("blobs")
    write_text(full, "part.prototxt")
    result = convert("part.prototxt", "out.onnx")
    assert result.notes == ("no weights are given for ip: those of the fillers are used (seed 0)",)
    with pytest.raises(UsageError, match=r"new\.caffemodel is there already, .* only its fillers for layer 'ip'"):
        convert("part.prototxt", "new.caffemodel")


def test_a_target_without_a_format_or_that_is_the_source_is_refused(folder):
    with pytest.raises(UsageError, match=r"the name 'out\.txt' does not say which format to write"):
        convert("net.prototxt", "out.txt")
    with pytest.raises(UsageError, match=r"net\.prototxt would be written, but it is what is read"):
        convert(["net.prototxt", "net.caffemodel"], "net.caffemodel.h5")
    with pytest.raises(UsageError, match="2 models are given to convert"):
        convert(["net.prototxt", "other.prototxt"], "out.onnx")
    with pytest.raises(UsageError, match="--allow=everything: there is nothing of this name"):
        convert("net.prototxt", "out.onnx", allow=["everything"])


def test_a_folder_in_the_place_of_what_is_built_is_one_message(folder):
    (folder / "out.unproven.onnx").mkdir()
    with pytest.raises(EngineError, match=r"cannot write out\.unproven\.onnx") as caught:
        convert("net.prototxt", "out.onnx")
    assert caught.value.exit_code == 73


def test_a_folder_in_the_place_of_one_of_two_files_leaves_the_other_as_it_is(folder):
    (folder / "out.prototxt").mkdir()
    (folder / "out.caffemodel").write_text("mine")
    with pytest.raises(EngineError, match=r"cannot write out\.prototxt: it is a folder") as caught:
        convert(["net.prototxt", "net.caffemodel"], "out.prototxt")
    assert caught.value.exit_code == 73 and (folder / "out.caffemodel").read_text() == "mine"


@pytest.mark.parametrize("target", ["net.caffemodel", "w.npz"])
def test_weights_that_are_there_are_not_replaced_by_those_of_fillers(folder, target):
    (folder / "w.npz").write_bytes(b"weights")
    before = (folder / target).read_bytes()
    (folder / "deploy.prototxt").write_text(NET)
    with pytest.raises(UsageError, match=f"{target} is there already, .*\n.*name the file to write behind"):
        convert("deploy.prototxt", target)
    assert (folder / target).read_bytes() == before


@pytest.mark.parametrize(
    ("word", "hint"),
    [("nets.py", "nets.py:FUNCTION"), ("resnet.pth", "FILE.py:FUNCTION"), ("sub/x.pt", "FILE.py:FUNCTION")],
)
def test_files_of_pytorch_that_are_no_models_are_named(folder, word, hint):
    for command in (lambda: convert(word, "out.prototxt"), lambda: compare_models([word], ["net.prototxt"])):
        with pytest.raises(UsageError, match=f"{word} .*\n.*{hint}"):
            command()


def test_an_onnx_model_becomes_a_net_again(folder):
    convert(["net.prototxt", "net.caffemodel"], "out.onnx")
    assert convert("out.onnx", "back.prototxt").holds


def test_weights_belong_to_the_net_before_them():
    words = ["a.prototxt", "a.caffemodel", "b.onnx", "c.prototxt", "c.caffemodel.h5"]
    assert split_models(words) == [words[:2], words[2:3], words[3:]]


def test_weights_of_any_name_are_known_by_their_content(folder):
    convert(["net.prototxt", "net.caffemodel"], "new.caffemodel.h5")
    for name in ("net.caffemodel", "new.caffemodel.h5"):
        (folder / "snapshot_10").write_bytes((folder / name).read_bytes())
        assert split_models(["net.prototxt", "snapshot_10"]) == [["net.prototxt", "snapshot_10"]]
        assert convert(["net.prototxt", "snapshot_10"], "out.onnx").notes == ()
    (folder / "text").write_text(NET)
    assert split_models(["net.prototxt", "text"]) == [["net.prototxt"], ["text"]]
    assert split_models(["net.prototxt", "out.onnx"]) == [["net.prototxt"], ["out.onnx"]]


def test_two_models_of_different_formats_are_compared_by_name(folder):
    convert(["net.prototxt", "net.caffemodel"], "out.onnx")
    result = compare_models(["out.onnx"], ["net.prototxt", "net.caffemodel"])
    assert result.holds and {each.name for each in result.differences} == {"conv@conv", "conv", "ip", "prob"}
    other = compare_models(["net.prototxt"], ["out.onnx"], seed=3)
    assert not other.holds


def test_nets_that_read_numbers_of_classes_are_compared_on_such_numbers(folder):
    embed = """
    layer { name: "words" type: "Input" top: "words" input_param { shape { dim: 4 dim: 2 } } }
    layer { name: "embed" type: "Embed" bottom: "words" top: "e" embed_param { input_dim: 3 num_output: 5 } }
    """
    (folder / "embed.prototxt").write_text(embed)
    net = read_model("embed.prototxt").build(seed=1)
    fill_at_random(net)
    write_binary(net.to_proto(), "embed.caffemodel")
    convert(["embed.prototxt", "embed.caffemodel"], "embed.onnx")
    assert compare_models(["embed.onnx"], ["embed.prototxt", "embed.caffemodel"]).holds
    assert not compare_models(["embed.prototxt"], ["embed.onnx"]).holds


def test_models_without_a_common_name_are_compared_by_their_outputs(folder):
    text = (
        NET.replace('"data"', '"image"').replace('"prob"', '"scores"').replace('"conv"', '"c"').replace('"ip"', '"i"')
    )
    (folder / "renamed.prototxt").write_text(text)
    weights = read_net("net.caffemodel")
    for layer in weights.layer:
        layer.name = {"conv": "c", "ip": "i"}.get(layer.name, layer.name)
    write_binary(weights, "renamed.caffemodel")
    convert(["renamed.prototxt", "renamed.caffemodel"], "renamed.onnx")
    result = compare_models(["net.prototxt", "net.caffemodel"], ["renamed.onnx"])
    assert result.holds and [each.name for each in result.differences] == ["prob"]
    (folder / "more.prototxt").write_text(text + 'layer { name: "more" type: "ReLU" bottom: "i" top: "more" }')
    with pytest.raises(DataError, match="no value has one name in both models, and their outputs are prob and more"):
        compare_models(["net.prototxt"], ["more.prototxt"])


def test_outputs_are_compared_also_where_other_values_have_common_names(folder):
    weights = "net.caffemodel"
    (folder / "other.prototxt").write_text(NET.replace('"prob"', '"scores"').replace('"Softmax"', '"Sigmoid"'))
    result = compare_models(["net.prototxt", weights], ["other.prototxt", weights])
    assert not result.holds and result.differences[0].name == "prob"
    (folder / "more.prototxt").write_text(NET + 'layer { name: "more" type: "ReLU" bottom: "ip" top: "more" }')
    for models in (["net.prototxt", "more.prototxt"], ["more.prototxt", "net.prototxt"]):
        result = compare_models(*([name, weights] for name in models))
        assert result.holds and result.notes == ("not compared, because the other model has no such output: more",)


def test_a_note_says_where_there_is_nothing_to_compare(folder):
    result = compare_models(["net.prototxt"], ["net.prototxt"], input_shapes=[("data", (0, 3, 8, 8))])
    assert result.notes[-1].startswith("blobs without values, which proves nothing: ")


def test_a_difference_that_is_infinite_is_none_in_json(folder):
    from mgcaffe.tools.convert.proof import Difference, document

    worst = Difference("a", math.inf, math.inf)
    assert document([worst, dataclasses.replace(worst, largest_absolute=1.0, largest_relative=0.5)]) == {
        "largest_relative": None,
        "blobs": [
            {"name": "a", "largest_absolute": None, "largest_relative": None},
            {"name": "a", "largest_absolute": 1.0, "largest_relative": 0.5},
        ],
    }


@pytest.mark.slow
def test_a_conversion_takes_no_more_memory_than_twice_the_weights(folder):
    """The weights once in the net, and once in the file that is written and that onnxruntime maps into memory."""
    text = NET.replace("num_output: 5", "num_output: 400000")
    (folder / "large.prototxt").write_text(text)
    weights = 4 * 400_001 * 64
    net = read_model("large.prototxt").build(seed=1)
    save_caffemodel(net, "large.caffemodel")
    del net
    script = (
        "import resource, sys, torch, onnx, onnxruntime\n"
        "from mgcaffe.tools.convert.conversion import convert\n"
        "def most(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024\n"
        "convert('net.prototxt', 'small.onnx')\n"
        "before = most()\n"
        "convert(['large.prototxt', 'large.caffemodel'], 'large.onnx')\n"
        "print(most() - before)\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert int(result.stdout) < 2 * weights
