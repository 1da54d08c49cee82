"""Nets that are cut after a layer."""

from functools import partial

import pytest

from mgcaffe.errors import NetError
from mgcaffe.prototxt import parse_net
from mgcaffe.tools.surgery.ends import cut_after
from tests.support.surgerykit import SHAPES, SMALL, STATE, TRAINS, full, names, prove


def test_the_layer_is_the_end_also_where_one_in_place_follows():
    edit, found = prove(full(SMALL), partial(cut_after, name="conv", state=STATE))
    assert names(edit.net) == ["data", "conv"]
    assert [each.name for each in found] == ["conv@conv"] and found[0].largest_absolute == 0
    assert edit.notes == ("cut after 'conv': 3 layer(s) removed (relu, ip, prob)",)


def test_branches_that_the_layer_does_not_need_go_and_both_phases_keep_their_data():
    side = 'layer { name: "side" type: "AbsVal" bottom: "image" top: "side" }\nlayer { name: "relu"'
    net = full(TRAINS.replace('layer { name: "relu"', side), SHAPES)
    edit, _ = prove(net, partial(cut_after, name="ip", state=STATE), SHAPES)
    assert names(edit.net) == ["data", "data", "conv", "relu", "drop", "ip"]


def test_after_a_layer_of_one_phase_both_phases_can_still_run():
    edit = cut_after(parse_net(TRAINS).param, "accuracy", STATE)
    assert names(edit.net) == ["data", "data", "conv", "relu", "drop", "ip", "accuracy"]
    twins = "".join(
        f'layer {{ name: "bn" type: "BatchNorm" bottom: "conv" top: "bn" include {{ phase: {phase} }} }}\n'
        for phase in ("TRAIN", "TEST")
    )
    text = TRAINS.replace('layer { name: "drop"', twins + 'layer { name: "drop"').replace(
        'bottom: "conv" top: "drop"', 'bottom: "bn" top: "drop"'
    )
    edit, _ = prove(full(text, SHAPES), partial(cut_after, name="accuracy", state=STATE), SHAPES)
    assert names(edit.net).count("bn") == 2


def test_layers_that_are_not_there_are_errors():
    with pytest.raises(NetError, match="--cut ipp: the net has no layer 'ipp'"):
        cut_after(parse_net(SMALL).param, "ipp", STATE)
    staged = SMALL.replace('name: "ip"', 'name: "ip" include { stage: "never" }').replace(
        'bottom: "ip"', 'bottom: "conv"'
    )
    with pytest.raises(NetError, match="takes part in neither phase"):
        cut_after(parse_net(staged).param, "ip", STATE)
