"""The neuron, routing and loss layers against what Caffe computed, run one after the other without a net."""

import pytest
import torch

from mgcaffe.engine import registry
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.layer_context import LayerContext
from mgcaffe.prototxt import NetParameter, parse_text
from tests.support.golden import LAYERS, read_case

CASES = """accuracy accuracy_ignore accuracy_spatial accuracy_top3 concat concat_axis0 concat_axis_neg contrastive
dropout_test eltwise_max eltwise_prod eltwise_sum euclidean euclidean_w flatten power_0 power_1 power_2 power_generic
prelu relu relu_leaky reshape reshape_axis sigmoid sigmoidce sigmoidce_none slice_even softmax softmax_big softmaxloss
softmaxloss_ignore_batch_size softmaxloss_ignore_none softmaxloss_ignore_valid softmaxloss_normalize_false
softmaxloss_spatial softmaxloss_w split tanh""".split()


class Case:
    """One golden case: its layers, and the values that Caffe saw and computed."""

    def __init__(self, name: str, memory_format: torch.memory_format) -> None:
        net = parse_text((LAYERS / name / "net.prototxt").read_text(), NetParameter)
        data, self.meta = read_case(name)
        self.data = {key: torch.tensor(values) for key, values in data.items()}
        self.params = [param for param in net.layer if param.type != "Input"]
        self.context = LayerContext(phase=0 if self.meta["phase"] == "train" else 1)
        self.blobs = {
            key[3:]: x.contiguous(memory_format=memory_format) if x.dim() == 4 else x
            for key, x in self.data.items()
            if key.startswith("in/")
        }
        self.diffs: dict[str, torch.Tensor] = {}
        self.layers: list[Layer] = []

    def forward(self) -> None:
        for param in self.params:
            bottoms = [self.blobs[name] for name in param.bottom]
            shapes = [tuple(x.shape) for x in bottoms]
            layer = registry.create(param, self.context)
            layer.backward_follows = True
            layer.setup(shapes)
            expected = layer.reshape(shapes)
            for index, parameter in enumerate(layer.parameters):
                parameter.data = self.data[f"param/{param.name}/{index}"].reshape(parameter.shape)
                parameter.diff = torch.zeros(parameter.shape)
            tops = layer.forward(bottoms)
            assert [tuple(top.shape) for top in tops] == [tuple(shape) for shape in expected]
            self.blobs.update(zip(param.top, tops, strict=True))
            self.layers.append(layer)

    def backward(self) -> None:
        for param, layer in zip(reversed(self.params), reversed(self.layers), strict=True):
            weights = list(param.loss_weight) or [layer.loss_weight] * len(param.top)
            top_diffs = [
                torch.full_like(self.blobs[name], weight) if weight else self.top_diff(name)
                for name, weight in zip(param.top, weights, strict=True)
            ]
            layer.may_overwrite_top_diff = [False] * len(top_diffs)
            flags = list(param.propagate_down) or [True] * len(param.bottom)
            for name, diff in zip(param.bottom, layer.backward(top_diffs, flags), strict=True):
                if diff is not None:
                    self.diffs[name] = self.diffs[name] + diff if name in self.diffs else diff

    def top_diff(self, name: str) -> torch.Tensor:
        return self.data[f"topdiff/{name}"] if f"topdiff/{name}" in self.data else self.diffs[name]


def _agrees(ours: torch.Tensor, caffes: torch.Tensor) -> None:
    assert ours.shape == caffes.shape
    torch.testing.assert_close(ours.contiguous(), caffes, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_caffe(name: str, memory_format: torch.memory_format) -> None:
    case = Case(name, memory_format)
    case.forward()
    for blob in case.meta["outputs"]:
        _agrees(case.blobs[blob], case.data[f"out/{blob}"])
    if case.meta["forward_only"]:
        return
    case.backward()
    layers = {layer.name: layer for layer in case.layers}
    for key, values in case.data.items():
        kind, _, name = key.partition("/")
        if kind == "indiff":
            _agrees(case.diffs[name], values)
        if kind == "paramdiff":
            layer, index = name.split("/")
            _agrees(layers[layer].parameters[int(index)].diff, values)
