"""Weights in binary files: legacy forms, duplicate names, damaged files."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mgcaffe.engine.net import Net
from mgcaffe.engine.weights.saved_layers import SavedBlob
from mgcaffe.errors import NetError, PrototxtError
from mgcaffe.prototxt import NetParameter, blob_array, write_binary
from tests.support.netkit import inputs, make_net

NET = (
    inputs(data=(2, 3, 6, 6))
    + """
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 pad: 1 group: 1
    weight_filler { type: "gaussian" std: 0.1 } bias_filler { type: "gaussian" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool"
  pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip"
  inner_product_param { num_output: 5 weight_filler { type: "gaussian" } bias_filler { type: "gaussian" } } }
"""
)
TWINS = inputs(data=(2, 3)) + "".join(
    f'layer {{ name: "same" type: "InnerProduct" bottom: "{bottom}" top: "{top}"'
    f' inner_product_param {{ num_output: 3 weight_filler {{ type: "gaussian" }} }} }}\n'
    for bottom, top in (("data", "a"), ("a", "b"))
)


def old_weights(net, form: str):
    """A net's weights as a file of 2013 (V0) or of 2014 (V1) holds them: four axes, and values as `data`."""
    message = NetParameter(name="old")
    types = {"Convolution": ("conv", 4), "InnerProduct": ("innerproduct", 14)}
    for layer in net.layers:
        if layer.type not in types:
            continue
        old = message.layers.add(bottom=layer.param.bottom, top=layer.param.top)
        holder = old.layer if form == "V0" else old
        holder.name = layer.name
        holder.type = types[layer.type][form == "V1"]
        for parameter in layer.parameters:
            shape = (1,) * (4 - len(parameter.shape)) + parameter.shape
            blob = holder.blobs.add(num=shape[0], channels=shape[1], height=shape[2], width=shape[3])
            blob.data.extend(parameter.data.flatten().tolist())
    return message


@pytest.mark.parametrize("form", ["V0", "V1"])
def test_old_weights_give_the_same_outputs(form, tmp_path):
    source, target = make_net(NET, seed=1, dtype=torch.float32), make_net(NET, seed=2, dtype=torch.float32)
    path = tmp_path / "old.caffemodel"
    path.write_bytes(old_weights(source, form).SerializeToString())
    report = target.copy_trained_layers(path)
    assert [row.layer for row in report.copied] == ["conv", "ip"]
    data = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(3))
    for net in (source, target):
        net.blobs["data"].data.copy_(data)
        net.forward()
    assert source.blobs["ip"].data.abs().sum() > 0
    assert torch.equal(source.blobs["ip"].data, target.blobs["ip"].data)


def test_layers_whose_names_are_not_utf8_get_their_weights(tmp_path):
    text = 'layer { name: "?" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 2 } }'
    path = tmp_path / "net.prototxt"
    path.write_bytes((inputs(x=(1, 3)) + text).encode().replace(b"?", b"\xc4\xe3"))
    net, other = Net.from_file(path, seed=1), Net.from_file(path, seed=2)
    for parameter in net.parameters:
        parameter.data.copy_(torch.arange(1.0, 1 + parameter.count).view(parameter.shape))  # no byte of them is a "?"
    message = net.to_proto()
    message.layer[1].name = "??"
    caffes = message.SerializeToString().replace(b"??", b"\xc4\xe3")  # as Caffe writes it
    for name, content in (("ours", net.to_proto().SerializeToString()), ("caffes", caffes)):
        (tmp_path / name).write_bytes(content)
        for parameter in other.parameters:
            parameter.data.zero_()
        assert [row.layer for row in other.copy_trained_layers(tmp_path / name).copied] == ["\xc4\xe3"]
        assert torch.equal(other.parameters[0].data, net.parameters[0].data)


def test_layers_of_one_name_are_copied_in_their_order(tmp_path):
    source, target = make_net(TWINS, seed=1), make_net(TWINS, seed=2)
    report = target.copy_trained_layers(source.to_proto())
    assert torch.equal(target.arena.data, source.arena.data)
    assert [row.layer for row in report.copied] == ["same", "same"]


