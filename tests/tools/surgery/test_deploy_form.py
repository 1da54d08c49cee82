"""Deploy nets: the same as those written by hand, for nets of all kinds of losses."""

from functools import partial

import pytest

from mgcaffe.errors import NetError
from mgcaffe.prototxt import parse_net, read_net
from mgcaffe.tools.surgery.deploy_form import to_deploy
from mgcaffe.tools.surgery.net_diff import diff_nets
from tests.support.paths import MODELS
from tests.support.surgerykit import SHAPES, STATE, TRAINS, full, layer, names, prove

DEPLOY = partial(to_deploy, shapes=SHAPES, state=STATE)
LOSS = 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }'


def net(text):
    return parse_net(text).param


@pytest.mark.parametrize("model", ["alexnet", "cifar10_full", "cifar10_quick", "googlenet", "lenet", "resnet50"])
def test_the_train_val_nets_of_models_become_the_deploy_nets_beside_them(model):
    deploy = read_net(MODELS / model / "deploy.prototxt")
    shapes = {"data": tuple(deploy.layer[0].input_param.shape[0].dim)}
    found = to_deploy(read_net(MODELS / model / "train_val.prototxt"), shapes, STATE)
    assert diff_nets(found.net, deploy).equal


def test_data_losses_and_what_is_about_training_are_gone_and_values_stay():
    edit, found = prove(full(TRAINS, SHAPES), DEPLOY, SHAPES)
    assert names(edit.net) == ["image", "conv", "relu", "drop", "ip", "prob"]
    assert list(layer(edit.net, "image").input_param.shape[0].dim) == [2, 3, 6, 6]
    conv = layer(edit.net, "conv")
    assert not conv.param and not conv.convolution_param.HasField("weight_filler") and len(conv.blobs) == 2
    assert found[0].largest_absolute == 0 and "ip" in {each.name for each in found}
    assert edit.notes == ("deploy net: inputs 'image' 2x3x6x6; removed accuracy, loss",)


def test_dropout_goes_on_request_also_where_it_is_not_in_place():
    edit, found = prove(full(TRAINS, SHAPES), partial(DEPLOY, keep_dropout=False), SHAPES)
    assert names(edit.net) == ["image", "conv", "relu", "ip", "prob"]
    assert list(layer(edit.net, "ip").bottom) == ["conv"]
    assert found[0].largest_absolute == 0
    read = TRAINS.replace(LOSS, LOSS + 'layer { name: "abs" type: "AbsVal" bottom: "conv" top: "abs" }')
    assert "drop" in names(DEPLOY(net(read), keep_dropout=False).net)


def test_dropout_that_scales_in_tests_stays():
    text = TRAINS.replace('type: "Dropout"', 'type: "Dropout" dropout_param { scale_train: false }')
    assert text != TRAINS
    edit, found = prove(full(text, SHAPES), partial(DEPLOY, keep_dropout=False), SHAPES)
    assert "drop" in names(edit.net) and found[0].largest_absolute == 0


@pytest.mark.parametrize(
    ("loss", "last"),
    [
        ('type: "SigmoidCrossEntropyLoss" bottom: "ip" bottom: "label"', ("prob", "Sigmoid")),
        ('type: "InfogainLoss" bottom: "ip" bottom: "label" infogain_loss_param { axis: 1 }', ("prob", "Softmax")),
        ('type: "EuclideanLoss" bottom: "ip" bottom: "label"', ("ip", "InnerProduct")),
        ('type: "EuclideanLoss" bottom: "label" bottom: "ip"', ("ip", "InnerProduct")),
        (
            'type: "EuclideanLoss" include { phase: TRAIN } bottom: "label" bottom: "ip"',
            ("ip", "InnerProduct"),
        ),
        ('type: "HingeLoss" bottom: "ip" bottom: "label"', ("ip", "InnerProduct")),
        ('type: "SoftmaxWithLoss" include { phase: TRAIN } bottom: "ip" bottom: "label"', ("prob", "Softmax")),
    ],
)
def test_each_loss_leaves_its_prediction(loss, last):
    made = DEPLOY(net(TRAINS.replace(LOSS, f'layer {{ name: "loss" top: "loss" {loss} }}'))).net
    assert (made.layer[-1].name, made.layer[-1].type) == last
    assert names(made)[0] == "image" and not {"label", "loss"} & {name for row in made.layer for name in row.bottom}


@pytest.mark.parametrize("bottoms", [("ip", "label"), ("label", "ip")])
def test_a_prediction_is_told_from_labels_that_an_input_layer_gives(bottoms):
    start, end = TRAINS.index('layer { name: "conv"'), TRAINS.index('layer { name: "accuracy"')
    given = """
    layer { name: "image" type: "Input" top: "image" input_param { shape { dim: 2 dim: 3 dim: 6 dim: 6 } } }
    layer { name: "label" type: "Input" top: "label" input_param { shape { dim: 2 dim: 5 } } }
    """
    loss = 'layer {{ name: "loss" type: "EuclideanLoss" bottom: "{}" bottom: "{}" top: "loss" }}'.format(*bottoms)
    assert names(DEPLOY(net(given + TRAINS[start:end] + loss)).net) == ["image", "conv", "relu", "drop", "ip"]


def test_the_axis_of_the_softmax_is_kept():
    text = TRAINS.replace('type: "SoftmaxWithLoss"', 'type: "SoftmaxWithLoss" softmax_param { axis: -1 }')
    assert layer(DEPLOY(net(text)).net, "prob").softmax_param.axis == -1


