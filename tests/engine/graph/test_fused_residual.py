"""Ends of residual blocks that are made again in backward: the same numbers, and three of four are not kept."""

import math

import pytest
import torch

from mgcaffe.engine.graph import fusion
from mgcaffe.engine.graph.memory_plan import plan_memory
from mgcaffe.engine.kernels.choice.contest import Contest
from mgcaffe.engine.kernels.precision import BF16
from mgcaffe.engine.tuning import tune
from tests.support.netkit import inputs, make_net, net_with_images

LARGE, SMALL, NARROW = (2, 64, 32, 32), (2, 64, 8, 8), (8, 32, 32, 32)
NORM = """
layer {{ name: "bn_{name}" type: "BatchNorm" bottom: "{name}" top: "{name}" }}
layer {{ name: "scale_{name}" type: "Scale" bottom: "{name}" top: "{name}" scale_param {{ bias_term: true
  filler {{ type: "uniform" min: 0.5 max: 1.5 }} bias_filler {{ type: "uniform" min: -0.5 max: 0.5 }} }} }}
"""
CONVOLUTION = """
layer {{ name: "conv_{top}" type: "Convolution" bottom: "{bottom}" top: "{top}"
  convolution_param {{ num_output: {outputs} kernel_size: 1 bias_term: false weight_filler {{ type: "msra" }} }} }}
"""
SUM = """
layer {{ name: "sum_{top}" type: "Eltwise" bottom: "{one}" bottom: "{other}" top: "{top}" {param} }}
layer {{ name: "relu_{top}" type: "ReLU" bottom: "{top}" top: "{top}" {relu} }}
"""
BRANCH = """
layer { name: "norm" type: "BatchNorm" bottom: "y2" top: "n" }
layer { name: "scale" type: "Scale" bottom: "n" top: "n" }
layer { name: "silence" type: "Silence" bottom: "n" }
"""
LOSS = """
layer { name: "pool" type: "Pooling" bottom: "z" top: "pool" pooling_param { pool: AVE global_pooling: true } }
layer { name: "loss" type: "EuclideanLoss" bottom: "pool" bottom: "t" top: "loss" }
"""


def block(number, channels, param="", relu="", exchanged=False):
    bottom, top, x = f"y{number - 1}", f"y{number}", f"x{number}"
    one, other = (x, bottom) if exchanged else (bottom, x)
    text = CONVOLUTION.format(bottom=bottom, top=f"a{number}", outputs=channels) + NORM.format(name=f"a{number}")
    text += f'layer {{ name: "relu_a{number}" type: "ReLU" bottom: "a{number}" top: "a{number}" }}\n'
    text += CONVOLUTION.format(bottom=f"a{number}", top=x, outputs=channels) + NORM.format(name=x)
    return text + SUM.format(one=one, other=other, top=top, param=param, relu=relu)


def text_of(shape, blocks=4, behind="", **options):
    channels = shape[1]
    text = inputs(y0=shape, t=(shape[0], 3, 1, 1))
    text += "".join(block(number, channels, exchanged=number % 2 == 0, **options) for number in range(1, blocks + 1))
    return text + behind + CONVOLUTION.format(bottom=f"y{blocks}", top="z", outputs=3) + LOSS


def run(text, shape, **options):
    """Return a net, what its steps keep between the passes, its loss, and all gradients and statistics."""
    net = net_with_images(text, shape, **options)
    loss = net.forward()
    saved = [(type(step.layer).__name__, step.layer.saved) for step in net.steps]
    net.backward()
    return net, saved, loss, [each.data if each.measured else each.dense_diff() for each in net.parameters]


def sums_of(net):
    return [net.layers[step.members[-1]].name for step in net.steps if type(step.layer).__name__ == "ResidualSum"]


