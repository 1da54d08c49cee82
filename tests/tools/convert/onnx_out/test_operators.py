"""Every layer type that has an equivalent, in all its variants: onnxruntime computes what our engine does."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from mgcaffe.engine import registry
from mgcaffe.prototxt import BlobProto, fill_blob, write_binary
from mgcaffe.tools.convert.caffe_side import fitting_inputs
from mgcaffe.tools.convert.layer_writer import INPUT, WITHOUT
from mgcaffe.tools.convert.onnx_out.operators import OPERATORS
from mgcaffe.tools.convert.onnx_side import OnnxSide
from tests.support.layer_cases import CASES, LABELS, MATRIX, plain
from tests.support.netkit import inputs
from tests.support.onnxkit import differences, random_net, write

pytestmark = pytest.mark.slow

TOLERANCE = 2e-6


@pytest.mark.parametrize(("layer_type", "case"), [(name, case) for name in CASES for case in CASES[name]])
def test_onnxruntime_computes_the_same(layer_type, case, tmp_path):
    net = random_net(CASES[layer_type][case])
    found = differences(net, tmp_path / "net.onnx", allow={"carried_state"})
    assert found[0].largest_relative <= TOLERANCE, found[0]


def test_every_type_is_in_one_of_the_tables_and_has_a_case():
    types = set(registry.layer_types())
    assert types == {*OPERATORS, *WITHOUT, INPUT}
    assert not set(OPERATORS) & set(WITHOUT)
    assert set(CASES) == set(OPERATORS)


@pytest.mark.parametrize("layer_type", CASES)
def test_the_table_names_exactly_the_operators_that_are_written(layer_type, tmp_path):
    """Each declared operator is used in some case, and none besides."""
    declared = {name for name in OPERATORS[layer_type].becomes.split(", ") if name}
    assert all(onnx.defs.has(name) for name in declared)
    used = set()
    for text in CASES[layer_type].values():
        model = write(random_net(text), tmp_path / "net.onnx", allow={"carried_state"})
        used |= {node.op_type for node in model.graph.node if node.name.startswith("l:")}
    assert used == declared


def test_blobs_that_layers_write_in_place_and_values_that_split_keep_their_names(tmp_path):
    text = inputs(x=(2, 3)) + (
        'layer { name: "fc" type: "InnerProduct" bottom: "x" top: "h" inner_product_param { num_output: 3 } }'
        'layer { name: "act" type: "ReLU" bottom: "h" top: "h" }'
        'layer { name: "drop" type: "Dropout" bottom: "h" top: "h" }'
        'layer { name: "sum" type: "Eltwise" bottom: "h" bottom: "x" top: "out" }'
        'layer { name: "again" type: "Sigmoid" bottom: "h" top: "side" }'
    )
    net = random_net(text)
    model = write(net, tmp_path / "net.onnx")
    assert [value.name for value in model.graph.input] == ["x"]
    assert [value.name for value in model.graph.output] == ["out", "side"]
    made = [(node.op_type, list(node.output)) for node in model.graph.node]
    assert made == [
        ("Gemm", ["h@fc"]), ("Relu", ["h@act"]), ("Dropout", ["h"]), ("Add", ["out"]), ("Sigmoid", ["side"]),
    ]  # fmt: skip
    assert [tensor.name for tensor in model.graph.initializer] == ["fc/0", "fc/1", "drop:constant"]
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(model.graph.initializer[0]), net.parameters[0].data)


def test_a_matrix_that_a_loss_reads_from_a_file_is_in_the_model(tmp_path):
    blob = BlobProto()
    fill_blob(blob, np.random.default_rng(0).random((1, 1, 5, 5), dtype=np.float32))
    write_binary(blob, tmp_path / "h.binaryproto")
    text = plain("InfogainLoss", f'infogain_loss_param {{ source: "{tmp_path}/h.binaryproto" }}', LABELS)
    assert differences(random_net(text), tmp_path / "net.onnx")[0].largest_relative <= TOLERANCE


def test_a_parameter_that_two_layers_share_is_there_once(tmp_path):
    layer = (
        'layer { name: "%s" type: "InnerProduct" bottom: "%s" top: "%s" param { name: "w" } param { name: "b" }'
        " inner_product_param { num_output: 3 } }"
    )
    text = inputs(x=(2, 3)) + layer % ("one", "x", "y") + layer % ("two", "y", "z")
    net = random_net(text)
    assert [tensor.name for tensor in write(net, tmp_path / "net.onnx").graph.initializer] == ["one/0", "one/1"]
    assert differences(net, tmp_path / "net.onnx")[0].largest_relative <= TOLERANCE


def test_layers_of_one_name_do_not_share_anything(tmp_path):
    layer = 'layer { name: "same" type: "InnerProduct" bottom: "%s" top: "%s" inner_product_param { num_output: 3 } }'
    relu = 'layer { name: "same" type: "ReLU" bottom: "y" top: "y" }'
    net = random_net(inputs(x=(2, 3)) + layer % ("x", "y") + relu * 3 + layer % ("y", "z"))
    assert differences(net, tmp_path / "net.onnx")[0].largest_relative <= TOLERANCE


def test_behind_a_filter_the_number_of_items_varies(tmp_path):
    text = inputs(x=(6, 4, 3, 3), s=(6,)) + (
        'layer { name: "f" type: "Filter" bottom: "x" bottom: "s" top: "f" }'
        'layer { name: "c" type: "Convolution" bottom: "f" top: "c"'
        " convolution_param { num_output: 2 kernel_size: 3 } }"
        'layer { name: "r" type: "ReLU" bottom: "c" top: "c" }'
        'layer { name: "i" type: "InnerProduct" bottom: "c" top: "i" inner_product_param { num_output: 2 } }'
        'layer { name: "p" type: "Softmax" bottom: "i" top: "p" }'
    )
    net = random_net(text)
    assert differences(net, tmp_path / "net.onnx")[0].largest_relative <= TOLERANCE
    other = {"x": np.ones((6, 4, 3, 3), np.float32), "s": np.array([1, 0, 0, 0, 0, 0], np.float32)}
    assert differences(net, tmp_path / "net.onnx", inputs=other)[0].largest_relative <= TOLERANCE
    assert onnx.load(tmp_path / "net.onnx").graph.output[0].type.tensor_type.shape.dim[0].dim_param == "items"


@pytest.mark.parametrize(("fields", "value"), [("power: -1", np.inf), ("power: 0.5 shift: -2", np.nan)])
def test_a_power_of_a_constant_that_is_no_finite_number_is_written_as_that(fields, value, tmp_path):
    net = random_net(plain("Power", f"power_param {{ scale: 0 {fields} }}", MATRIX))
    assert differences(net, tmp_path / "net.onnx")[0].largest_absolute == 0
    np.testing.assert_array_equal(OnnxSide(tmp_path / "net.onnx").run(fitting_inputs(net))["y"], np.full((3, 5), value))
