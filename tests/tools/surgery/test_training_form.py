"""Deploy nets made into nets that train."""

from functools import partial

import pytest

from mgcaffe.engine.layer import TRAIN
from mgcaffe.engine.net import Net
from mgcaffe.errors import NetError
from mgcaffe.prototxt import parse_net, read_net
from mgcaffe.tools.commands import edit as command
from mgcaffe.tools.surgery.deploy_form import to_deploy
from mgcaffe.tools.surgery.net_diff import diff_nets
from mgcaffe.tools.surgery.training_form import LOSSES, DataChoice, to_training
from tests.support.paths import MODELS
from tests.support.surgerykit import SMALL, STATE, TRAINS, full, layer, names, prove

DATA = DataChoice("Data", ("a_lmdb", "b_lmdb"), 16)
TRAINING = partial(to_training, data=DATA, loss=None)


def net(text):
    return parse_net(text).param


def test_data_layers_a_loss_and_an_accuracy_take_their_places():
    edit, found = prove(full(SMALL), TRAINING)
    assert names(edit.net) == ["data", "data", "conv", "relu", "ip", "loss", "accuracy"]
    train, test = edit.net.layer[:2]
    assert (train.data_param.source, test.data_param.source) == ("a_lmdb", "b_lmdb")
    assert train.data_param.batch_size == 16 and train.transform_param.crop_size == 6
    assert list(train.top) == ["data", "label"]
    assert layer(edit.net, "conv").convolution_param.weight_filler.type == "xavier"
    assert layer(edit.net, "loss").type == "SoftmaxWithLoss" and list(layer(edit.net, "loss").bottom) == ["ip", "label"]
    assert found[0].largest_absolute == 0 and "ip" in {each.name for each in found}
    assert "got weight_filler xavier, having none: conv, ip" in edit.notes
    assert edit.notes[0] == (
        "train_val net: Data layers in place of its inputs, and a SoftmaxWithLoss of 'ip'; "
        "check transform_param (mean, scale, mirror)"
    )


def test_frozen_weights_get_no_filler_but_are_named():
    frozen = net(SMALL)
    layer(frozen, "conv").param.add(lr_mult=0)
    edit = TRAINING(frozen)
    assert not layer(edit.net, "conv").convolution_param.HasField("weight_filler")
    assert edit.notes[1:] == (
        "got weight_filler xavier, having none: ip",
        "frozen (lr_mult 0), and 0 unless --weights is given: conv",
    )


def test_frozen_factors_and_addends_are_named():
    text = """
    layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 4 dim: 3 dim: 6 dim: 6 } } }
    layer { name: "mask" type: "Scale" bottom: "data" top: "mask" param { lr_mult: 0 } }
    layer { name: "half" type: "Scale" bottom: "mask" top: "half" param { lr_mult: 0 }
            scale_param { filler { value: 0.5 } } }
    layer { name: "mean" type: "Bias" bottom: "half" top: "mean" param { lr_mult: 0 } }
    layer { name: "free" type: "Bias" bottom: "mean" top: "free" }
    """
    edit = to_training(net(text), data=DATA, loss="softmax")
    assert edit.notes[1:] == (
        "frozen (lr_mult 0), and 0 unless --weights is given: mean",
        "frozen (lr_mult 0), and 1 unless --weights is given: mask",
    )


def test_recurrent_layers_get_a_filler_and_frozen_parameters_are_named():
    text = """
    layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 4 dim: 3 dim: 6 dim: 6 } } }
    layer { name: "cont" type: "Parameter" top: "cont" param { lr_mult: 0 } parameter_param { shape { dim: 4 } } }
    layer { name: "more" type: "Parameter" top: "more" parameter_param { shape { dim: 4 dim: 3 dim: 6 } } }
    layer { name: "lstm" type: "LSTM" bottom: "data" bottom: "cont" top: "lstm" recurrent_param { num_output: 6 } }
    layer { name: "sum" type: "Eltwise" bottom: "lstm" bottom: "more" top: "sum" }
    """
    edit = to_training(net(text), data=DATA, loss="softmax")
    assert layer(edit.net, "lstm").recurrent_param.weight_filler.type == "xavier"
    assert edit.notes[1:] == (
        "got weight_filler xavier, having none: lstm",
        "frozen (lr_mult 0), and 0 unless --weights is given: cont",
    )