def test_three_of_four_ends_are_made_again_and_give_the_same_numbers(monkeypatch):
    text = text_of(LARGE, blocks=6)
    net, saved, loss, found = run(text, LARGE, keep_blobs=False)
    assert sums_of(net) == ["relu_y2", "relu_y3", "relu_y4", "relu_y6"]
    kept = [each for kind, each in saved if kind == "ResidualSum"]
    assert all(y is None for *_, y in kept)
    assert [shortcut is not None for _, shortcut, _ in kept] == [True, False, False, True]
    # The convolutions that read them: in blocks 3, 4 and 5, and behind block 6.
    assert [each is None for kind, each in saved if kind == "Convolution"] == [
        False, False, True, True, True, False, True
    ]  # fmt: skip
    fuse = fusion.fuse
    monkeypatch.setattr(fusion, "fuse", lambda nodes, makes_again: fuse(nodes, makes_again=False))
    other, _, expected_loss, expected = run(text, LARGE, keep_blobs=False)
    assert not sums_of(other)
    assert loss == expected_loss
    for mine, theirs in zip(found, expected, strict=True):
        assert float(theirs.abs().max()) > 0
        assert torch.equal(mine, theirs)
    # At the end of forward the values of the blocks 2, 3, 4 and 6 are not there.
    most, least = (plan_memory(each.steps, 4) for each in (other, net))
    assert most.steps[-1].forward - least.steps[-1].forward == 4 * 4 * math.prod(LARGE)
    assert most.peak > least.peak


@pytest.mark.parametrize(
    ("shape", "options", "precision"),
    [
        (SMALL, {}, {}),
        (NARROW, {}, {}),
        (LARGE, {}, {"precision": BF16}),
        (LARGE, {"param": "eltwise_param { coeff: 1 coeff: 0.5 }"}, {}),
        (LARGE, {"param": "eltwise_param { operation: MAX }"}, {}),
        (LARGE, {"relu": "relu_param { negative_slope: 0.1 }"}, {}),
        (LARGE, {"behind": 'layer { name: "lrn" type: "LRN" bottom: "y2" top: "l" }\n'
                           'layer { name: "silence" type: "Silence" bottom: "l" }\n', "blocks": 2}, {}),
        (LARGE, {"behind": BRANCH, "blocks": 2}, {}),
    ],
    ids=["small", "few channels", "bf16", "coefficients", "maximum", "slope", "a reader that keeps it", "BatchNorm"],
)  # fmt: skip
def test_others_are_kept(shape, options, precision):
    net = make_net(text_of(shape, **options), dtype=torch.float32, keep_blobs=False, **precision)
    assert not sums_of(net)


def test_what_it_is_made_of_is_not_written_over(monkeypatch):
    """A sum that reads what is normalized would grow in its storage if nobody needed it."""
    text = text_of(LARGE, blocks=2)
    text = text.replace(
        'name: "bn_x2" type: "BatchNorm" bottom: "x2" top: "x2"',
        'name: "bn_x2" type: "BatchNorm" bottom: "x2" top: "n2"',
    )
    text = text.replace('bottom: "x2" top: "x2" scale_param', 'bottom: "n2" top: "n2" scale_param')
    text = text.replace('bottom: "x2" bottom: "y1" top: "y2"', 'bottom: "n2" bottom: "y1" top: "y2"')
    text = text.replace('bottom: "y2" top: "z"', 'bottom: "y2" top: "w"').replace("num_output: 3", "num_output: 64")
    text = text.replace(LOSS, 'layer { name: "last" type: "Eltwise" bottom: "x2" bottom: "w" top: "z" }\n' + LOSS)
    text = text.replace("dim: 3", "dim: 64")
    net, _, loss, found = run(text, LARGE, keep_blobs=False)
    assert sums_of(net) == ["relu_y2"]
    fuse = fusion.fuse
    monkeypatch.setattr(fusion, "fuse", lambda nodes, makes_again: fuse(nodes, makes_again=False))
    _, _, expected_loss, expected = run(text, LARGE, keep_blobs=False)
    assert loss == expected_loss
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(found, expected, strict=True))


def test_a_net_that_computes_layers_again_makes_none_by_itself():
    net, *_ = run(text_of(LARGE), LARGE, keep_blobs=False)
    again = make_net(text_of(LARGE), dtype=torch.float32, keep_blobs=False)
    again.recompute("auto")
    assert not sums_of(again)
    assert not any(getattr(layer, "make_bottom", None) for layer in again.layers)
    again.layers[0].values = net.layers[0].values
    again.clear_param_diffs()
    again.forward()
    again.backward()
    for mine, theirs in zip(again.parameters, net.parameters, strict=True):
        assert torch.equal(mine.dense_diff(), theirs.dense_diff())


def test_its_layers_are_measured_by_themselves():
    net = make_net(text_of(LARGE), dtype=torch.float32, keep_blobs=False)
    contest = Contest({})
    assert len(tune(net, contest)) == 9
    assert [each.make_bottom is not None for each in net.layers if each.type == "Convolution"].count(True) == 3
