"""BatchNorm, Scale, ReLU and the Convolution behind them compute as one what they do one by one, and keep less."""

import pytest
import torch

from mgcaffe.engine.kernels.choice.contest import Contest
from mgcaffe.engine.tuning import tune
from tests.support.netkit import inputs, make_net, net_with_images

LARGE, SMALL = (8, 64, 18, 18), (2, 64, 5, 5)
NORM = """
layer { name: "bn" type: "BatchNorm" bottom: "x" top: "%(top)s" }
layer { name: "scale" type: "Scale" bottom: "%(top)s" top: "%(top)s" scale_param { bias_term: true
  filler { type: "uniform" min: 0.5 max: 1.5 } bias_filler { type: "uniform" min: -0.5 max: 0.5 } } }
layer { name: "relu" type: "ReLU" bottom: "%(top)s" top: "%(top)s" }
"""
CONVOLUTION = """
layer { name: "conv" type: "Convolution" bottom: "y" top: "z"
  convolution_param { num_output: 3 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }
"""
LOSS = """
layer { name: "pool" type: "Pooling" bottom: "z" top: "pool" pooling_param { pool: AVE global_pooling: true } }
layer { name: "loss" type: "EuclideanLoss" bottom: "pool" bottom: "t" top: "loss" }
"""


def text_of(shape, middle=CONVOLUTION, top="y", channels=3):
    return inputs(x=shape, t=(shape[0], channels, 1, 1)) + NORM % {"top": top} + middle + LOSS


def run(text, shape, **options):
    """Return a net after a pass forward, its loss, and after one backward all gradients and statistics."""
    net = net_with_images(text, shape, **options)
    loss = net.forward()
    saved = {type(step.layer).__name__: step.layer.saved for step in net.steps}
    net.backward()
    found = [each.data if each.measured else each.dense_diff() for each in net.parameters]
    return [type(step.layer).__name__ for step in net.steps], saved, loss, found


def assert_same(text, shape):
    """Compare a net that fuses with one that doesn't; return what the first runs and keeps between its passes."""
    types, saved, loss, found = run(text, shape, keep_blobs=False)
    _, _, expected_loss, expected = run(text, shape, keep_blobs=True)
    assert loss == pytest.approx(expected_loss, rel=1e-5)
    for mine, other in zip(found, expected, strict=True):
        assert float(other.abs().max()) > 0
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5 * float(other.abs().max()))
    return types, saved


@pytest.mark.parametrize(("shape", "keeps"), [(LARGE, False), (SMALL, True)], ids=["large", "small"])
def test_with_a_convolution(shape, keeps):
    types, saved = assert_same(text_of(shape), shape)
    assert types[2] == "NormalizedConvolution"
    x, y, *_ = saved["NormalizedConvolution"]
    assert x.shape == shape
    assert (y is not None) == keeps


def test_a_net_may_end_with_the_convolution():
    net = make_net(inputs(x=SMALL) + NORM % {"top": "y"} + CONVOLUTION, keep_blobs=False)
    assert [type(step.layer).__name__ for step in net.steps[1:]] == ["NormalizedConvolution"]


def test_a_scale_learns_behind_stored_statistics():
    text = text_of(SMALL).replace('top: "y" }', 'top: "y" batch_norm_param { use_global_stats: true } }', 1)
    types, _, loss, found = run(text, SMALL, keep_blobs=False)
    _, _, expected_loss, expected = run(text, SMALL, keep_blobs=True)
    assert loss == pytest.approx(expected_loss, rel=1e-5)
    assert bool(expected[3].any()) and types[2] == "BatchNorm"
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_what_others_read_too_is_kept():
    other = 'layer { name: "second" type: "Pooling" bottom: "y" top: "w" pooling_param { pool: AVE kernel_size: 3 } }\n'
    other += 'layer { name: "silence" type: "Silence" bottom: "w" }\n'
    types, saved = assert_same(text_of(LARGE, CONVOLUTION + other), LARGE)
    assert "NormalizedConvolution" not in types
    assert saved["BatchNormScale"][1] is not None


def test_a_convolution_with_a_relu_runs_with_that():
    relu = 'layer { name: "relu2" type: "ReLU" bottom: "z" top: "z" }\n'
    types, saved = assert_same(text_of(LARGE, CONVOLUTION + relu), LARGE)
    assert types[2:4] == ["BatchNormScale", "ConvolutionReLU"]
    assert saved["BatchNormScale"][1] is saved["ConvolutionReLU"][0]


def test_only_the_mask_of_the_relu_needs_it_before_a_pooling():
    pooling = 'layer { name: "max" type: "Pooling" bottom: "y" top: "z" pooling_param { pool: MAX kernel_size: 2 } }\n'
    _, saved = assert_same(text_of(LARGE, pooling, channels=64), LARGE)
    assert saved["BatchNormScale"][1] is None


def test_measuring_leaves_the_statistics_alone():
    net = make_net(text_of(SMALL), dtype=torch.float32, keep_blobs=False)
    for each in net.parameters:
        each.data.fill_(0.5)
    tune(net, Contest({}))
    assert all(bool((each.data == 0.5).all()) for each in net.parameters)