@pytest.mark.parametrize("model", ["alexnet", "lenet", "resnet50"])
def test_there_and_back_gives_the_deploy_net_again(model):
    deploy = read_net(MODELS / model / "deploy.prototxt")
    shapes = {"data": tuple(deploy.layer[0].input_param.shape[0].dim)}
    trains = TRAINING(deploy).net
    Net(trains, phase=TRAIN, outline=True, input_shapes={"*": shapes["data"][1:]}).close()
    assert diff_nets(to_deploy(trains, shapes, STATE).net, deploy).equal


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ("ImageData", {"new_height": 6, "new_width": 6, "shuffle": True, "source": "a_lmdb", "batch_size": 16}),
        ("HDF5Data", {"source": "a_lmdb", "batch_size": 16}),
    ],
)
def test_other_data_layers(choice, said):
    made = to_training(net(SMALL), DataChoice(choice, DATA.sources, 16), None).net.layer[0]
    param = made.image_data_param if choice == "ImageData" else made.hdf5_data_param
    assert made.type == choice and {name: getattr(param, name) for name in said} == said


@pytest.mark.parametrize("channels", [1, 3])
def test_image_files_are_read_in_colour_unless_the_input_has_one_channel(channels):
    text = SMALL.replace("dim: 3", f"dim: {channels}")
    train, test = to_training(net(text), DataChoice("ImageData", DATA.sources, 16), None).net.layer[:2]
    assert train.image_data_param.is_color == test.image_data_param.is_color == (channels == 3)
    assert train.image_data_param.shuffle and not test.image_data_param.shuffle


def test_each_of_several_outputs_gets_a_loss_of_its_own():
    more = """
    layer { name: "ip2" type: "InnerProduct" bottom: "conv" top: "ip2" inner_product_param { num_output: 7 } }
    layer { name: "prob2" type: "Softmax" bottom: "ip2" top: "prob2" }
    """
    edit, _ = prove(full(SMALL + more), TRAINING)
    ends = [(row.name, list(row.bottom), list(row.top)) for row in edit.net.layer if "label" in row.bottom]
    assert ends == [
        (name, [scores, "label"], [name])
        for name, scores in [("loss", "ip"), ("accuracy", "ip"), ("loss2", "ip2"), ("accuracy2", "ip2")]
    ]


@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_can_be_chosen(loss):
    text = SMALL[: SMALL.index('layer { name: "prob"')]
    made = to_training(net(text), DATA, loss).net
    assert layer(made, "loss").type == LOSSES[loss]
    assert ("accuracy" in names(made)) == (loss in ("softmax", "hinge"))
    if loss == "sigmoid":
        with pytest.raises(NetError, match="--loss sigmoid takes scores, and output 'prob' is a Softmax of them"):
            to_training(net(SMALL), DATA, loss)
    else:
        assert ("prob" in names(to_training(net(SMALL), DATA, loss).net)) == (loss != "softmax")


def test_the_command_offers_what_there_is():
    assert set(command._LOSSES) == set(LOSSES)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TRAINS, "the net trains already: it has 'data'"),
        (SMALL[: SMALL.index('layer { name: "prob"')], "comes from 'ip' (InnerProduct), which suggests no loss"),
        (SMALL.replace('"ip"', '"label"'), "has a blob 'label' already"),
        (SMALL.replace("dim: 6 dim: 6", ""), "input 'data' has 2 axes"),
        (SMALL + 'layer { name: "in" type: "Input" top: "in" }', "the net has 2 inputs (data, in)"),
        ('layer { name: "in" type: "Input" top: "in" input_param { shape { dim: 1 } } }', "has 1 axes"),
    ],
)
def test_nets_that_cannot_train(text, said):
    with pytest.raises(NetError) as error:
        TRAINING(net(text))
    assert said in str(error.value)
