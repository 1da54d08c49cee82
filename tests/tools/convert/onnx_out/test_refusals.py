"""What ONNX cannot express is refused with the layer, the file and the line, and not approximated unless allowed."""

from __future__ import annotations

import pytest

from mgcaffe.engine.layer import TEST
from mgcaffe.engine.net import Net
from mgcaffe.errors import EXIT_BAD_INPUT, DataError, EngineError, NetError
from mgcaffe.prototxt.files import parse_net
from mgcaffe.tools.convert.onnx_out import file
from mgcaffe.tools.convert.onnx_out.export import export_net
from mgcaffe.tools.convert.onnx_out.graph import Graph
from tests.support.netkit import inputs

IMAGE = inputs(x=(2, 4, 6, 6))


def refusal(text, **options):
    source = parse_net(text, file="net.prototxt")
    net = Net(source.param, sources=source, phase=TEST, seed=1)
    with pytest.raises(NetError) as caught:
        export_net(net, **options)
    assert caught.value.exit_code == EXIT_BAD_INPUT
    return str(caught.value)


@pytest.mark.parametrize(
    ("layer", "place", "said"),
    [
        (
            'type: "DummyData" top: "y"\n dummy_data_param { shape { dim: 2 } data_filler { type: "gaussian" } }',
            "4:38",
            "ONNX cannot express it: it draws values at random",
        ),
        (
            'type: "Dropout" bottom: "x" top: "y"\n phase: TRAIN',
            "4:2",
            "ONNX cannot express it: it drops values at random",
        ),
        (
            'type: "Dropout" bottom: "x" top: "y"\n dropout_param { scale_train: false }',
            "4:18",
            "scale_train: false has tests scale its values down",
        ),
        (
            'type: "Dropout" bottom: "x" top: "y"\n dropout_param { dropout_ratio: 1 }',
            "4:18",
            "ONNX's Dropout has ratios below 1",
        ),
        (
            'type: "Pooling" bottom: "x" top: "y"\n phase: TRAIN\n'
            " pooling_param { pool: STOCHASTIC kernel_size: 2 stride: 2 }",
            "4:2",
            "it draws pixels at random",
        ),
        (
            'type: "SPP" bottom: "x" top: "y"\n phase: TRAIN\n spp_param { pool: STOCHASTIC pyramid_height: 1 }',
            "4:2",
            "it draws pixels at random",
        ),
        (
            'type: "EmbeddingBag" bottom: "x" bottom: "x" top: "y"\n'
            " embedding_bag_param { input_dim: 2 num_output: 1 bags: LENGTHS }",
            "3:1",
            "ONNX cannot express it: bags of different lengths have no operator",
        ),
    ],
)  # fmt: skip
def test_a_layer_that_has_no_equivalent_is_named_with_its_place(layer, place, said):
    text = refusal(IMAGE + '\nlayer { name: "odd" ' + layer + " }")
    assert text.startswith(f"net.prototxt:{place}: ")
    assert said in text
    assert "layer 'odd'" in text


def test_constants_that_are_the_data_of_a_net_are_refused():
    said = refusal('layer { name: "d" type: "DummyData" top: "y"\n dummy_data_param { shape { dim: 2 } } }')
    assert said.startswith("net.prototxt:1:1: ONNX has nothing like DummyData: it reads records")


def test_a_state_that_goes_on_is_refused_unless_it_is_allowed():
    text = (
        inputs(x=(4, 3, 5), cont=(4, 3))
        + 'layer { name: "l" type: "RNN" bottom: "x" bottom: "cont" top: "y" recurrent_param { num_output: 2 } }'
    )
    said = refusal(text)
    assert said.startswith("net.prototxt:3:1: ONNX cannot express it: its state goes on")
    assert "--allow=carried_state" in said and "expose_hidden" in said
    source = parse_net(text)
    assert export_net(Net(source.param, sources=source, phase=TEST), allow={"carried_state"}).nodes


@pytest.mark.parametrize(
    "layer",
    [
        'type: "Reshape" reshape_param { shape { dim: 0 dim: -1 } }',
        'type: "Slice" slice_param { axis: 0 }',
        'type: "InnerProduct" inner_product_param { num_output: 2 axis: 2 }',
        'type: "Scale" scale_param { axis: 0 }',
    ],
)
def test_what_needs_the_number_of_items_is_refused_behind_a_filter(layer):
    text = (
        inputs(x=(6, 4, 3, 3), s=(6,))
        + 'layer { name: "f" type: "Filter" bottom: "x" bottom: "s" top: "f" }\n'
        + f'layer {{ name: "l" bottom: "f" top: "y" {layer} }}'
    )
    said = refusal(text)
    assert said.startswith("net.prototxt:4:1: ONNX cannot express it: the number of items behind a Filter varies")


def test_an_input_without_a_shape_and_a_net_without_outputs_are_refused():
    said = refusal('layer { name: "in" type: "Input" top: "x" }\nlayer { name: "r" type: "ReLU" bottom: "x" top: "y" }')
    assert "the shape of blob 'x' is not given" in said and "--input_shape=x=" in said
    assert "has no output" in refusal('name: "n" ' + inputs(x=(2, 3)))


def test_a_model_of_2_gib_or_more_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    source = parse_net(IMAGE + 'layer { name: "c" type: "InnerProduct" bottom: "x" top: "y"'
                       " inner_product_param { num_output: 50 } }")  # fmt: skip
    graph = export_net(Net(source.param, sources=source, phase=TEST))
    monkeypatch.setattr(file, "_MOST_BYTES", 50 * 144 * 4)
    with pytest.raises(DataError, match="one holds less than 2 GiB"):
        file.write_model(graph, tmp_path / "net.onnx")
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(EngineError, match=r"cannot write .*net\.onnx: No such file") as caught:
        file.write_model(Graph("net"), tmp_path / "none" / "net.onnx")
    assert caught.value.exit_code == 73
