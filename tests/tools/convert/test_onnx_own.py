"""ONNX files of ours become the net again that they were made from, unless their graph was edited."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mgcaffe.errors import DataError, PrototxtError
from mgcaffe.prototxt import print_text, read_net
from tests.support.netkit import inputs

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx

from mgcaffe.tools.convert import onnx_own
from mgcaffe.tools.convert.conversion import convert
from mgcaffe.tools.convert.onnx_own import NET, STRUCTURE, has_own_net, own_model
from tests.support.onnxkit import random_net, write

NET_TEXT = inputs(x=(2, 3, 4, 4)) + (
    'layer { name: "conv" type: "Convolution" bottom: "x" top: "c" convolution_param { num_output: 4 kernel_size: 3 } }'
    'layer { name: "norm" type: "BatchNorm" bottom: "c" top: "c" }'
    'layer { name: "slopes" type: "PReLU" bottom: "c" top: "c" }'
    'layer { name: "mvn" type: "MVN" bottom: "c" top: "m" }'
    'layer { name: "drop" type: "Dropout" bottom: "m" top: "m" dropout_param { dropout_ratio: 0.3 } }'
    'layer { name: "ip" type: "InnerProduct" bottom: "m" top: "y" inner_product_param { num_output: 2 axis: 1 } }'
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def model(folder):
    return write(random_net(NET_TEXT), folder / "net.onnx")


def array(model, name):
    return next(each for each in model.graph.initializer if each.name == name)


def set_array(model, name, values):
    array(model, name).CopyFrom(onnx.numpy_helper.from_array(np.asarray(values, np.float32), name))


def test_the_net_comes_back_whole(folder, model):
    result = convert("net.onnx", "back.prototxt")
    assert result.holds and result.notes == ()
    assert {each.name for each in result.differences} == {"c@conv", "c@norm", "c", "m@mvn", "m", "y"}
    assert (folder / "back.prototxt").read_text() == print_text(random_net(NET_TEXT).param)
    blobs = {layer.name: layer.blobs for layer in read_net("back.caffemodel").layer}
    assert list(blobs["norm"][2].data) == [1] and list(blobs["slopes"][0].shape.dim) == [4]
    convert(["back.prototxt", "back.caffemodel"], "again.onnx")
    assert (folder / "again.onnx").read_bytes() == (folder / "net.onnx").read_bytes()
    result = convert("net.onnx", "one.prototxt", input_shape=(1, 3, 4, 4), check=False)
    assert list(read_net("one.prototxt").layer[0].input_param.shape[0].dim) == [1, 3, 4, 4]


def test_weights_that_another_program_changed_are_those_of_the_net(folder, model):
    set_array(model, "ip/1", [7, -7])
    set_array(model, "norm/1", [1, 2, 3, 4])
    model.producer_name, model.doc_string = "other", "edited"
    onnx.save(onnx.shape_inference.infer_shapes(model), "changed.onnx", save_as_external_data=True, size_threshold=60)
    result = convert("changed.onnx", "back.caffemodel")
    assert result.holds and result.notes == ()
    blobs = {layer.name: layer.blobs for layer in read_net("back.caffemodel").layer}
    assert list(blobs["ip"][1].data) == [7, -7] and list(blobs["norm"][1].data) == [1, 2, 3, 4]


@pytest.mark.parametrize("edit", [
    lambda model: model.graph.node[0].attribute[0].ints.__setitem__(0, 2),
    lambda model: setattr(model.graph.node[1], "op_type", "Other"),
    lambda model: setattr(model.graph.node[1], "name", "other"),
    lambda model: model.graph.node.pop(),
    lambda model: model.graph.node[1].input.reverse(),
    lambda model: setattr(model.graph.input[0].type.tensor_type.shape.dim[0], "dim_value", 5),
    lambda model: setattr(model.graph.output[0], "name", "other"),
    lambda model: setattr(model.opset_import[0], "version", 17),
    lambda model: set_array(model, "drop:constant", 0.4),
    lambda model: set_array(model, "ip/1", [[7, 7]]),
    lambda model: model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(2), "more")),
    lambda model: setattr(next(each for each in model.metadata_props if each.key == NET), "value", 'name: "other"'),
    lambda model: model.functions.add(),
])  # fmt: skip
def test_an_edited_graph_is_no_longer_that_net(model, edit):
    assert own_model(model, Path("net.onnx")) is not None and has_own_net(model)
    edit(model)
    assert own_model(model, Path("net.onnx")) is None and has_own_net(model)


def test_a_file_of_another_program_has_no_net(model):
    for entry in list(model.metadata_props):
        model.metadata_props.remove(entry)
        assert not has_own_net(model) and own_model(model, Path("net.onnx")) is None


def test_an_array_that_cannot_be_read_is_named(folder, model):
    array(model, "ip/0").raw_data = b"123"
    onnx.save(model, "bad.onnx")
    with pytest.raises(DataError, match=r"bad\.onnx: array 'ip/0' has 3 bytes of data"):
        convert("bad.onnx", "back.prototxt")
    assert not list(folder.glob("back*"))


def test_a_net_that_does_not_go_with_its_graph_is_named(folder, model, monkeypatch):
    """Its digest is right, as no other program can make it by accident."""
    monkeypatch.setattr(onnx_own, "_digest", lambda *arguments: "right")
    values = {each.key: each for each in model.metadata_props}
    values[STRUCTURE].value = "right"
    values[NET].value = 'name: "n"\nlayer {'
    with pytest.raises(PrototxtError, match=r"^x\.onnx:mgcaffe\.net:2:\d+: "):
        own_model(model, Path("x.onnx"))
    values[NET].value = NET_TEXT.replace("num_output: 2", "num_output: 3")
    with pytest.raises(DataError, match=r"x\.onnx: array 'ip/0' has shape \(2, 16\), and the blob .* \(3, 16\)"):
        own_model(model, Path("x.onnx")).build()


@pytest.mark.parametrize("text", [
    NET_TEXT.replace('"slopes"', '"norm"'),  # two layers of one name
    NET_TEXT.replace('top: "y"', 'top: "conv/0"'),  # a blob that is called as an array
])  # fmt: skip
def test_arrays_whose_names_do_not_say_which_blob_they_are_leave_the_net_out(folder, text):
    assert not write(random_net(text), folder / "net.onnx").metadata_props


def test_blobs_that_the_graph_does_not_need_are_named(folder):
    by_batch = 'type: "BatchNorm" batch_norm_param { use_global_stats: false }'
    text = NET_TEXT.replace('type: "BatchNorm"', by_batch)
    write(random_net(text), folder / "net.onnx")
    notes = convert("net.onnx", "back.prototxt").notes
    assert notes == tuple(f"layer 'norm': blob {number} is not in the file; keeps its values" for number in range(3))
