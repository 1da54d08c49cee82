"""Weights that stand in a net's definition, which layers begin with instead of their fillers' values."""

import numpy as np
import pytest
import torch

from mgcaffe.engine.net import TEST, Net
from mgcaffe.engine.row_parameter import Placement
from mgcaffe.engine.weights.shards import RowsToWrite, ShardSet, encode_shard
from mgcaffe.errors import NetError
from mgcaffe.errors.whole_files import write_whole
from mgcaffe.prototxt import NetParameter, fill_blob, parse_net, read_binary, write_binary
from tests.support.netkit import inputs, make_net

WEIGHTS, BIAS = [[1.0, 2, 3], [4, 5, 6]], [7.0, 8]
BLOBS = """
  blobs { shape { dim: 2 dim: 3 } data: 1 data: 2 data: 3 data: 4 data: 5 data: 6 }
  blobs { shape { dim: 2 } double_data: 7 double_data: 8 }"""
LAYER = """layer {{
  name: "{name}" type: "InnerProduct" bottom: "x" top: "{name}"{blobs}
  inner_product_param {{ num_output: 2 weight_filler {{ type: "{filler}" }} }}
}}
"""
TABLE = np.arange(12, dtype=np.float32).reshape(4, 3)
BAG = (
    inputs(i=(2, 2)) + 'layer { name: "bag" type: "EmbeddingBag" bottom: "i" top: "v" %s'
    " embedding_bag_param { input_dim: 4 num_output: 3 } }"
)


def ip(blobs=BLOBS, name="ip", filler="xavier"):
    return inputs(x=(1, 3)) + LAYER.format(name=name, blobs=blobs, filler=filler)


def built(text, **options):
    source = parse_net(text, file="net.prototxt")
    return Net(source.param, sources=source, seed=3, **options)


def values(net):
    return [parameter.data.tolist() for parameter in net.parameters]


