"""What `benchmarks/layers.py` compares: for every layer type a prototxt, realistic shapes, and PyTorch's own words.

The work is the same: ArgMax gives the larger of two equal classes, Accuracy forgives equal scores, and recurrent layers
heed the markers of where sequences begin, which `torch.lstm` cannot: it stands beside ours where no sequence begins
after the first step.
Shapes are those of AlexNet, GoogLeNet and ResNet-50 with small batches where the layer occurs there, else the
like. A case's function takes the bottoms and the parameters in Caffe's order and returns the top or the tops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

Shape = tuple[int, ...]
Function = Callable[..., Any]
Maker = Callable[[Shape, torch.Generator], torch.Tensor]

# The blob behind most neurons, norms and joins: GoogLeNet's and ResNet-50's middle.
MIDDLE = (8, 128, 28, 28)
ROWS = (64, 4096)
SCORES = (64, 1000)
RECURRENT = "recurrent_param { num_output: 256 weight_filler { type: 'uniform' min: -0.08 max: 0.08 } }"

# Types that compute nothing worth a comparison, or that PyTorch has no operator for.
LEFT_OUT = {
    "AUC": "judges a whole test",
    "CriteoData": "reads records",
    "Data": "reads records",
    "DummyData": "fills blobs",
    "HDF5Data": "reads records",
    "HDF5Output": "writes records",
    "ImageData": "reads records",
    "Input": "hands on what the user gives",
    "MemoryData": "hands on what the user gives",
    "NormalizedEntropy": "judges a whole test",
    "Parameter": "hands on a parameter",
    "Python": "runs the user's code",
    "Silence": "computes nothing",
    "WindowData": "reads records",
}


@dataclass(frozen=True)
class Case:
    """One comparison.

    Attributes:
        name: what the table calls it; begins with the layer's type.
        text: the inside of `layer { }`.
        shapes: the bottoms' shapes.
        function: the same work in PyTorch's functional operators.
        makers: how bottoms other than normal noise are made, by number.
        backward: whether there is a gradient to compare.
        arrange: how the function takes a parameter, where not as the layer has it; its own inverse.
    """

    name: str
    text: str
    shapes: Sequence[Shape]
    function: Function
    makers: dict[int, Maker] = field(default_factory=dict)
    backward: bool = True
    arrange: Callable[[torch.Tensor], torch.Tensor] = field(default=lambda parameter: parameter)

    @property
    def type(self) -> str:
        """The layer's type."""
        return self.name.split()[0].rstrip(",")


def labels(classes: int) -> Maker:
    """Class numbers below `classes`."""
    return lambda shape, generator: torch.randint(classes, shape, generator=generator).float()


def positive(shape: Shape, generator: torch.Generator) -> torch.Tensor:
    """Return numbers between 0.1 and 1.1."""
    return torch.rand(shape, generator=generator) + 0.1


def binary(shape: Shape, generator: torch.Generator) -> torch.Tensor:
    """Zero and one."""
    return torch.randint(2, shape, generator=generator).float()


def distribution(shape: Shape, generator: torch.Generator) -> torch.Tensor:
    """Probability along axis 1."""
    return torch.softmax(torch.randn(shape, generator=generator), 1)


def continuing(shape: Shape, generator: torch.Generator) -> torch.Tensor:
    """Return a recurrent layer's markers: sequences that begin with the batch."""
    del generator
    markers = torch.ones(shape)
    markers[0] = 0
    return markers


def interrupted(shape: Shape, generator: torch.Generator) -> torch.Tensor:
    """Return a recurrent layer's markers: sequences of about ten steps."""
    markers = (torch.rand(shape, generator=generator) > 0.1).float()
    markers[0] = 0
    return markers


def boxes(shape: Shape, generator: torch.Generator) -> torch.Tensor:
    """Region of interest (image number, x1, y1, x2, y2) on a feature map of 28 x 28 at scale 1."""
    corners = torch.rand((shape[0], 4), generator=generator) * 13
    corners[:, 2:] += corners[:, :2]
    images = torch.randint(MIDDLE[0], (shape[0], 1), generator=generator)
    return torch.cat([images.float(), corners], 1)


