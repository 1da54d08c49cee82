"""Every type of layer that says that it is capturable, replayed: the bits of the layers, and in the range."""

import pytest

from mgcaffe.engine import registry
from mgcaffe.engine.graph.fused_residual import makers_of
from mgcaffe.engine.kernels.precision import PRECISIONS
from tests.support.capturekit import IMAGES, LOSS, RESIDUAL, both, build, conv, dense, layer, train

CASES = {
    "AbsVal": ("c1", ""),
    "Axpy": ("factors c1 c2", ""),
    "BN": ("c1", "bn_param { momentum: 0.8 }"),
    "BN by its averages": ("c1", "bn_param { frozen: true }"),
    "BN of SegNet": ("c1", "bn_param { bn_mode: LEARN }"),
    "BN of SegNet, merged": ("c1", "bn_param { bn_mode: INFERENCE }"),
    "BNLL": ("c1", ""),
    "BatchNorm": ("c1", ""),
    "BatchNorm with a scale": ("c1", "batch_norm_param { scale_bias: true }"),
    "BatchNorm by its statistics": ("c1", "batch_norm_param { use_global_stats: true }"),
    "Bias": ("c1", ""),
    "Bias of a bottom": ("c1 c2", "bias_param { axis: 0 }"),
    "Clip": ("c1", "clip_param { min: -0.4 max: 0.3 }"),
    "Crop": ("c1 half", "crop_param { offset: 1 }"),
    "ELU": ("c1", "elu_param { alpha: 0.7 }"),
    "Exp": ("c1", "exp_param { base: 2 }"),
    "GELU": ("c1", ""),
    "HardSigmoid": ("c1", ""),
    "HardSigmoid with a slope": ("c1", "hard_sigmoid_param { alpha: 0.3 }"),
    "HardSwish": ("c1", ""),
    "Interp": ("c1", "interp_param { zoom_factor: 2 pad_beg: -1 }"),
    "LayerNorm": ("c1", "layer_norm_param { axis: -1 }"),
    "Log": ("c1", "log_param { shift: 9 }"),
    "MVN": ("c1", ""),
    "MatMul": ("c1 c2", "matmul_param { transpose_b: true }"),
    "Normalize": ("c1", ""),
    "PReLU": ("c1", ""),
    "Permute": ("c1", "permute_param { order: 0 order: 2 order: 3 order: 1 }"),
    "Power": ("c1", "power_param { scale: 0.1 shift: 9 power: 1.5 }"),
    "Power, constant": ("c1", "power_param { shift: 3 power: 0 }"),
    "ReLU6": ("c1", ""),
    "Reduction": ("c1", "reduction_param { axis: 2 operation: MEAN }"),
    "Reduction of squares": ("c1", "reduction_param { axis: 2 operation: SUMSQ coeff: 0.01 }"),
    "Reshape": ("c1", "reshape_param { shape { dim: 0 dim: 2 dim: -1 } }"),
    "Scale": ("c1", "scale_param { bias_term: true }"),
    "Scale by a bottom": ("c1 c2", "scale_param { axis: 0 }"),
    "ShuffleChannel": ("c1", "shuffle_channel_param { group: 2 }"),
    "Slice": ("c1", "slice_param { slice_point: 1 }"),
    "Softmax": ("c1", ""),
    "Swish": ("c1", ""),
    "Swish with a factor": ("c1", "swish_param { beta: 1.3 }"),
    "Tile": ("c1", "tile_param { tiles: 3 }"),
}
"""By what they are called, whose first word is the type: bottoms and fields."""
_ELSEWHERE = """Concat Convolution Deconvolution DepthwiseConvolution ConvolutionDepthwise Eltwise EuclideanLoss Flatten
InnerProduct LRN Pooling ReLU Sigmoid SigmoidCrossEntropyLoss SoftmaxWithLoss Split TanH""".split()
"""The types of test_replayed_pass.py and tests/engine/kernels/test_depthwise.py."""


def net_of(name):
    bottoms, fields = CASES[name]
    kind = name.split()[0].rstrip(",")
    tops = "y z" if kind == "Slice" else "y"
    text = IMAGES + conv("c1", "x", "c1") + conv("c2", "c1", "c2")
    if "factors" in bottoms:
        text += dense("factors", "c1", "factors", 4)
    if "half" in bottoms:
        text += layer("half", "Pooling", "c2", "half", "pooling_param { kernel_size: 3 stride: 2 }")
    return text + layer("tested", kind, bottoms, tops, fields) + dense("ip2", "y", "ip2", 3) + LOSS


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("name", CASES)
def test_the_bits_are_those_of_the_layer(name, precision):
    (replayed,) = both(net_of(name), precision=PRECISIONS[precision]).ranges
    assert replayed.is_replayed
    members = [member for step in replayed.steps for member in getattr(step.layer, "members", [step.layer])]
    assert "tested" in [each.name for each in members]


def test_no_capturable_type_is_left_out():
    types = {name.split()[0].rstrip(",") for name in CASES}
    capturable = {name for name, each in registry.layer_types().items() if each.capturable}
    assert capturable == types | set(_ELSEWHERE)


def test_ends_of_residual_blocks_are_made_again_in_a_replay():
    replays = both(RESIDUAL)
    (replayed,) = replays.ranges
    assert replayed.is_replayed
    assert any(getattr(step.layer, "make_bottom", None) is not None for step in replayed.steps)


def test_who_asks_for_a_value_to_be_made_again_runs_alone_where_what_makes_it_is_in_another_range():
    noise = layer("noise", "Dropout", "x", "noise")
    place = RESIDUAL.index('layer { name: "a2"')
    net, replays = build(RESIDUAL[:place] + noise + RESIDUAL[place:])
    assert all(part.is_replayed for part in both(RESIDUAL[:place] + noise + RESIDUAL[place:]).ranges)
    train(net, replays.forward, replays.backward)
    captured = {step.layer: part for part in replays.ranges for step in part.steps}
    askers = [step.layer for step in net.steps if makers_of(step.layer)]
    makers = {asker.name: [captured.get(each) for each in makers_of(asker)] for asker in askers}
    assert len(set(map(id, captured.values()))) == 2
    for asker in askers:
        assert asker not in captured or makers[asker.name] == [captured[asker]] * len(makers[asker.name])
    assert [asker for asker in askers if asker not in captured]