AUXILIARY = (
    LOSS
    + """
layer { name: "side" type: "InnerProduct" bottom: "conv" top: "side" inner_product_param { num_output: 5 } }
layer { name: "loss2" type: "SoftmaxWithLoss" bottom: "side" bottom: "label" top: "loss2" loss_weight: 0.3 }
layer { name: "seen" type: "Silence" bottom: "side" }
"""
)


def test_auxiliary_heads_are_removed_unless_they_are_asked_for():
    text = TRAINS.replace(LOSS, AUXILIARY)
    assert names(DEPLOY(net(text)).net) == ["image", "conv", "relu", "drop", "ip", "prob"]
    both = DEPLOY(net(text), outputs=["ip", "side"]).net
    assert [(row.name, list(row.bottom)) for row in both.layer if row.type == "Softmax"] == [
        ("prob", ["ip"]), ("prob2", ["side"]),
    ]  # fmt: skip
    conv = DEPLOY(net(text), outputs=["conv"]).net
    assert names(conv) == ["image", "conv", "relu"]
    with pytest.raises(NetError, match="--outputs: the net has no blob 'sid'") as error:
        DEPLOY(net(text), outputs=["sid"])
    assert "did you mean 'side'?" in str(error.value)


def test_a_softmax_that_tests_have_already_is_not_made_twice():
    text = TRAINS + 'layer { name: "p" type: "Softmax" bottom: "ip" top: "p" include { phase: TEST } }'
    made = DEPLOY(net(text)).net
    assert names(made)[-1] == "p" and not layer(made, "p").include


def test_labels_that_are_taken_apart_first_leave_nothing():
    start = TRAINS.index('layer { name: "accuracy"')
    labels = """
    layer { name: "parts" type: "Slice" bottom: "label" top: "l1" top: "l2" slice_param { axis: 1 } }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "l1" top: "loss" }
    layer { name: "total" type: "Eltwise" bottom: "loss" bottom: "loss" top: "total" }
    layer { name: "other" type: "Silence" bottom: "l2" }
    """
    assert names(DEPLOY(net(TRAINS[:start] + labels)).net) == ["image", "conv", "relu", "drop", "ip", "prob"]


def test_shared_parameters_keep_their_names():
    text = TRAINS.replace(
        "param { lr_mult: 1 } param { lr_mult: 2 }", 'param { name: "w" lr_mult: 3 } param { lr_mult: 2 }'
    )
    specs = layer(DEPLOY(net(text)).net, "conv").param
    assert [(spec.name, spec.HasField("lr_mult")) for spec in specs] == [("w", False), ("", False)]


def test_a_net_without_predictions_and_a_missing_shape_are_errors():
    text = TRAINS[: TRAINS.index('layer { name: "conv"')]
    with pytest.raises(NetError, match="the net has no loss and no output"):
        DEPLOY(net(text))
    with pytest.raises(NetError, match="the shape of blob 'image'"):
        to_deploy(net(TRAINS), {}, STATE)


def test_a_contrastive_loss_leaves_both_branches():
    twin = (
        'layer { name: "twin" type: "InnerProduct" bottom: "drop" top: "twin" inner_product_param { num_output: 5 } }'
    )
    for phase in ("", "include { phase: TRAIN }"):
        loss = LOSS.replace('"SoftmaxWithLoss" bottom: "ip"', f'"ContrastiveLoss" {phase} bottom: "ip" bottom: "twin"')
        edit = DEPLOY(net(TRAINS.replace(LOSS, twin + loss)))
        assert names(edit.net) == ["image", "conv", "relu", "drop", "ip", "twin"]


def test_an_input_layer_keeps_only_what_is_read():
    start = TRAINS.index('layer { name: "conv"')
    for shapes in ("shape { dim: 2 dim: 3 dim: 6 dim: 6 } shape { dim: 2 }", "shape { dim: 2 dim: 1 dim: 3 dim: 3 }"):
        given = f'layer {{ name: "in" type: "Input" top: "image" top: "label" input_param {{ {shapes} }} }}'
        (row,) = [row for row in DEPLOY(net(given + TRAINS[start:])).net.layer if row.type == "Input"]
        assert list(row.top) == ["image"] and len(row.input_param.shape) == 1 and len(row.input_param.shape[0].dim) == 4


def test_labels_are_no_prediction_where_what_is_compared_is_made_in_training_alone():
    aux = """
    layer { name: "aux" type: "InnerProduct" include { phase: TRAIN } bottom: "conv" top: "aux"
            inner_product_param { num_output: 5 } }
    """
    in_training = LOSS.replace("bottom", "include { phase: TRAIN } bottom", 1)
    losses = in_training + in_training.replace('"loss"', '"loss2"').replace('"ip"', '"aux"')
    made = DEPLOY(net(TRAINS.replace(LOSS, aux + losses))).net
    assert [(row.name, list(row.bottom)) for row in made.layer if row.type == "Softmax"] == [("prob", ["ip"])]


def test_a_layer_of_which_one_top_is_read_stays_whole():
    cut = """
    layer { name: "cut" type: "Slice" bottom: "ip" top: "a" top: "b" slice_param { slice_point: 2 } }
    layer { name: "abs" type: "AbsVal" bottom: "a" top: "abs" }
    """
    text = TRAINS.replace(LOSS, cut + LOSS.replace('"ip"', '"abs"'))
    edit, found = prove(full(text, SHAPES), DEPLOY, SHAPES)
    assert list(layer(edit.net, "cut").top) == ["a", "b"] and list(layer(edit.net, "prob").bottom) == ["abs"]
    assert found[0].largest_absolute == 0 and {"a", "b", "abs"} <= {each.name for each in found}
