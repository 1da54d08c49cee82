"""Weights of one file or several into the layers of a net."""

import numpy as np
import pytest

from mgcaffe.engine.net import TEST, Net
from mgcaffe.engine.weights.hdf5 import save_hdf5
from mgcaffe.errors import NetError
from mgcaffe.prototxt import NetParameter, blob_array, fill_blob, parse_net, write_binary
from mgcaffe.tools.surgery.weights import attach, read_all
from tests.support.surgerykit import SMALL, STATE, TRAINS, full, layer, save_weights

SHARED = SMALL.replace('type: "InnerProduct"', 'type: "InnerProduct" param { name: "w" } param { name: "b" }') + (
    'layer { name: "twin" type: "InnerProduct" bottom: "conv" top: "twin" param { name: "w" } %s '
    "inner_product_param { num_output: 5 } }"
)


def part(net, *kept):
    """The weights of some layers."""
    return NetParameter(layer=[row for row in net.layer if row.name in kept])


def test_files_are_put_together_and_what_the_net_lacks_is_named(tmp_path):
    net = full(SMALL)
    first, second = (
        save_weights(part(net, "conv"), tmp_path / "a"),
        save_weights(part(net, "conv", "ip"), tmp_path / "b"),
    )
    edit = attach(
        parse_net(SMALL.replace('name: "ip"', 'name: "fc"')).param, read_all([str(first), str(second)]), STATE
    )
    assert layer(edit.net, "conv").blobs == layer(net, "conv").blobs
    assert not layer(edit.net, "fc").blobs
    assert edit.notes == ("left out, since the net has no layer of the name: weights of ip",)


def test_layers_that_differ_between_files_are_all_named(tmp_path):
    net = full(SMALL)
    first = str(save_weights(net, tmp_path / "a"))
    for row in net.layer:
        for blob in row.blobs:
            fill_blob(blob, blob_array(blob) * 2)
    second = str(save_weights(net, tmp_path / "b"))
    with pytest.raises(NetError) as error:
        read_all([first, second])
    assert f"the weights of 2 layer(s) differ between files: 'conv' in {first} and {second}; 'ip' in" in str(
        error.value
    )


def test_a_name_of_both_phases_gets_the_weights_twice(tmp_path):
    text = SMALL.replace('name: "conv"', 'name: "conv" include { phase: TEST }')
    again = text[text.index('layer { name: "conv"') : text.index('layer { name: "relu"')].replace("TEST", "TRAIN")
    both = parse_net(text.replace('layer { name: "relu"', again + 'layer { name: "relu"')).param
    assert [row.name for row in both.layer].count("conv") == 2
    edit = attach(both, read_all([str(save_weights(full(SMALL), tmp_path / "a"))]), STATE)
    assert [len(row.blobs) for row in edit.net.layer if row.name == "conv"] == [2, 2]


@pytest.mark.parametrize("second", ['param { name: "b" }', ""])
def test_hdf5_files_give_shared_parameters_to_all_that_share_them(tmp_path, second):
    param = parse_net(SHARED % second).param
    net = Net(param, phase=TEST, seed=3)
    for parameter in net.parameters:
        parameter.data.normal_()
    save_hdf5(net, tmp_path / "w.h5")
    edit = attach(param, read_all([str(tmp_path / "w.h5")]), STATE)
    for row in net.layers:
        for index, parameter in enumerate(row.parameters):
            np.testing.assert_array_equal(blob_array(layer(edit.net, row.name).blobs[index]), parameter.data.numpy())


def test_an_hdf5_file_that_lacks_a_parameter_is_refused(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "w.h5", "w") as file:
        file["data/ip/1"] = np.zeros(5, np.float32)
    with pytest.raises(NetError, match="the weights lack blob 0 of layer 'ip', and no other layer shares it"):
        attach(parse_net(SMALL).param, read_all([str(tmp_path / "w.h5")]), STATE)
    with h5py.File(tmp_path / "many.h5", "w") as file:
        file["data/ip/99999999"] = np.zeros(5, np.float32)
    with pytest.raises(NetError, match="layer 'ip' has a blob 99999999; no layer has so many"):
        read_all([str(tmp_path / "many.h5")])


def test_a_net_without_files_stays_as_it_is(tmp_path):
    net = parse_net(TRAINS).param
    assert attach(net, {}, STATE).net == net
    write_binary(net, tmp_path / "none")
    with pytest.raises(NetError, match="none holds no weights"):
        read_all([str(tmp_path / "none")])


def test_weights_of_another_net_are_refused(tmp_path):
    saved = read_all([str(save_weights(full(SMALL), tmp_path / "a"))])
    with pytest.raises(NetError, match=r"no layer of a name that .*a has weights for: conv, ip"):
        attach(
            parse_net(SMALL.replace('name: "ip"', 'name: "x"').replace('name: "conv"', 'name: "y"')).param, saved, STATE
        )


def test_old_files_with_ones_in_front_merge_with_new_ones(tmp_path):
    net = full(SMALL)
    first = str(save_weights(net, tmp_path / "a"))
    for row in net.layer:
        for blob in row.blobs:
            fill_blob(blob, blob_array(blob)[(np.newaxis,) * (4 - blob_array(blob).ndim)])
    assert set(read_all([first, str(save_weights(net, tmp_path / "b"))])) == {"conv", "ip"}
