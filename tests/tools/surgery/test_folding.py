"""Folding: the same outputs with fewer layers, or the reason why a layer stays."""

import numpy as np
import pytest

from mgcaffe.errors import NetError
from mgcaffe.prototxt import blob_array, fill_blob
from mgcaffe.tools.surgery.folding import fold
from tests.support.surgerykit import SHAPES, TRAINS, full, layer, names, prove

INPUT = 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 4 dim: 5 dim: 5 } } }\n'
NORM = 'layer { name: "bn" type: "BatchNorm" bottom: "x" top: "x" %s }\n'
SCALE = 'layer { name: "scale" type: "Scale" bottom: "x" top: "x" scale_param { bias_term: true } }\n'
APART = 'layer { name: "relu" type: "ReLU" bottom: "x" top: "r" }\n'
RELU = 'layer { name: "relu" type: "ReLU" bottom: "x" top: "x" }\n'
CONV = "convolution_param { num_output: 6 kernel_size: 3 %s }"
BEFORE = {
    "convolution": 'type: "Convolution" ' + CONV % "",
    "without bias": 'type: "Convolution" ' + CONV % "bias_term: false",
    "groups": 'type: "Convolution" ' + CONV % "group: 2",
    "deconvolution": 'type: "Deconvolution" ' + CONV % "group: 2 stride: 2",
    "depthwise": 'type: "DepthwiseConvolution" convolution_param { kernel_size: 3 }',
    "product": 'type: "InnerProduct" inner_product_param { num_output: 6 }',
    "transposed product": 'type: "InnerProduct" inner_product_param { num_output: 6 transpose: true bias_term: false }',
}


def text(before="convolution", norm=NORM % "", scale=SCALE, more=RELU):
    return INPUT + f'layer {{ name: "before" bottom: "data" top: "x" {BEFORE[before]} }}\n' + norm + scale + more


@pytest.mark.parametrize("before", BEFORE)
def test_batch_norm_and_scale_go_into_the_layer_before(before):
    edit, found = prove(full(text(before)), fold)
    assert names(edit.net) == ["data", "before", "relu"]
    assert {each.name for each in found} == {"x@scale", "x"}
    assert found[0].largest_relative < 1e-5
    assert len(layer(edit.net, "before").blobs) == 2
    assert "folded 2 layer(s): bn into before, scale into before" in edit.notes


@pytest.mark.parametrize(
    ("norm", "scale"),
    [
        (NORM % "batch_norm_param { use_global_stats: true eps: 0.01 }", ""),
        (NORM % "batch_norm_param { scale_bias: true }", ""),
        ("", SCALE),
        ("", 'layer { name: "bias" type: "Bias" bottom: "x" top: "x" }'),
        ("", 'layer { name: "scale" type: "Scale" bottom: "x" top: "x" }'),
    ],
)
def test_each_kind_alone(norm, scale):
    edit, found = prove(full(text(norm=norm, scale=scale)), fold)
    assert names(edit.net) == ["data", "before", "relu"]
    assert found[0].largest_relative < 1e-5


def test_layers_that_are_not_in_place_give_their_blob_to_the_layer_before():
    norm = 'layer { name: "bn" type: "BatchNorm" bottom: "x" top: "y" }\n'
    edit, found = prove(full(text(norm=norm, scale="", more=RELU.replace('"x"', '"y"'))), fold)
    assert list(layer(edit.net, "before").top) == ["y"]
    assert [each.name for each in found] in (["y@bn", "y"], ["y", "y@bn"])


def test_a_batch_norm_that_has_seen_nothing_only_divides_by_the_root_of_eps():
    net = full(text(scale=""))
    for index in range(3):
        fill_blob(layer(net, "bn").blobs[index], np.zeros(1 if index == 2 else 6, np.float32))
    edit, found = prove(net, fold)
    assert found[0].largest_relative < 1e-5
    ratio = blob_array(layer(edit.net, "before").blobs[0]) / blob_array(layer(net, "before").blobs[0])
    np.testing.assert_allclose(ratio, 1e-5**-0.5, rtol=1e-5)


def test_old_weights_with_ones_in_front_are_folded_too():
    net = full(text("product"))
    before = layer(net, "before")
    for blob, shape in zip(before.blobs, [(1, 1, 6, 100), (1, 1, 1, 6)], strict=True):
        values = blob_array(blob).ravel().tolist()
        blob.Clear()
        blob.num, blob.channels, blob.height, blob.width = shape
        blob.data.extend(values)
    _, found = prove(net, fold)
    assert found[0].largest_relative < 1e-5


