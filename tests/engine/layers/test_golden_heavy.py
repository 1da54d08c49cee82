"""The filter, pooling and normalisation layers against what Caffe computed, each layer by itself."""

import numpy as np
import pytest
import torch

from mgcaffe.engine import registry
from mgcaffe.engine.layer_context import LayerContext
from mgcaffe.prototxt import NetParameter, parse_text
from tests.support.golden import LAYERS, read_case

CASES = """bias bn_global bn_test bn_train conv_1d conv_1x1_nobias conv_depthwise conv_dilation2 conv_group2 conv_k3
conv_k3_s2_p1 deconv_k4_s2_p1 ip ip_axis_neg1 ip_nobias ip_transpose lrn_across lrn_within pool_ave_k3_s2
pool_ave_pad1 pool_global_ave pool_global_max pool_max_floor pool_max_k2_s2_ceil pool_max_k3_s2 pool_max_pad1 scale
scale_axis0_all scale_bias scale_two""".split()


def _agrees(ours: torch.Tensor | None, caffes: np.ndarray) -> None:
    assert ours is not None
    assert tuple(ours.shape) == caffes.shape
    torch.testing.assert_close(ours.contiguous(), torch.tensor(caffes), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("case", CASES)
def test_agrees_with_caffe(case: str, memory_format: torch.memory_format) -> None:
    net = parse_text((LAYERS / case / "net.prototxt").read_text(), NetParameter)
    data, meta = read_case(case)
    (param,) = (layer for layer in net.layer if layer.type != "Input")
    bottoms = [torch.tensor(data[f"in/{name}"]) for name in param.bottom]
    bottoms = [x.contiguous(memory_format=memory_format) if x.dim() == 4 else x for x in bottoms]
    layer = registry.create(param, LayerContext(phase=0 if meta["phase"] == "train" else 1))
    layer.backward_follows = True
    layer.wants_bottom = [True] * len(bottoms)
    layer.setup([tuple(x.shape) for x in bottoms])
    top_shapes = layer.reshape([tuple(x.shape) for x in bottoms])
    for index, parameter in enumerate(layer.parameters):
        parameter.data = torch.tensor(data[f"param/{param.name}/{index}"]).reshape(parameter.shape)
        parameter.diff = torch.zeros(parameter.shape)

    for _ in range(meta["forwards"]):
        tops = layer.forward(bottoms)
    layer.may_overwrite_top_diff = [False] * len(tops)
    bottom_diffs = layer.backward([torch.tensor(data[f"topdiff/{name}"]) for name in param.top], [True] * len(bottoms))

    for name, top, shape in zip(param.top, tops, top_shapes, strict=True):
        assert tuple(top.shape) == shape
        _agrees(top, data[f"out/{name}"])
    for name, diff in zip(param.bottom, bottom_diffs, strict=True):
        _agrees(diff, data[f"indiff/{name}"])
    for index, parameter in enumerate(layer.parameters):
        if parameter.wanted:
            _agrees(parameter.diff, data[f"paramdiff/{param.name}/{index}"].reshape(parameter.shape))
        after = data.get(f"paramafter/{param.name}/{index}")
        if after is not None:
            _agrees(parameter.data, after)
