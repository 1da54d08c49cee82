"""Nets of the operators that the exporter here writes, read as operators: the same layers under the same names."""

from __future__ import annotations

import onnx
import pytest

from mgcaffe.engine.layer import TEST
from mgcaffe.engine.net import Net
from mgcaffe.prototxt import read_net_source
from mgcaffe.tools.convert.conversion import convert
from mgcaffe.tools.convert.onnx_files import read_onnx
from tests.support.netkit import inputs
from tests.support.onnxkit import fill_at_random, random_net, write
from tests.support.paths import IMAGE_MODELS, MODELS

pytestmark = pytest.mark.slow

WRITTEN_OUT = ["Eltwise", "Pooling", "Power", "Power", "Power", "Eltwise"]
"""What LRN within a channel becomes."""


def stripped(net, path):
    """Write a net without what says which net it was."""
    model = write(net, path)
    del model.metadata_props[:]
    onnx.save(model, path)
    return model


def narrow(path):
    """A net of models/ with a sixteenth of its channels."""
    source = read_net_source(path)
    for layer in source.param.layer:
        for param in (layer.convolution_param, layer.inner_product_param):
            if param.num_output:
                param.num_output = max(4, param.num_output // 16)
    net = Net(source.param, phase=TEST, sources=source, seed=1)
    fill_at_random(net)
    return net


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_a_deploy_net_has_its_layers_again(name, tmp_path):
    net = narrow(MODELS / name / "deploy.prototxt")
    stripped(net, tmp_path / "net.onnx")
    again = read_onnx(tmp_path / "net.onnx").source.param
    within = {layer.name for layer in net.param.layer if layer.type == "LRN" and layer.lrn_param.norm_region}
    expected = [(layer.name, layer.type) for layer in net.param.layer if layer.name not in within]
    found = [(layer.name, layer.type) for layer in again.layer if layer.name.split("_")[0] not in within]
    assert found == expected
    for layer in within:
        assert [each.type for each in again.layer if each.name.split("_")[0] == layer] == WRITTEN_OUT


def test_layers_of_several_operators_are_one_layer_again_and_compute_the_same(tmp_path):
    text = inputs(x=(2, 3, 4, 4)) + (
        'layer { name: "norm" type: "BatchNorm" bottom: "x" top: "n" }'
        'layer { name: "scale" type: "Scale" bottom: "n" top: "n" scale_param { bias_term: true } }'
        'layer { name: "ip" type: "InnerProduct" bottom: "n" top: "h" inner_product_param { num_output: 5 } }'
        'layer { name: "drop" type: "Dropout" bottom: "h" top: "h" dropout_param { dropout_ratio: 0.3 } }'
        'layer { name: "more" type: "Scale" bottom: "h" top: "y" }'
        'layer { name: "flat" type: "Flatten" bottom: "n" top: "f" }'
    )
    stripped(random_net(text), tmp_path / "net.onnx")
    result = convert(tmp_path / "net.onnx", tmp_path / "back.prototxt")
    assert result.holds and result.differences[0].largest_relative < 1e-5
    again = {layer.name: layer for layer in read_net_source(tmp_path / "back.prototxt").param.layer}
    assert list(again) == ["x", "norm", "scale", "ip", "drop", "more", "flat"]
    assert again["scale"].scale_param.bias_term and not again["more"].scale_param.bias_term
    assert again["drop"].dropout_param.dropout_ratio == pytest.approx(0.3)


def test_an_edited_graph_is_read_by_its_operators_and_a_note_says_so(tmp_path):
    text = inputs(x=(2, 3)) + 'layer { name: "act" type: "ReLU" bottom: "x" top: "y" }'
    model = write(random_net(text), tmp_path / "net.onnx")
    model.graph.node[0].op_type = "Tanh"
    onnx.save(model, tmp_path / "net.onnx")
    result = convert(tmp_path / "net.onnx", tmp_path / "back.prototxt")
    assert len(result.notes) == 1 and result.notes[0].endswith(
        "its graph was changed since: its operators are read instead"
    )
    assert read_net_source(tmp_path / "back.prototxt").param.layer[1].type == "TanH"
