"""Parameters shared by name, weights copied by layer name, nets that share with a train net."""

import pytest
import torch

from mgcaffe.engine.layer import TEST
from mgcaffe.errors import NetError
from mgcaffe.prototxt import NetParameter
from tests.support.netkit import inputs, make_net

PARAM = (
    'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{top}" param {{ {first} }} {more}'
    " inner_product_param {{ num_output: {n} bias_term: false "
    'weight_filler {{ type: "gaussian" std: 0.3 }} }} }}\n'
)


def ip(name, bottom, top, first="", n=5, more=""):
    return PARAM.format(name=name, bottom=bottom, top=top, first=first, n=n, more=more)


def loss(a, b):
    return f'layer {{ name: "loss" type: "EuclideanLoss" bottom: "{a}" bottom: "{b}" top: "loss" }}\n'


SHARED = inputs(x=(4, 5), y=(4, 5)) + ip("a", "x", "h", 'name: "w"') + ip("b", "h", "g", 'name: "w"') + loss("g", "y")
APART = SHARED.replace('name: "w"', "")


def fill_inputs(*nets):
    generator = torch.Generator().manual_seed(5)
    for name in nets[0].inputs:
        values = torch.randn(nets[0].blobs[name].shape, generator=generator, dtype=torch.float64)
        for net in nets:
            net.blobs[name].data.copy_(values)


def test_shared_parameters_are_stored_once_at_the_lowest_layer():
    net = make_net(SHARED)
    assert len(net.parameters) == 1
    assert net.arena.segments() == [("a", net.nodes.index(net.nodes[2]), 0, 25)]
    assert net.layers[3].parameters[0].data.data_ptr() == net.layers[2].parameters[0].data.data_ptr()


@pytest.mark.parametrize(
    "multipliers", [("", ""), ("lr_mult: 2", ""), ("", "lr_mult: 2"), ("lr_mult: 2", "lr_mult: 2")]
)
def test_shared_gradient_is_the_sum_of_both_uses(multipliers):
    text = SHARED
    for layer, multiplier in zip(('top: "h"', 'top: "g"'), multipliers, strict=True):
        text = text.replace(f'{layer} param {{ name: "w"', f'{layer} param {{ name: "w" {multiplier}')
    shared, apart = make_net(text), make_net(APART)
    fill_inputs(shared, apart)
    for parameter in apart.parameters:
        parameter.data.copy_(shared.parameters[0].data)
    for net in (shared, apart):
        net.clear_param_diffs()
        net.forward_backward()
    torch.testing.assert_close(shared.parameters[0].diff, apart.parameters[0].diff + apart.parameters[1].diff)


def test_shapes_that_differ_are_refused_with_both_names():
    text = inputs(x=(4, 5)) + ip("a", "x", "h", 'name: "w"', 10) + ip("b", "h", "g", 'name: "w"', 5)
    with pytest.raises(NetError, match="Cannot share parameter 'w' of layer 'a' with layer 'b': shapes 10x5 and 5x10"):
        make_net(text)


def test_permissive_sharing_compares_counts_only():
    text = inputs(x=(4, 5)) + ip("a", "x", "h", 'name: "w"', 10)
    net = make_net(text + ip("b", "h", "g", 'name: "w" share_mode: PERMISSIVE', 5))
    assert net.layers[2].parameters[0].data.shape == (5, 10)
    with pytest.raises(NetError, match="counts 50 and 60 differ"):
        make_net(text + ip("b", "h", "g", 'name: "w" share_mode: PERMISSIVE', 6))


def test_explicit_multiplier_wins_and_two_have_to_agree():
    net = make_net(
        SHARED.replace('bottom: "h" top: "g" param { name: "w"', 'bottom: "h" top: "g" param { name: "w" lr_mult: 3')
    )
    assert net.parameters[0].lr_mult == 3
    assert net.arena.runs()[0].lr_mult == 3
    clash = SHARED.replace('name: "w"', 'name: "w" lr_mult: 2', 1).replace(
        'bottom: "h" top: "g" param { name: "w"', 'bottom: "h" top: "g" param { name: "w" lr_mult: 3'
    )
    with pytest.raises(NetError, match="lr_mult 2 and 3 differ"):
        make_net(clash)


def test_weights_are_copied_by_layer_name_with_a_report():
    source, target = make_net(APART, seed=1), make_net(APART.replace('name: "b"', 'name: "renamed"'), seed=2)
    kept = target.parameters[1].data.clone()
    report = target.copy_trained_layers(source.to_proto())
    assert torch.equal(target.parameters[0].data, source.parameters[0].data)
    assert torch.equal(target.parameters[1].data, kept)
    assert [row.layer for row in report.copied] == ["a"]
    assert [row.layer for row in report.skipped] == ["b", "renamed"]
    assert "copied   a" in str(report)


def test_nothing_is_copied_when_a_shape_differs():
    source = make_net(APART, seed=1)
    proto = source.to_proto()
    del proto.layer[3].blobs[0].shape.dim[:]
    proto.layer[3].blobs[0].shape.dim.extend([25, 1])
    target = make_net(APART, seed=2)
    kept = target.arena.data.clone()
    with pytest.raises(NetError) as error:
        target.copy_trained_layers(proto)
    assert "layer 'b': blob 0 has shape 25x1 in the file, 5x5 in the net" in str(error.value)
    assert "rename the layer" in str(error.value)
    assert torch.equal(target.arena.data, kept)


