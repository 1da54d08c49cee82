"""Convolutions keep the transformed tiles of their bottoms from forward to backward, and not longer."""

import logging

import pytest
import torch

from mgcaffe.engine.graph.fused_normalization import NormalizedConvolution
from mgcaffe.engine.kernels import winograd_grid
from mgcaffe.engine.kernels.choice.choices import RULES, Forced
from mgcaffe.engine.kernels.choice.contest import Contest
from mgcaffe.engine.kernels.precision import BF16
from mgcaffe.engine.layers.convolution import Convolution
from mgcaffe.engine.tuning import tune
from mgcaffe.prototxt import TEST
from tests.support.netkit import inputs, net_with_images

CONVOLUTION = """layer { name: "%s" type: "Convolution" bottom: "%s" top: "%s" %s convolution_param {
  num_output: 4 kernel_size: 3 pad: 1 weight_filler { type: "gaussian" std: 0.3 } } }
"""
LOSS = """layer { name: "ip" type: "InnerProduct" bottom: "c2" top: "ip" inner_product_param { num_output: 1
  weight_filler { type: "xavier" } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "t" top: "loss" }
"""
RELU = 'layer { name: "relu" type: "ReLU" bottom: "c2" top: "c2" }\n'


@pytest.fixture
def transformed(monkeypatch):
    """The tiles of x that were transformed."""
    made, transform = [], winograd_grid.seen_tiles

    def watched(*args):
        made.append(transform(*args))
        return made[-1]

    monkeypatch.setattr(winograd_grid, "seen_tiles", watched)
    return made


def make(after="", param="", choices=None, **options):
    """Two convolutions, and what makes a loss of the second's top."""
    text = inputs(x=(2, 3, 8, 8), t=(2, 1)) + CONVOLUTION % ("one", "x", "c1", param)
    text += CONVOLUTION % ("two", "c1", "c2", param) + after + LOSS
    net = net_with_images(text, (2, 3, 8, 8), **{"keep_blobs": False, **options})
    net.context.choices = Forced("winograd_tiles_f43") if choices is None else choices
    return net


def kept(net):
    """What each convolution keeps now."""
    return [layer.tiles for layer in net.layers if isinstance(layer, Convolution)]


@pytest.mark.parametrize("after", ["", RELU])
def test_tiles_are_transformed_once_an_iteration_and_dropped_after_it(transformed, after):
    net = make(after)
    for _ in range(2):
        transformed.clear()
        net.forward()
        assert len(transformed) == 2
        assert [len(tiles.seen) for tiles in kept(net)] == [1, 1]
        net.backward()
        assert len(transformed) == 2
        assert kept(net) == [None, None]
    gradients = [each.dense_diff().clone() for each in net.parameters]
    plain = make(after, choices=RULES)
    for _ in range(2):
        plain.forward_backward()
    for found, each in zip(gradients, plain.parameters, strict=True):
        torch.testing.assert_close(found, each.dense_diff(), rtol=1e-4, atol=1e-4)


def test_filters_that_do_not_learn_keep_none():
    net = make(param="param { lr_mult: 0 } param { lr_mult: 1 }")
    assert all(layer.backward_follows for layer in net.layers if isinstance(layer, Convolution))
    net.forward()
    assert kept(net) == [None, None]


@pytest.mark.parametrize("after", ["", RELU])
def test_layers_that_are_computed_again_keep_none_meanwhile(transformed, after):
    net = make(after)
    net.recompute("one..relu" if after else "one..two")
    net.forward()
    assert kept(net) == [None, None]
    assert len(transformed) == 2
    net.backward()
    assert len(transformed) == 4


@pytest.mark.parametrize("options", [{"keep_blobs": True, "preferred_format": True}, {"phase": TEST}])
def test_nets_whose_blobs_a_user_may_change_and_those_without_backward_keep_none(transformed, options):
    net = make(**options)
    net.forward()
    assert len(transformed) == 2
    assert kept(net) == [None, None]


def test_what_another_layer_makes_again_is_kept_in_no_form(transformed):
    """Behind BatchNorm, Scale and ReLU the second convolution's bottom is made again in backward."""
    between = """layer { name: "norm" type: "BatchNorm" bottom: "c1" top: "n" }
    layer { name: "scale" type: "Scale" bottom: "n" top: "n" scale_param { bias_term: true } }
    layer { name: "relu" type: "ReLU" bottom: "n" top: "n" }
    """
    text = inputs(x=(2, 3, 8, 8), t=(2, 1)) + CONVOLUTION % ("one", "x", "c1", "") + between
    net = net_with_images(text + CONVOLUTION % ("two", "n", "c2", "") + LOSS, (2, 3, 8, 8), keep_blobs=False)
    assert any(isinstance(step.layer, NormalizedConvolution) for step in net.steps)
    net.context.choices = Forced("winograd_tiles_f43")
    net.forward()
    assert [tiles is None for tiles in kept(net)] == [False, True]
    assert len(transformed) == 2
    net.backward()
    assert len(transformed) == 3


@pytest.mark.parametrize("after", ["", RELU])
def test_a_last_product_whose_operand_is_not_rounded_keeps_none(after):
    """It reads its bottom in float32, and its gradient is made from what is rounded."""
    net = make(after, precision=BF16)
    for layer in net.layers:
        if isinstance(layer, Convolution):
            layer.is_last_product = True
    net.forward()
    assert kept(net) == [None, None]


def test_measuring_keeps_none_and_finds_no_candidate_unfit(transformed, caplog):
    net, contest = make(choices=RULES), Contest({}, bound=1e-4)
    with caplog.at_level(logging.WARNING):
        tune(net, contest)
    assert transformed
    assert caplog.text == ""
    assert kept(net) == [None, None]
    assert all(not record.unfit for record in contest.records.values())
