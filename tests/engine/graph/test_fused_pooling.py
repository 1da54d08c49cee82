"""MAX pooling masks the gradient of the ReLU before it, with the same bits, and the ReLU's top is not kept."""

import pytest
import torch

from mgcaffe.engine.graph import fusion
from mgcaffe.engine.graph.fused_pooling import RectifiedPooling
from mgcaffe.engine.graph.memory_plan import plan_memory
from mgcaffe.engine.kernels import batch_norm
from mgcaffe.engine.kernels.precision import BF16
from mgcaffe.prototxt import TEST
from tests.support.netkit import inputs, net_with_images

SHAPE = (3, 2, 9, 8)
CONVOLUTION = """
layer { name: "conv" type: "Convolution" bottom: "x" top: "c" convolution_param { num_output: 4 kernel_size: 3 pad: 1
  weight_filler { type: "gaussian" std: 0.5 } bias_filler { type: "uniform" min: -1 max: 1 } } }
"""
NORM = """
layer { name: "first" type: "Convolution" bottom: "x" top: "f" convolution_param { num_output: 4 kernel_size: 1
  weight_filler { type: "gaussian" std: 0.5 } } }
layer { name: "bn" type: "BatchNorm" bottom: "f" top: "c" }
layer { name: "scale" type: "Scale" bottom: "c" top: "c" scale_param { bias_term: true
  filler { type: "uniform" min: 0.5 max: 1.5 } bias_filler { type: "uniform" min: -1 max: 1 } } }
"""
RELU = 'layer { name: "relu" type: "ReLU" bottom: "c" top: "c" %s }\n'
POOL = 'layer { name: "pool" type: "Pooling" bottom: "c" top: "p" %s pooling_param { pool: %s kernel_size: %s } }\n'
LOSS = """
layer { name: "fc" type: "InnerProduct" bottom: "%s" top: "y" inner_product_param { num_output: 1
  weight_filler { type: "gaussian" std: 1 } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "y" bottom: "t" top: "loss" }
"""


def run(text, **options):
    """Return a training net after a pass in both directions, what its steps kept between them, and all gradients."""
    net = net_with_images(inputs(x=SHAPE, t=(3, 1)) + text, SHAPE, **{"keep_blobs": False, **options})
    net.forward()
    kept = {type(step.layer).__name__: step.layer.saved for step in net.steps}
    net.backward()
    return net, kept, [each.dense_diff().clone() for each in net.parameters if each.wanted]


def assert_same_bits(monkeypatch, text, **options):
    """Compare a net whose pooling masks gradients with one whose ReLU does; return both, and what the first kept."""
    net, kept, found = run(text, **options)
    assert [type(step.layer) for step in net.steps].count(RectifiedPooling) == 1
    monkeypatch.setattr(fusion, "pooling_behind", lambda nodes, relu: None)
    plain, _, expected = run(text, **options)
    assert RectifiedPooling not in [type(step.layer) for step in plain.steps]
    for one, other in zip(found, expected, strict=True):
        assert float(other.abs().max()) > 0
        assert torch.equal(one, other)
    return net, plain, kept


@pytest.mark.parametrize("window", ["2 stride: 2", "3 stride: 1", "3 stride: 2 pad: 1", "1 stride: 3", "2 stride: 4"])
@pytest.mark.parametrize(("before", "relu_step"), [(CONVOLUTION, "ConvolutionReLU"), (NORM, "BatchNormScale")])
def test_gradients_have_the_same_bits_and_the_relus_top_is_not_kept(monkeypatch, before, relu_step, window):
    text = before + RELU % "" + POOL % ("", "MAX", window) + LOSS % "p"
    net, plain, kept = assert_same_bits(monkeypatch, text)
    assert kept[relu_step][1] is None
    assert kept["RectifiedPooling"].shape == net.blobs["p"].shape
    if net.blobs["p"].shape != net.blobs["c"].shape and before == CONVOLUTION:
        assert plan_memory(net.steps, 4).peak < plan_memory(plain.steps, 4).peak


def test_a_large_top_of_a_normalization_is_not_made_again(monkeypatch):
    """It has 64 channels and 131,072 values, so that it was made again for the mask."""
    norm = NORM.replace("num_output: 4", "num_output: 64")
    text = norm + RELU % "" + POOL % ("", "MAX", "2 stride: 2") + LOSS % "p"
    shape = (8, 2, 16, 16)
    made = []
    normalize = batch_norm.normalize
    monkeypatch.setattr(batch_norm, "normalize", lambda *args: made.append(1) or normalize(*args))
    found = []
    for behind in (fusion.pooling_behind, lambda nodes, relu: None):
        monkeypatch.setattr(fusion, "pooling_behind", behind)
        net = net_with_images(inputs(x=shape, t=(8, 1)) + text, shape, keep_blobs=False)
        net.forward_backward()
        found.append(([each.dense_diff().clone() for each in net.parameters if each.wanted], len(made)))
    (mine, none), (others, one) = found
    assert (none, one) == (0, 1)
    for each, other in zip(mine, others, strict=True):
        torch.testing.assert_close(each, other, rtol=1e-4, atol=1e-4 * float(other.abs().max()))


def test_a_loss_weight_on_the_maxima_flows_through_the_mask(monkeypatch):
    text = CONVOLUTION + RELU % "" + POOL % ("loss_weight: 0.1", "MAX", "2 stride: 2")
    assert_same_bits(monkeypatch, text + 'layer { name: "silence" type: "Silence" bottom: "t" }')


