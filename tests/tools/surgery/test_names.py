"""Other names for layers, which the weights follow."""

from functools import partial

import pytest

from mgcaffe.errors import NetError
from mgcaffe.tools.surgery.names import rename
from tests.support.surgerykit import SHAPES, SMALL, TRAINS, full, layer, names, prove


def test_weights_follow_and_blobs_keep_their_names():
    net = full(SMALL)
    edit, found = prove(net, partial(rename, names={"conv": "first", "relu": "conv"}))
    assert names(edit.net) == ["data", "first", "conv", "ip", "prob"]
    assert layer(edit.net, "first").blobs == layer(net, "conv").blobs and list(layer(edit.net, "first").top) == ["conv"]
    assert len(found) == 4 and found[0].largest_absolute == 0
    assert edit.notes == ("layer 'conv' is now 'first'", "layer 'relu' is now 'conv'")


def test_a_name_of_both_phases_is_changed_in_both():
    edit, _ = prove(full(TRAINS, SHAPES), partial(rename, names={"data": "source"}), SHAPES)
    assert names(edit.net)[:2] == ["source", "source"]


def test_unknown_and_taken_names_are_errors():
    with pytest.raises(NetError, match="--rename cov=x: the net has no layer 'cov'") as error:
        rename(full(SMALL), {"cov": "x"})
    assert "did you mean 'conv'?" in str(error.value)
    with pytest.raises(NetError, match="layers 'conv' and 'ip' would both be called 'ip'"):
        rename(full(SMALL), {"conv": "ip"})