def _convolution(kernel: int, outputs: int, **options: int) -> str:
    fields = " ".join(f"{name}: {value}" for name, value in options.items())
    fields += " weight_filler { type: 'xavier' }"
    return f"convolution_param {{ num_output: {outputs} kernel_size: {kernel} {fields} }}"


def _convolve(**options: int) -> Function:
    return lambda x, weight, bias: F.conv2d(x, weight, bias, **options)  # type: ignore[arg-type]


def _one_minus_margin(x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    sign = 1 - 2 * F.one_hot(label.long(), x.shape[1])
    return (1 + sign * x).clamp(min=0).sum() / len(x)


def _contrastive(a: torch.Tensor, b: torch.Tensor, same: torch.Tensor) -> torch.Tensor:
    distance = (a - b).square().sum(1)
    apart = (1 - distance.sqrt()).clamp(min=0).square()
    return (same * distance + (1 - same) * apart).sum() / (2 * len(a))


def _mvn(x: torch.Tensor) -> torch.Tensor:
    return F.instance_norm(x, eps=1e-9)


def _batch_norm(x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    del total
    return F.batch_norm(x, mean, variance, training=True, momentum=0.001)


def _slope_and_bias(x: torch.Tensor, slope: torch.Tensor, bias: torch.Tensor, *averages: torch.Tensor) -> torch.Tensor:
    mean, variance = (values.detach().flatten().clone() for values in averages)
    return F.batch_norm(x, mean, variance, slope.flatten(), bias.flatten(), True, 0.1)


def _pool_regions(x: torch.Tensor, regions: torch.Tensor) -> torch.Tensor:
    found = []
    for image, left, top, right, bottom in regions.round().int().tolist():
        part = x[image, :, top : bottom + 1, left : right + 1]
        found.append(F.adaptive_max_pool2d(part, 7))
    return torch.stack(found)


def _within_channel(x: torch.Tensor) -> torch.Tensor:
    return x * (1 + F.avg_pool2d(x * x, 3, 1, 1)).pow(-0.75)


def _pyramid(x: torch.Tensor) -> torch.Tensor:
    levels = [F.adaptive_max_pool2d(x, bins).flatten(1) for bins in (1, 2, 4)]
    return torch.cat(levels, 1)


def _normalize(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return F.normalize(x, dim=1) * scale.view(1, -1, 1, 1)


def _lstm(x: torch.Tensor, markers: torch.Tensor, w_x: torch.Tensor, bias: torch.Tensor, w_h: torch.Tensor) -> Any:
    hidden = cell = x.new_zeros(x.shape[1], w_h.shape[1])
    hiddens = []
    for gates, keep in zip(F.linear(x, w_x, bias), markers[..., None], strict=True):
        i, f, o, g = (gates + F.linear(hidden * keep, w_h)).chunk(4, -1)
        cell = torch.sigmoid(f) * (cell * keep) + torch.sigmoid(i) * torch.tanh(g)
        hidden = torch.sigmoid(o) * torch.tanh(cell)
        hiddens.append(hidden)
    return torch.stack(hiddens)


def _fused_lstm(
    x: torch.Tensor, markers: torch.Tensor, w_x: torch.Tensor, bias: torch.Tensor, w_h: torch.Tensor
) -> Any:
    del markers
    state = x.new_zeros(1, x.shape[1], w_h.shape[1])
    weights = [w_x, w_h, bias, torch.zeros_like(bias)]
    return torch.lstm(x, (state, state), weights, True, 1, 0.0, True, False, False)[0]


def _gates_of_torch(parameter: torch.Tensor) -> torch.Tensor:
    """Caffe's gates i, f, o, g in the order i, f, g, o, or back."""
    first, second, third, fourth = parameter.chunk(4)
    return torch.cat([first, second, fourth, third])


def _rnn(x: torch.Tensor, markers: torch.Tensor, w_x: torch.Tensor, b: torch.Tensor, *others: torch.Tensor) -> Any:
    w_h, *outward = others
    hidden = x.new_zeros(x.shape[1], w_h.shape[1])
    hiddens = []
    for now, keep in zip(F.linear(x, w_x, b), markers[..., None], strict=True):
        hidden = torch.tanh(now + F.linear(hidden * keep, w_h))
        hiddens.append(hidden)
    return torch.tanh(F.linear(torch.stack(hiddens), *outward))


def _lstm_unit(c: torch.Tensor, gates: torch.Tensor, markers: torch.Tensor) -> Any:
    i, f, o, g = gates.chunk(4, -1)
    new = torch.sigmoid(f) * c * markers[..., None] + torch.sigmoid(i) * torch.tanh(g)
    return new, torch.sigmoid(o) * torch.tanh(new)


def _neuron(name: str, function: Function, text: str = "", maker: Maker | None = None, backward: bool = True) -> Case:
    return Case(name, text, [MIDDLE], function, {0: maker} if maker else {}, backward)


def _accuracy(x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    # Caffe counts a label as found if no other class has a higher score, also where some have the same.
    higher = (x > x.gather(1, label.long()[:, None])).sum(1)
    return (higher < 1).float().mean()


def _infogain(x: torch.Tensor, label: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    rows = matrix.view(x.shape[1], -1)[label.long()]
    return -(rows * torch.log_softmax(x, 1)).sum() / len(x)


def _dot_interaction(x: torch.Tensor, rest: torch.Tensor) -> torch.Tensor:
    """DLRM's interact_features."""
    vectors = torch.cat([x.unsqueeze(1), rest], 1)
    rows, columns = torch.tril_indices(27, 27, -1)
    return torch.cat([x, torch.bmm(vectors, vectors.transpose(1, 2))[:, rows, columns]], 1)


CASES = [
    Case("Convolution 3x3", _convolution(3, 128, pad=1), [MIDDLE], _convolve(padding=1)),
    Case("Convolution 1x1", _convolution(1, 256), [MIDDLE], _convolve()),
    Case("Convolution 7x7/2", _convolution(7, 64, pad=3, stride=2), [(8, 3, 224, 224)], _convolve(padding=3, stride=2)),
    Case("Convolution 5x5, 2 groups", _convolution(5, 256, pad=2, group=2), [(16, 96, 27, 27)],
         _convolve(padding=2, groups=2)),
    Case("Convolution 3x3, dilated", _convolution(3, 128, pad=2, dilation=2), [MIDDLE],
         _convolve(padding=2, dilation=2)),
    Case("Deconvolution 4x4/2", _convolution(4, 32, pad=1, stride=2), [(8, 64, 28, 28)],
         lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, padding=1)),
    Case("DepthwiseConvolution 3x3", _convolution(3, 128, pad=1), [MIDDLE], _convolve(padding=1, groups=128)),
    Case("ConvolutionDepthwise 5x5", _convolution(5, 128, pad=2), [MIDDLE], _convolve(padding=2, groups=128)),
    Case("InnerProduct", "inner_product_param { num_output: 4096 weight_filler { type: 'xavier' } }", [ROWS], F.linear),
    Case("Embed", "embed_param { input_dim: 10000 num_output: 256 weight_filler { type: 'xavier' } }", [(32, 40)],
         lambda x, w, b: F.embedding(x.long(), w) + b, {0: labels(10000)}),
    Case("EmbeddingBag", "embedding_bag_param { input_dim: 10000 num_output: 256 }", [(128, 40)],
         lambda x, w: F.embedding_bag(x.long(), w, mode="sum", sparse=True), {0: labels(10000)}),
    Case("Im2col 3x3", "convolution_param { kernel_size: 3 pad: 1 }", [MIDDLE],
         lambda x: F.unfold(x, 3, padding=1).view(MIDDLE[0], -1, *MIDDLE[2:])),
    Case("Pooling MAX 3x3/2", "pooling_param { pool: MAX kernel_size: 3 stride: 2 }", [(16, 96, 55, 55)],
         lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True)),
    Case("Pooling MAX 2x2/2", "pooling_param { pool: MAX kernel_size: 2 stride: 2 }", [(64, 20, 24, 24)],
         lambda x: F.max_pool2d(x, 2)),
    Case("Pooling AVE 3x3/2", "pooling_param { pool: AVE kernel_size: 3 stride: 2 }", [(64, 32, 32, 32)],
         lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True)),
    Case("Pooling AVE, global", "pooling_param { pool: AVE global_pooling: true }", [(8, 2048, 7, 7)],
         lambda x: x.mean((2, 3), keepdim=True)),
    Case("ROIPooling", "roi_pooling_param { pooled_h: 7 pooled_w: 7 }", [MIDDLE, (32, 5)], _pool_regions, {1: boxes}),
    Case("SPP", "spp_param { pyramid_height: 3 }", [(8, 128, 28, 28)], _pyramid),
    Case("LRN across channels", "lrn_param { local_size: 5 alpha: 1e-4 beta: 0.75 }", [(16, 96, 27, 27)],
         lambda x: F.local_response_norm(x, 5, 1e-4, 0.75, 1.0)),
    Case("LRN within channel", "lrn_param { norm_region: WITHIN_CHANNEL local_size: 3 alpha: 1 beta: 0.75 }",
         [(64, 32, 16, 16)], _within_channel),
    Case("BatchNorm", "", [MIDDLE], _batch_norm),
    Case("BN", "bn_param { momentum: 0.9 }", [MIDDLE], _slope_and_bias),
    Case("Scale", "scale_param { bias_term: true }", [MIDDLE],
         lambda x, a, b: x * a.view(1, -1, 1, 1) + b.view(1, -1, 1, 1)),
    Case("Bias", "", [MIDDLE], lambda x, b: x + b.view(1, -1, 1, 1)),
    Case("MVN", "", [MIDDLE], _mvn),
    Case("LayerNorm", "", [(64, 56, 56, 96)], lambda x, a, b: F.layer_norm(x, (96,), a, b)),
    _neuron("ReLU", F.relu),
    _neuron("ReLU leaky", lambda x: F.leaky_relu(x, 0.1), "relu_param { negative_slope: 0.1 }"),
    _neuron("ReLU6", F.relu6),
    Case("PReLU", "", [MIDDLE], F.prelu),
    _neuron("ELU", F.elu),
    _neuron("Sigmoid", torch.sigmoid),
    _neuron("TanH", torch.tanh),
    _neuron("Swish", F.silu),
    _neuron("HardSwish", F.hardswish),
    _neuron("HardSigmoid", F.hardsigmoid),
    _neuron("GELU", F.gelu),
    _neuron("Clip", lambda x: x.clamp(-1, 1), "clip_param { min: -1 max: 1 }"),
    _neuron("BNLL", F.softplus),
    _neuron("AbsVal", torch.abs),
    _neuron("Exp", torch.exp),
    _neuron("Log", torch.log, maker=positive),
    _neuron("Power", lambda x: (0.5 * x + 2).square(), "power_param { power: 2 scale: 0.5 shift: 2 }"),
    _neuron("Threshold", lambda x: (x > 0).float(), backward=False),
    _neuron("Dropout", lambda x: F.dropout(x, 0.5)),
    Case("Eltwise SUM", "", [MIDDLE, MIDDLE], lambda a, b: a + b),
    Case("Eltwise PROD", "eltwise_param { operation: PROD }", [MIDDLE, MIDDLE], lambda a, b: a * b),
    Case("Eltwise MAX", "eltwise_param { operation: MAX }", [MIDDLE, MIDDLE], torch.maximum),
    Case("Axpy", "", [(8, 128, 1, 1), MIDDLE, MIDDLE], lambda a, x, y: a * x + y),
    Case("Concat", "", [MIDDLE, MIDDLE], lambda a, b: torch.cat([a, b], 1)),
    Case("Slice", "top: 'b'", [MIDDLE], lambda x: [part.clone() for part in x.chunk(2, 1)]),
    Case("Split", "top: 'b'", [MIDDLE], lambda x: [x.view_as(x), x.view_as(x)]),
    Case("Flatten", "", [MIDDLE], lambda x: x.flatten(1)),
    Case("Reshape", "reshape_param { shape { dim: 0 dim: -1 } }", [MIDDLE], lambda x: x.flatten(1)),
    Case("Permute", "permute_param { order: 0 order: 2 order: 3 order: 1 }", [MIDDLE],
         lambda x: x.permute(0, 2, 3, 1).contiguous()),
    Case("ShuffleChannel", "shuffle_channel_param { group: 4 }", [MIDDLE], lambda x: F.channel_shuffle(x, 4)),
    Case("Tile", "tile_param { tiles: 3 }", [MIDDLE], lambda x: x.repeat(1, 3, 1, 1)),
    Case("Crop", "crop_param { offset: 2 }", [MIDDLE, (8, 128, 24, 24)],
         lambda x, like: x[:, :, 2:26, 2:26].clone()),
    Case("Interp", "interp_param { zoom_factor: 2 }", [(8, 64, 28, 28)],
         lambda x: F.interpolate(x, size=(55, 55), mode="bilinear", align_corners=True)),
    Case("Filter", "", [(64, 4096), (64,)], lambda x, chosen: x[chosen.bool()], {1: binary}),
    Case("BatchReindex", "", [(64, 4096), (64,)], lambda x, index: x[index.long()], {1: labels(64)}),
    Case("MatMul", "", [(96, 197, 64), (96, 64, 197)], torch.matmul),
    Case("DotInteraction", "", [(2048, 16), (2048, 26, 16)], _dot_interaction),
    Case("Reduction", "reduction_param { axis: 1 }", [ROWS], lambda x: x.sum(1)),
    Case("ArgMax", "argmax_param { axis: 1 }", [SCORES],
         lambda x: 999 - x.flip(1).argmax(1, keepdim=True).float(), backward=False),
    Case("ArgMax, the first 5", "argmax_param { axis: 1 top_k: 5 }", [SCORES],
         lambda x: 999 - x.flip(1).sort(dim=1, descending=True, stable=True)[1][:, :5].float(), backward=False),
    Case("Accuracy", "", [SCORES, (64,)],
         _accuracy, {1: labels(1000)}, False),
    Case("Softmax", "", [SCORES], lambda x: torch.softmax(x, 1)),
    Case("Softmax over channels", "", [(8, 21, 64, 64)], lambda x: torch.softmax(x, 1)),
    Case("SoftmaxWithLoss", "", [SCORES, (64,)], lambda x, label: F.cross_entropy(x, label.long()), {1: labels(1000)}),
    Case("SoftmaxWithLoss over pixels", "", [(8, 21, 64, 64), (8, 64, 64)],
         lambda x, label: F.cross_entropy(x, label.long()), {1: labels(21)}),
    Case("SigmoidCrossEntropyLoss", "", [ROWS, ROWS],
         lambda x, t: F.binary_cross_entropy_with_logits(x, t, reduction="sum") / len(x), {1: binary}),
    Case("EuclideanLoss", "", [ROWS, ROWS], lambda a, b: (a - b).square().sum() / (2 * len(a))),
    Case("SmoothL1Loss", "", [ROWS, ROWS], lambda a, b: F.smooth_l1_loss(a, b, reduction="sum") / len(a)),
    Case("ContrastiveLoss", "", [ROWS, ROWS, (64,)], _contrastive, {2: binary}),
    Case("HingeLoss", "", [SCORES, (64,)], _one_minus_margin, {1: labels(1000)}),
    Case("MultinomialLogisticLoss", "", [SCORES, (64,)],
         lambda p, label: F.nll_loss(p.clamp(min=1e-20).log(), label.long()), {0: distribution, 1: labels(1000)}),
    Case("InfogainLoss", "", [(64, 100), (64,), (1, 1, 100, 100)], _infogain, {1: labels(100), 2: positive}),
    Case("Normalize", "norm_param { across_spatial: false }", [(8, 128, 28, 28)], _normalize),
    Case("LSTM", RECURRENT,
         [(20, 16, 256), (20, 16)], _lstm, {1: continuing}),
    Case("LSTM, interrupted", RECURRENT,
         [(20, 16, 256), (20, 16)], _lstm, {1: interrupted}),
    Case("LSTM, as torch.lstm", RECURRENT,
         [(20, 16, 256), (20, 16)], _fused_lstm, {1: continuing}, arrange=_gates_of_torch),
    Case("RNN", RECURRENT,
         [(20, 16, 256), (20, 16)], _rnn, {1: continuing}),
    Case("LSTMUnit", "top: 'b'", [(1, 64, 256), (1, 64, 1024), (1, 64)], _lstm_unit,
         {2: lambda shape, generator: torch.ones(shape)}),
]  # fmt: skip


def elements(case: Case) -> int:
    """Return values in all bottoms."""
    return sum(math.prod(shape) for shape in case.shapes)