@pytest.mark.parametrize("stops", ["relu", "pool"])
@pytest.mark.parametrize("before", [CONVOLUTION, NORM], ids=["Convolution", "BatchNorm"])
def test_where_no_gradient_flows_the_layers_before_do_not_learn(before, stops):
    stop = "propagate_down: false"
    text = before + RELU % (stop if stops == "relu" else "")
    assert_nothing_learns_before(text + POOL % (stop if stops == "pool" else "", "MAX", "2 stride: 2") + LOSS % "p")


def test_where_no_gradient_flows_an_inner_product_does_not_learn():
    product = 'layer { name: "ip" type: "InnerProduct" bottom: "x" top: "c" inner_product_param { num_output: 5 '
    product += 'weight_filler { type: "gaussian" std: 0.5 } } }\n'
    assert_nothing_learns_before(product + RELU % "propagate_down: false" + LOSS % "c")


def assert_nothing_learns_before(text):
    """Compare a net that fuses with one that keeps its blobs; only the last layer with parameters learns."""
    gradients = []
    for keep_blobs in (False, True):
        net = net_with_images(inputs(x=SHAPE, t=(3, 1)) + text, SHAPE, keep_blobs=keep_blobs)
        net.forward_backward()
        gradients.append([each.dense_diff().clone() for each in net.parameters])
    assert not any(bool(each.any()) for each in gradients[0][:-2])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_a_second_top_with_the_places_changes_nothing(monkeypatch):
    pool = POOL % ('top: "places"', "MAX", "2 stride: 2")
    silence = 'layer { name: "silence" type: "Silence" bottom: "places" }\n'
    assert_same_bits(monkeypatch, CONVOLUTION + RELU % "" + pool + silence + LOSS % "p")


def test_layers_that_write_over_the_pooling_in_place_leave_the_mask_alone(monkeypatch):
    behind = 'layer { name: "power" type: "Power" bottom: "p" top: "p" power_param { scale: -1 } }\n'
    assert_same_bits(monkeypatch, CONVOLUTION + RELU % "" + POOL % ("", "MAX", "2 stride: 2") + behind + LOSS % "p")


def test_layers_may_stand_between_them(monkeypatch):
    other = 'layer { name: "other" type: "Power" bottom: "x" top: "o" power_param { scale: 2 } }\n'
    silence = 'layer { name: "silence" type: "Silence" bottom: "o" }\n'
    pool = POOL % ("", "MAX", "2 stride: 2")
    _, _, kept = assert_same_bits(monkeypatch, CONVOLUTION + RELU % "" + other + silence + pool + LOSS % "p")
    assert [*kept][2:6] == ["ConvolutionReLU", "Power", "Silence", "RectifiedPooling"]


def test_in_16_bits(monkeypatch):
    text = CONVOLUTION + RELU % "" + POOL % ("", "MAX", "2 stride: 2") + LOSS % "p"
    assert_same_bits(monkeypatch, text, precision=BF16)


@pytest.mark.parametrize(
    ("before", "setting", "again"),
    [
        (CONVOLUTION, "conv..pool", ["conv", "pool"]),
        (CONVOLUTION, "pool..pool", ["pool"]),
        (CONVOLUTION, "conv..relu", []),
        (NORM, "first..pool", ["first", "bn", "pool"]),
    ],
)
def test_computed_again_in_backward(before, setting, again):
    text = before + RELU % "" + POOL % ("", "MAX", "2 stride: 2") + LOSS % "p"
    _, _, expected = run(text)
    net = net_with_images(inputs(x=SHAPE, t=(3, 1)) + text, SHAPE, keep_blobs=False)
    found = net.recompute(setting)
    assert [node.layer.name for segment in found.segments for node in segment.steps] == again
    net.forward_backward()
    for one, other in zip([each for each in net.parameters if each.wanted], expected, strict=True):
        assert torch.equal(one.dense_diff(), other)


@pytest.mark.parametrize(
    "text",
    [
        CONVOLUTION + RELU % "" + POOL % ("", "AVE", "2 stride: 2"),
        CONVOLUTION + RELU % "relu_param { negative_slope: 0.1 }" + POOL % ("", "MAX", "2 stride: 2"),
        CONVOLUTION + POOL % ("", "MAX", "2 stride: 2"),
        CONVOLUTION
        + RELU % ""
        + POOL % ("", "MAX", "2 stride: 2")
        + 'layer { name: "sum" type: "Reduction" bottom: "c" top: "s" loss_weight: 0.1 }\n',
        CONVOLUTION + RELU % "loss_weight: 0.1" + POOL % ("", "MAX", "2 stride: 2"),
    ],
    ids=["the mean", "leaky", "no ReLU", "two readers", "a loss"],
)
def test_others_run_as_they_are(text):
    _, kept, found = run(text + LOSS % "p")
    assert "RectifiedPooling" not in kept
    _, _, expected = run(text + LOSS % "p", keep_blobs=True)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_a_net_that_tests_runs_them_as_they_are():
    net = net_with_images(
        inputs(x=SHAPE, t=(3, 1)) + CONVOLUTION + RELU % "" + POOL % ("", "MAX", "2 stride: 2") + LOSS % "p",
        SHAPE, keep_blobs=False, phase=TEST,
    )  # fmt: skip
    net.forward()
    assert RectifiedPooling not in [type(step.layer) for step in net.steps]
