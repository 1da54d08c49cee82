"""Another number of classes."""

from functools import partial

import pytest

from mgcaffe.engine.net import TEST, Net
from mgcaffe.errors import NetError
from mgcaffe.prototxt import parse_net, read_net
from mgcaffe.tools.surgery.classes import change_classes
from mgcaffe.tools.surgery.edit import weights_of, without_weights
from tests.support.netkit import inputs
from tests.support.paths import MODELS
from tests.support.surgerykit import SHAPES, SMALL, STATE, TRAINS, full, layer, names, prove

TWENTY = partial(change_classes, classes=20, layers=(), state=STATE)


def test_the_layer_behind_the_softmax_is_new_and_has_to_be_trained():
    net = full(SMALL)
    edit, found = prove(net, TWENTY)
    assert names(edit.net) == ["data", "conv", "relu", "ip_20", "prob"]
    new = layer(edit.net, "ip_20")
    assert new.inner_product_param.num_output == 20 and not new.blobs and list(new.top) == ["ip"]
    assert {each.name for each in found} == {"conv@conv", "conv"} and found[0].largest_absolute == 0
    (note,) = edit.notes
    assert "layer 'ip' (5 outputs) is now 'ip_20' (20 outputs); the weights of 'ip' (2 blobs) are left out" in note
    assert "'xavier', and has to be trained" in note


def test_the_old_weights_and_the_new_ones_fit_the_new_net():
    net = full(SMALL)
    edit = TWENTY(net)
    made = Net(without_weights(edit.net), phase=TEST, seed=1)
    assert made.copy_trained_layers(weights_of(edit.net)).copied[0].layer == "conv"
    report = made.copy_trained_layers(weights_of(net))
    assert [row.layer for row in report.copied] == ["conv"]
    assert made.blobs["prob"].shape == (2, 20)


def test_nets_that_train_are_searched_from_their_losses():
    edit, _ = prove(full(TRAINS, SHAPES), TWENTY, SHAPES)
    assert "ip_20" in names(edit.net)
    net = TWENTY(read_net(MODELS / "googlenet" / "train_val.prototxt")).net
    assert [name for name in names(net) if name.endswith("_20")] == [
        "loss1/classifier_20", "loss2/classifier_20", "loss3/classifier_20",
    ]  # fmt: skip
    assert layer(net, "loss3/classifier_20").inner_product_param.weight_filler.type == "xavier"


def test_a_convolution_scores_too_and_layers_can_be_named():
    text = (
        SMALL.replace("num_output: 5", "num_output: 4")
        + """
    layer { name: "score" type: "Convolution" bottom: "conv" top: "score"
      convolution_param { num_output: 7 kernel_size: 1 } }
    layer { name: "pool" type: "Pooling" bottom: "score" top: "pool" pooling_param { pool: AVE global_pooling: true } }
    """
    )
    assert [name for name in names(TWENTY(parse_net(text).param).net) if "_20" in name] == ["ip_20", "score_20"]
    one = change_classes(parse_net(text).param, 20, ["score"], STATE)
    assert [name for name in names(one.net) if "_20" in name] == ["score_20"]


@pytest.mark.parametrize(
    ("bottoms", "changed"),
    [
        ('bottom: "label" bottom: "ip"', ["ip_20"]),
        ('bottom: "ip" bottom: "label"', ["ip_20"]),
        ('bottom: "ip" bottom: "twin"', ["ip_20", "twin_20"]),
    ],
)
def test_both_bottoms_of_a_loss_of_their_difference_are_looked_at(bottoms, changed):
    shape = "inner_product_param { num_output: 5 }"
    twin = f'layer {{ name: "twin" type: "InnerProduct" bottom: "conv" top: "twin" {shape} }}'
    loss = f'layer {{ name: "loss" type: "EuclideanLoss" {bottoms} top: "loss" }}'
    edit = TWENTY(parse_net(SMALL + inputs(label=(2, 5)) + twin + loss).param)
    assert sorted(name for name in names(edit.net) if name.endswith("_20")) == changed


def test_a_layer_of_scores_behind_a_sum_that_a_loss_compares_has_to_be_named():
    text = """
    layer { name: "twin" type: "InnerProduct" bottom: "conv" top: "twin" inner_product_param { num_output: 5 } }
    layer { name: "sum" type: "Eltwise" bottom: "twin" bottom: "twin" top: "sum" }
    layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "sum" top: "loss" }"""
    with pytest.raises(NetError, match=r"stands 'sum' \(Eltwise\)"):
        TWENTY(parse_net(SMALL + text).param)


@pytest.mark.parametrize(
    ("text", "layers", "said"),
    [
        (SMALL, ["conv", "relu"], "layer 'relu' is a ReLU; classes are scored by InnerProduct or Convolution"),
        (SMALL, ["fc"], "--class_layers fc: the net has no layer 'fc'"),
        (SMALL.replace('"relu"', '"ip_20"'), [], "a layer 'ip_20' is in the net already"),
        (SMALL.replace('type: "Softmax" bottom', 'type: "BatchNorm" bottom'), [], "stands 'prob' (BatchNorm)"),
        (SMALL[: SMALL.index('layer { name: "conv"')] + 'layer { name: "r" type: "ReLU" bottom: "data" top: "r" }', [],
         "the prediction comes from no InnerProduct and no Convolution"),
        ('layer { name: "in" type: "Input" top: "in" input_param { shape { dim: 1 } } }', [], "the net has no output"),
    ],
)  # fmt: skip
def test_mistakes_are_named(text, layers, said):
    with pytest.raises(NetError) as error:
        change_classes(parse_net(text).param, 20, layers, STATE)
    assert said in str(error.value)


def test_accuracies_of_more_classes_than_there_are_go():
    best = (
        'layer { name: "best" type: "Accuracy" bottom: "ip" bottom: "label" top: "best" accuracy_param { top_k: %d } }'
    )
    edit = TWENTY(parse_net(TRAINS + best % 21).param)
    assert "best" not in names(edit.net) and "accuracy" in names(edit.net)
    assert edit.notes[1] == "removed 'best': of 20 classes the best 21 are all"
    assert "best" in names(TWENTY(parse_net(TRAINS + best % 20).param).net)


def test_layers_that_share_parameters_are_replaced_together():
    shared = 'inner_product_param { num_output: 5 } param { name: "w" } }'
    text = SMALL.replace("inner_product_param { num_output: 5 } }", shared)
    net = parse_net(text + f'layer {{ name: "twin" type: "InnerProduct" bottom: "conv" top: "twin" {shared}').param
    with pytest.raises(NetError, match="'ip' shares parameters with 'twin'") as error:
        change_classes(net, 20, ["ip"], STATE)
    assert "--class_layers ip,twin" in str(error.value)
    assert names(change_classes(net, 20, ["ip", "twin"], STATE).net).count("twin_20") == 1