def test_legacy_four_dimensional_blobs_fit():
    source = make_net(APART, seed=1)
    proto = NetParameter()
    proto.CopyFrom(source.to_proto())
    for layer in proto.layer:
        for blob in layer.blobs:
            sizes = list(blob.shape.dim)
            blob.ClearField("shape")
            blob.num, blob.channels, blob.height, blob.width = 1, 1, sizes[0], sizes[1]
    target = make_net(APART, seed=2)
    target.copy_trained_layers(proto)
    assert torch.equal(target.arena.data, source.arena.data)


def test_test_net_borrows_the_train_nets_parameters():
    train = make_net(APART)
    test = make_net(APART, phase=1, share_with=train)
    assert test.arena.data.numel() == 0
    fill_inputs(train, test)
    assert train.forward() == test.forward()
    train.arena.data.mul_(2)
    assert train.forward() == test.forward()


BAG = """layer { name: "a" type: "EmbeddingBag" bottom: "x" top: "h"
                embedding_bag_param { input_dim: 5 num_output: 5 } }"""


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        (ip("a", "x", "h"), ip("a", "x", "h").replace("bias_term: false", ""), r"2 parameter\(s\) here, 1 there"),
        (ip("a", "x", "h"), ip("a", "x", "h", n=3), "parameter 0 .*: shapes 3x5 and 5x5 differ"),
        (BAG, ip("a", "x", "h"), "parameter 0 .*: that is the table of an EmbeddingBag"),
    ],
)
def test_a_test_net_whose_parameters_differ_is_refused(train, test, message):
    bottom = inputs(x=(4, 5))
    with pytest.raises(NetError, match=f"cannot share .*{message}"):
        make_net(bottom + test, phase=TEST, share_with=make_net(bottom + train))


def test_of_layers_of_one_name_the_second_borrows_from_the_second():
    text = inputs(x=(4, 5)) + 'layer { name: "a" type: "ReLU" bottom: "x" top: "r" }\n'
    text += ip("a", "r", "h") + ip("a", "h", "g")
    train = make_net(text)
    test = make_net(text + ip("a", "g", "f"), phase=TEST, share_with=train)
    borrowed = [layer.parameters[0].data for layer in test.layers if layer.parameters]
    lent = [parameter.data for parameter in train.parameters]
    assert [values.data_ptr() for values in borrowed[:2]] == [values.data_ptr() for values in lent]
    # The third has no counterpart, and values of its own.
    assert [piece.parameter.data.data_ptr() for piece in test.arena.slices] == [borrowed[2].data_ptr()]


def test_written_net_reads_back_with_its_gradients(tmp_path):
    net = make_net(APART)
    fill_inputs(net)
    net.forward_backward()
    proto = net.to_proto(diff=True)
    assert [layer.name for layer in proto.layer] == ["x", "y", "a", "b", "loss"]
    assert len(proto.layer[2].blobs[0].double_diff) + len(proto.layer[2].blobs[0].diff) == 25


def test_a_shared_parameter_is_saved_and_read_back_as_one():
    net, fresh = make_net(SHARED, seed=1), make_net(SHARED, seed=2)
    fill_inputs(net, fresh)
    net.forward_backward()
    net.arena.data.sub_(net.arena.diff)
    proto = NetParameter.FromString(net.to_proto().SerializeToString())
    assert proto.layer[2].blobs[0].double_data == proto.layer[3].blobs[0].double_data
    fresh.copy_trained_layers(proto)
    assert torch.equal(fresh.arena.data, net.arena.data)
    assert fresh.layers[3].parameters[0].data.data_ptr() == fresh.layers[2].parameters[0].data.data_ptr()
    assert fresh.forward() == net.forward()


def test_an_update_changes_both_uses_of_a_shared_parameter():
    shared, apart = make_net(SHARED), make_net(APART)
    fill_inputs(shared, apart)
    for parameter in apart.parameters:
        parameter.data.copy_(shared.parameters[0].data)
    assert shared.forward() == apart.forward()
    shared.layers[3].parameters[0].data.mul_(2)
    apart.parameters[1].data.mul_(2)
    assert shared.forward() != apart.forward()
    apart.parameters[0].data.mul_(2)
    assert shared.forward() == apart.forward()


CONV = (
    'layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}" {first}'
    " convolution_param {{ num_output: {n} kernel_size: 3 bias_term: false"
    ' weight_filler {{ type: "gaussian" std: 0.3 }} }} }}\n'
)


def test_another_nets_filters_in_two_shapes_have_to_be_named_there_too():
    data = inputs(x=(2, 4, 9, 9), y=(2, 8, 9, 9))
    named = 'param { name: "w" share_mode: PERMISSIVE }'
    both = (
        data
        + CONV.format(name="a", bottom="x", n=16, first=named)
        + CONV.format(name="b", bottom="y", n=8, first=named)
    )
    float32 = {"dtype": torch.float32, "keep_blobs": False}
    lender = make_net(data + CONV.format(name="a", bottom="x", n=16, first=""), **float32)
    assert lender.layers[2].parameters[0].memory_format == torch.channels_last
    with pytest.raises(NetError, match=r"parameter 'w' in two shapes, 16x4x3x3 and 8x8x3x3: .*'b'") as error:
        make_net(both, phase=1, share_with=lender, **float32)
    assert 'param { name: "w" }' in str(error.value)
    lender = make_net(data + CONV.format(name="a", bottom="x", n=16, first='param { name: "w" }'), **float32)
    borrower = make_net(both, phase=1, share_with=lender, **float32)
    first, second = (borrower.layers[number].parameters[0].data for number in (2, 3))
    assert torch.equal(first.reshape(-1), second.reshape(-1))
    assert first.data_ptr() == second.data_ptr() == lender.layers[2].parameters[0].data.data_ptr()