SECOND = 'layer { name: "second" type: "Convolution" bottom: "data" top: "z" param { name: "w" } ' + (CONV % "") + "}\n"
STAYS = {
    "several readers": (
        text(norm='layer { name: "bn" type: "BatchNorm" bottom: "x" top: "y" }\n', scale="", more=APART),
        "the top of 'before' has 2 readers: 'bn', 'relu'",
    ),
    "the batch's statistics": (
        text(norm=NORM % "batch_norm_param { use_global_stats: false }", scale=""),
        "it uses the statistics of each batch (use_global_stats: false)",
    ),
    "a factor that is a bottom": (
        text(
            norm='layer { name: "scale" type: "Scale" bottom: "x" bottom: "x" top: "y" scale_param { axis: 0 } }',
            scale="",
            more="",
        ),
        "its factors are a bottom",
    ),
    "one factor for all": (
        text(norm="", scale='layer { name: "scale" type: "Scale" bottom: "x" top: "x" scale_param { num_axes: 0 } }\n'),
        "it covers num_axes 0 from axis 1",
    ),
    "another axis": (
        INPUT + 'layer { name: "before" bottom: "data" top: "x" type: "InnerProduct" inner_product_param '
        '{ num_output: 4 axis: 2 } }' + NORM % "",
        "the channel axis of 'before' is 2",
    ),
    "shared weights": (
        text(scale="").replace('name: "before"', 'name: "before" param { name: "w" }') + SECOND,
        "'before' shares its weights with 'second'",
    ),
    "something between": (text(norm=RELU, scale=SCALE, more=""), "it reads the top of 'relu' (ReLU)"),
    "several tops": (
        INPUT + 'layer { name: "before" bottom: "data" bottom: "data" top: "x" top: "z" ' + BEFORE["convolution"] + "}"
        + NORM % "",
        "several tops with the same weights",
    ),
    "some phases": (text(norm=NORM % "include { phase: TEST }", scale=""), "takes part in some phases only"),
    "one name for two": (
        text(scale="") + text(scale="").partition("\n")[2].replace('"x"', '"y"'), "2 layers are called 'before'"
    ),
}  # fmt: skip


@pytest.mark.parametrize("reason", STAYS)
def test_what_cannot_be_folded_exactly_is_refused_with_the_reason(reason):
    net, said = STAYS[reason]
    with pytest.raises(NetError) as error:
        fold(full(net))
    assert said in str(error.value)


def test_a_net_that_trains_keeps_its_batch_norm_but_not_a_scale():
    norm = 'layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" }\nlayer { name: "relu"'
    net = full(TRAINS.replace('layer { name: "relu"', norm), SHAPES)
    with pytest.raises(NetError, match=r"'bn': in training it uses the statistics of each batch; make the deploy net"):
        fold(net)
    scale = 'layer { name: "scale" type: "Scale" bottom: "conv" top: "conv" }\nlayer { name: "relu"'
    edit, found = prove(full(TRAINS.replace('layer { name: "relu"', scale), SHAPES), fold, SHAPES)
    assert "scale" not in names(edit.net) and found[0].largest_relative < 1e-5


def test_weights_are_needed_and_have_to_fit():
    net = full(text())
    del layer(net, "before").blobs[:]
    with pytest.raises(NetError, match="the weights of 'before' are not given"):
        fold(net)
    net = full(text(scale=""))
    fill_blob(layer(net, "bn").blobs[0], np.zeros(5, np.float32))
    with pytest.raises(NetError, match="its blobs are not a mean and a variance for each channel"):
        fold(net)
    net = full(text(norm=""))
    for blob in layer(net, "scale").blobs:
        fill_blob(blob, np.zeros(5, np.float32))
    with pytest.raises(NetError, match="it has 5 channels, which the weights of 'before' do not fit"):
        fold(net)
    net = full(text(scale=""))
    fill_blob(layer(net, "bn").blobs[1], np.full(6, -1, np.float32))
    with pytest.raises(NetError, match="its factors are not finite"):
        fold(net)


def test_a_net_without_such_layers_is_an_error():
    with pytest.raises(NetError, match="nothing can be folded: the net has no BatchNorm, Scale or Bias layer"):
        fold(full(text(norm="", scale="")))


def test_the_net_given_stays_as_it_was():
    net = full(text())
    before = net.SerializeToString()
    fold(net)
    assert net.SerializeToString() == before


def test_what_is_folded_may_be_shared_since_it_is_only_read():
    norm = NORM % 'param { name: "m" } param { name: "v" } param { name: "f" }'
    other = f'layer {{ name: "other" bottom: "data" top: "y" {BEFORE["convolution"]} }}\n' + norm.replace(
        '"x"', '"y"'
    ).replace('"bn"', '"bn2"')
    edit, found = prove(full(text(norm=norm, scale="") + other), fold)
    assert names(edit.net) == ["data", "before", "relu", "other"] and found[0].largest_relative < 1e-5