def refusal(text):
    with pytest.raises(NetError) as caught:
        built(text)
    return str(caught.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_layer_begins_with_the_weights_of_its_definition(dtype):
    net = make_net(ip(filler="no such filler"), dtype=dtype)
    assert values(net) == [WEIGHTS, BIAS]
    assert all(parameter.given is None for parameter in net.parameters)


def test_layers_of_the_form_before_2015_may_have_legacy_shapes():
    net = built("""input: "x" input_dim: 1 input_dim: 1 input_dim: 1 input_dim: 3
    layers {
      name: "ip" type: INNER_PRODUCT bottom: "x" top: "ip" inner_product_param { num_output: 2 }
      blobs { num: 1 channels: 1 height: 2 width: 3 data: 1 data: 2 data: 3 data: 4 data: 5 data: 6 }
      blobs { num: 1 channels: 1 height: 1 width: 2 data: 7 data: 8 }
    }""")
    assert values(net) == [WEIGHTS, BIAS]


def test_a_caffemodel_is_a_net_with_its_weights(tmp_path):
    trained = make_net(ip(""), dtype=torch.float32)
    path = tmp_path / "net.caffemodel"
    write_binary(trained.to_proto(), path)
    again = Net.from_file(path, phase=TEST, seed=99)
    assert values(again) == values(trained)
    assert again.to_proto().layer[1].blobs == read_binary(path, NetParameter).layer[1].blobs


def test_no_layer_holds_a_second_copy_of_the_weights():
    source = parse_net(ip())
    net = Net(source.param, sources=source)
    assert [len(layer.param.blobs) for layer in net.layers] == [0, 0]
    assert len(source.param.layer[1].blobs) == 2


def test_filters_that_lie_with_channels_last_get_the_same_values():
    message = parse_net(
        inputs(x=(1, 4, 6, 6)) + 'layer { name: "c" type: "Convolution" bottom: "x" top: "c"'
        " convolution_param { num_output: 8 kernel_size: 3 bias_term: false } }"
    ).param
    weights = np.random.default_rng(0).standard_normal((8, 4, 3, 3)).astype(np.float32)
    fill_blob(message.layer[1].blobs.add(), weights)
    net = Net(message, preferred_format=True)
    np.testing.assert_array_equal(net.parameters[0].data.numpy(), weights)


def test_test_nets_share_the_training_nets_values_and_keep_their_own_elsewhere():
    train = built(ip())
    test = built(ip(BLOBS.replace("data: 1 ", "data: 9 ")), phase=TEST, share_with=train)
    assert values(test) == [WEIGHTS, BIAS] and test.parameters[0].data is train.parameters[0].data
    other = built(ip(name="other"), phase=TEST, share_with=train)
    assert values(other) == [WEIGHTS, BIAS] and other.parameters[0].data is not train.parameters[0].data


def test_the_owner_of_shared_parameters_decides():
    shared = LAYER.replace("{blobs}", '{blobs} param {{ name: "w" }} param {{ name: "b" }}')
    first = shared.format(name="a", blobs=BLOBS, filler="xavier")
    second = shared.format(name="b", blobs=BLOBS.replace("data: 1 ", "data: 9 "), filler="xavier")
    assert values(built(inputs(x=(1, 3)) + first + second)) == [WEIGHTS, BIAS]


@pytest.mark.parametrize(
    ("blobs", "problem"),
    [
        ("\n" + BLOBS.split("\n")[1], "net.prototxt:4:3: the net's definition holds 1 blob(s) of weights"),
        (BLOBS + " blobs { shape { } data: 1 }", "net.prototxt:4:3: the net's definition holds 3 blob(s) of weights"),
    ],
)
def test_the_number_of_blobs_has_to_fit(blobs, problem):
    refused = refusal(ip(blobs))
    assert refused.startswith(problem)
    assert "and the layer has 2 parameter(s) of shape(s) 2x3, 2 (layer 'ip', type InnerProduct)" in refused


def test_a_layer_without_parameters_takes_no_weights():
    text = inputs(x=(1, 3)) + 'layer { name: "r" type: "ReLU" bottom: "x" top: "r" blobs { data: 1 } }'
    assert "holds 1 blob(s) of weights, and the layer has 0 parameter(s)" in refusal(text)


def test_shapes_have_to_fit():
    refused = refusal(ip(BLOBS.replace("dim: 2 dim: 3", "dim: 3 dim: 2")))
    assert refused.startswith("net.prototxt:4:3: blob 0 has shape 3x2 in the net's definition")
    assert "and the layer's parameter has shape 2x3 (layer 'ip', type InnerProduct)" in refused
    assert "blob 1 has shape 1x2" in refusal(ip(BLOBS.replace("{ dim: 2 } double", "{ dim: 1 dim: 2 } double")))


def test_the_values_have_to_be_there():
    refused = refusal(ip(BLOBS.replace("data: 6 ", "")))
    assert refused.startswith("net.prototxt:4:3: blob 0 in the net's definition: a blob of shape 2x3 holds 5 values")
    assert "blob 1 in the net's definition: a blob has a negative axis" in refusal(
        ip(BLOBS.replace("{ dim: 2 } double", "{ dim: -2 } double"))
    )


def test_a_divided_table_takes_the_rows_that_lie_in_this_process(tmp_path):
    message = parse_net(BAG % "").param
    fill_blob(message.layer[1].blobs.add(), TABLE)

    def place(tables):
        return [Placement(number, range(1, 3), lambda kind, shape: None) for number in range(len(tables))]

    assert values(Net(message, place_tables=place)) == [TABLE[1:3].tolist()]
    assert values(Net(message)) == [TABLE.tolist()]
    # The same, where a snapshot's shards hold the rows.
    shards = ShardSet("net.caffemodel", 1, "one")
    rows = RowsToWrite("bag/0", 0, 4, TABLE)
    write_whole(tmp_path / shards.name(0), encode_shard(shards, 0, "rank 0", 5, [rows]))
    message.layer[1].blobs[0].CopyFrom(shards.reference("bag/0", (4, 3)))
    write_binary(message, tmp_path / "net.caffemodel")
    assert values(Net.from_file(tmp_path / "net.caffemodel", place_tables=place)) == [TABLE[1:3].tolist()]
    (tmp_path / shards.name(0)).unlink()
    with pytest.raises(NetError, match=r"cannot read .*shard_1_of_1"):
        Net.from_file(tmp_path / "net.caffemodel")
