"""The proof of an edit sees what has changed, and feeds nets what they can take."""

import numpy as np
import pytest

from mgcaffe.errors import DataError, NetError
from mgcaffe.prototxt import NetParameter, blob_array, fill_blob, parse_net
from mgcaffe.tools.surgery.edit import Edit, without_weights
from mgcaffe.tools.surgery.proving import build, differences, with_seeded_weights
from tests.support.surgerykit import SHAPES, SMALL, STATE, TRAINS, full, layer, prove


def changed(name, index):
    """An operation that spoils a blob."""

    def operation(net):
        made = NetParameter()
        made.CopyFrom(net)
        blob = layer(made, name).blobs[index]
        fill_blob(blob, blob_array(blob) * 1.01)
        return Edit.begin(made)

    return operation


@pytest.mark.parametrize(("name", "index"), [("conv", 0), ("conv", 1), ("ip", 0), ("ip", 1)])
def test_every_weight_counts(name, index):
    _, found = prove(full(SMALL), changed(name, index))
    assert found[0].largest_relative > 1e-4
    _, found = prove(full(TRAINS, SHAPES), changed(name, index), SHAPES)
    assert found[0].largest_relative > 1e-4


def test_nothing_in_common_is_an_error():
    with pytest.raises(DataError, match="no value of the first net is left to compare"):
        prove(full(SMALL), lambda net: Edit(net, {}))


def test_an_input_that_the_first_net_lacks_is_an_error():
    other = full(SMALL.replace('"data"', '"image"'))
    with pytest.raises(DataError, match="inputs that the first one lacks: image"):
        prove(full(SMALL), lambda net: Edit.begin(other))


def test_random_weights_are_the_same_every_time_and_keep_those_that_are_there():
    net = full(SMALL)
    assert net == full(SMALL)
    del layer(net, "ip").blobs[:]
    again = with_seeded_weights(net, build(net, {}, STATE, "net"))
    assert layer(again, "conv").blobs == layer(net, "conv").blobs and len(layer(again, "ip").blobs) == 2


def test_several_layers_of_one_name_are_compared_one_by_one():
    text = (
        SMALL.replace('name: "relu"', 'name: "conv"')
        + """
    layer { name: "ip" type: "InnerProduct" bottom: "prob" top: "second" inner_product_param { num_output: 3 } }
    """
    )
    net = full(text)
    assert [len(row.blobs[0].data) for row in net.layer if row.blobs] == [108, 320, 15]
    _, found = prove(net, Edit.begin)
    assert {each.name for each in found} == {"conv@conv", "conv", "ip", "prob", "second"}
    assert found[0].largest_absolute == 0
    _, found = prove(
        net, lambda net: Edit(NetParameter(name=net.name, layer=list(net.layer)[:-1]), Edit.begin(net).origin)
    )
    assert "ip" not in {each.name for each in found}


def test_values_that_are_not_finite_are_named():
    net = full(SMALL)
    fill_blob(layer(net, "ip").blobs[1], np.full(5, np.nan, np.float32))
    _, not_finite = differences(build(net, {}, STATE, "net"), Edit.begin(net), {"data": (2, 3, 6, 6)}, STATE)
    assert not_finite == ["ip", "prob"]


def test_indices_and_markers_are_whole_numbers():
    text = """
    layer { name: "words" type: "Input" top: "words" input_param { shape { dim: 4 dim: 2 } } }
    layer { name: "cont" type: "Input" top: "cont" input_param { shape { dim: 4 dim: 2 } } }
    layer { name: "embed" type: "Embed" bottom: "words" top: "e" embed_param { input_dim: 3 num_output: 5 } }
    layer { name: "same" type: "Embed" bottom: "words" top: "e2" embed_param { input_dim: 3 num_output: 5 } }
    layer { name: "lstm" type: "LSTM" bottom: "e" bottom: "cont" top: "h" recurrent_param { num_output: 4 } }
    """
    _, found = prove(full(text), Edit.begin)
    assert {"e", "e2", "h"} <= {each.name for each in found} and found[0].largest_absolute == 0


def test_mistakes_are_located_in_the_file_and_weights_that_do_not_fit_are_named():
    source = parse_net(TRAINS.replace('"ReLU"', '"RLU"'), file="net.prototxt")
    with pytest.raises(NetError, match=r"net.prototxt:9:22: unknown layer type 'RLU'"):
        build(source.param, SHAPES, STATE, "w.caffemodel", source)
    net = full(SMALL)
    fill_blob(layer(net, "ip").blobs[1], np.zeros(7, np.float32))
    with pytest.raises(NetError, match=r"weights in w\.caffemodel do not fit: layer 'ip'"):
        build(net, {}, STATE, "w.caffemodel")
    with pytest.raises(NetError, match="the shape of blob 'image'"):
        build(parse_net(TRAINS).param, {}, STATE, "w")


def test_a_net_without_weights_is_the_text_of_it():
    bare = without_weights(full(SMALL))
    assert bare == parse_net(SMALL).param