def test_what_a_further_layer_of_a_name_lacks_is_reported():
    twins = make_net(TWINS, seed=1)
    (single_text, _, second) = TWINS.partition('layer { name: "same" type: "InnerProduct" bottom: "a"')
    single = make_net(single_text, seed=2)
    kept = twins.layers[2].parameters[0].data.clone()
    report = twins.copy_trained_layers(single.to_proto())
    assert torch.equal(twins.layers[1].parameters[0].data, single.layers[1].parameters[0].data)
    assert torch.equal(twins.layers[2].parameters[0].data, kept)
    assert [row.detail for row in report.skipped] == ["the file has only 1 of this name; keeps its values"]
    report = single.copy_trained_layers(twins.to_proto())
    assert [row.detail for row in report.skipped] == ["the net has only 1 of this name"]
    assert second


def test_values_that_are_cut_short_leave_the_net_as_it_was():
    net = make_net(NET, seed=1)
    proto = make_net(NET, seed=2).to_proto()
    values = blob_array(proto.layer[-1].blobs[1])[:-1]
    proto.layer[-1].blobs[1].ClearField("double_data")
    proto.layer[-1].blobs[1].double_data.extend(values.tolist())
    kept = net.arena.data.clone()
    with pytest.raises(PrototxtError, match="holds 4 values in 'data' instead of 5"):
        net.copy_trained_layers(proto)
    assert torch.equal(net.arena.data, kept)


@pytest.mark.parametrize("rows", [5, 5000])
def test_blobs_that_are_cut_short_are_named_with_file_layer_and_number(tmp_path, rows):
    text = inputs(data=(1, 100)) + (
        'layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"'
        " inner_product_param { num_output: %d bias_term: false } }"
    )
    proto = make_net(text % (rows - 1)).to_proto()
    proto.layer[-1].blobs[0].shape.dim[0] = rows
    path = tmp_path / "cut.caffemodel"
    write_binary(proto, path)
    said = rf"cut.caffemodel: layer 'ip', blob 0: a blob of shape {rows}x100 holds {rows - 1}00 values"
    with pytest.raises(PrototxtError, match=said):
        make_net(text % rows).copy_trained_layers(path)


def test_another_number_of_blobs_is_refused():
    proto = make_net(NET).to_proto()
    del proto.layer[1].blobs[1]
    with pytest.raises(NetError, match=r"layer 'conv': 1 blob\(s\) in the file, 2 in the net"):
        make_net(NET).copy_trained_layers(proto)


def test_doubles_and_floats_both_arrive():
    net = make_net(NET, dtype=torch.float32)
    single = net.to_proto()
    assert blob_array(single.layer[1].blobs[0]).dtype == np.float32
    other = make_net(NET, seed=9)
    other.copy_trained_layers(single)
    assert torch.equal(other.arena.data, net.arena.data.double())


def test_a_double_that_no_float_can_hold_becomes_infinite():
    large = make_net(NET)
    large.parameters[0].data.fill_(1e300)
    net = make_net(NET, dtype=torch.float32)
    net.copy_trained_layers(large.to_proto())
    assert torch.isinf(net.parameters[0].data).all()


@pytest.mark.parametrize(
    ("saved", "wanted", "fits"),
    [
        ((1, 1, 1, 10), (10,), True),
        ((1, 1, 10, 1), (10,), False),
        ((1, 2, 1, 10), (10,), False),
        ((1, 1, 10, 20), (10, 20), True),
        ((1, 1, 20, 10), (10, 20), False),
        ((1, 2, 10, 20), (10, 20), False),
        ((3, 4, 5, 6), (3, 4, 5, 6), True),
        ((3, 4, 5, 6), (6, 5, 4, 3), False),
        ((1, 3, 4, 5), (3, 4, 5), True),
        ((1, 1, 1, 1), (), True),
        ((1, 1, 1, 1), (1, 1, 1, 1, 1), False),
    ],
)
def test_a_blob_of_four_old_axes_fits_by_its_last_ones(saved, wanted, fits):
    assert SavedBlob(saved, list, is_legacy=True).fits(wanted) is fits
    assert SavedBlob(saved, list).fits(wanted) is (saved == wanted)
