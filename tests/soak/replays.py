"""Nets drawn at random, trained by replays and by their layers: the same bits (`engine/capture`).

Losses, outputs and gradients of nine iterations, and the weights behind them, in float32, float64 or bf16. In some nets
iterations have two passes that add to the same gradients, and in some the batch size changes from iteration to
iteration, or every third one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial

import torch

from mgcaffe.engine.kernels.precision import PRECISIONS
from tests.soak import Row, count
from tests.support.capturekit import build, dense, fill, layer, train
from tests.support.netkit import inputs

NAME = "replays"
CASES = 1000
ITERATIONS = 9

Blob = tuple[int, int]  # channels, and the size along both spatial axes
_XAVIER = 'weight_filler { type: "xavier" }'
_TEXTS = {
    "ReLU": ["", "relu_param { negative_slope: 0.1 }"],
    "Sigmoid": [""],
    "TanH": [""],
    "AbsVal": [""],
    "Softmax": [""],
    "Power": ["power_param { scale: 0.5 shift: 1 }", "power_param { power: 2 }"],
    "Dropout": [""],
    "BatchNorm": ["", "batch_norm_param { scale_bias: true }", "batch_norm_param { use_global_stats: true }"],
    "Scale": ["scale_param { bias_term: true }", ""],
    "Bias": [""],
    "BN": ["bn_param { momentum: 0.8 }", "bn_param { frozen: true }", "bn_param { bn_mode: LEARN }"],
    "PReLU": ["", "prelu_param { channel_shared: true }"],
    "ELU": [""],
    "ReLU6": [""],
    "Clip": ["clip_param { min: -0.5 max: 0.8 }"],
    "BNLL": [""],
    "GELU": ["", "gelu_param { approximate: TANH }"],
    "Swish": ["", "swish_param { beta: 1.5 }"],
    "HardSwish": [""],
    "HardSigmoid": ["", "hard_sigmoid_param { alpha: 0.3 }"],
    "LayerNorm": ["layer_norm_param { axis: 1 }", "layer_norm_param { axis: -1 affine: false }"],
    "MVN": ["", "mvn_param { normalize_variance: false }"],
    "Permute": ["permute_param { order: 0 order: 1 order: 3 order: 2 }"],
    "Reshape": ["reshape_param { shape { dim: 0 dim: 0 dim: 0 dim: -1 } }"],
    "LRN": ["", "lrn_param { local_size: 3 }", "lrn_param { norm_region: WITHIN_CHANNEL local_size: 3 }"],
    "DepthwiseConvolution": [f"convolution_param {{ kernel_size: 3 pad: 1 {_XAVIER} }}"],
}
_IN_PLACE = ["ReLU", "Sigmoid", "TanH", "Dropout", "ELU", "Swish", "HardSwish", "BatchNorm", "Bias", "Scale"]
_SUMS = [
    *("", "eltwise_param { coeff: 1 coeff: -1 }", "eltwise_param { coeff: 0.5 coeff: 2 }"),
    *("eltwise_param { operation: PROD }", "eltwise_param { operation: MAX }"),
]
_FROZEN = ["", "", "", "param { lr_mult: 0 }", "param { lr_mult: 1 } param { lr_mult: 0 }"]


class RandomNet:
    """A net's text, layer by layer; each reads a blob that is there."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._images = draw.choice([1, 2, 3])
        self._blobs: dict[str, Blob] = {"x": (draw.choice([1, 3, 4]), draw.choice([7, 8, 12, 13]))}
        self._may_change: set[str] = set()  # those that nobody has read
        self._scores: list[str] = []

    def text(self) -> str:
        """Return the net, with one or more losses."""
        draw, (channels, size) = self._draw, self._blobs["x"]
        parts = [inputs(x=(self._images, channels, size, size), label=(self._images,))]
        makers: list[Callable[[str, str], str]] = [
            *[self._conv] * 3, *[self._pooling] * 2, *[self._neuron] * 3, *[self._in_place] * 2, *[self._sum] * 2,
            self._concat, self._split, self._deconvolution, self._branch,
        ]  # fmt: skip
        for number in range(draw.randint(2, 12)):
            parts.append(draw.choice(makers)(f"n{number}", draw.choice(list(self._blobs))))
        last = list(self._blobs)[-1]
        parts.append(dense("last", last, "last", 3, draw.choice(_FROZEN)))
        self._scores.append("last")
        for scores in self._scores:
            fields = draw.choice(["", "loss_weight: 0.3", "loss_param { normalization: FULL }"])
            parts.append(layer(f"loss of {scores}", "SoftmaxWithLoss", f"{scores} label", f"{scores}_loss", fields))
        alike = [other for other in self._blobs if other != last and self._blobs[other] == self._blobs[last]]
        if alike and draw.random() < 0.3:
            parts.append(layer("side", "EuclideanLoss", f"{last} {draw.choice(alike)}", "side", "loss_weight: 0.01"))
        return "".join(parts)

    def _made(self, text: str, bottoms: list[str], top: str, blob: Blob) -> str:
        self._may_change -= set(bottoms)
        self._may_change.add(top)
        self._blobs[top] = blob
        return text

    def _conv(self, name: str, bottom: str) -> str:
        draw, (channels, size) = self._draw, self._blobs[bottom]
        outputs, kernel = draw.choice([1, 3, 4, 6]), draw.choice([1, 3, 5])
        pad, stride, dilation = draw.choice([0, kernel // 2]), draw.choice([1, 1, 2]), draw.choice([1, 1, 2])
        group = draw.choice([each for each in (1, 2, 3) if channels % each == outputs % each == 0])
        out = (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
        if out < 1:
            return ""
        fields = (
            f"convolution_param {{ num_output: {outputs} kernel_size: {kernel} pad: {pad} stride: {stride} "
            f"dilation: {dilation} group: {group} {_XAVIER} }} {draw.choice(_FROZEN)}"
        )
        return self._made(layer(name, "Convolution", bottom, name, fields), [bottom], name, (outputs, out))

    def _deconvolution(self, name: str, bottom: str) -> str:
        size = self._blobs[bottom][1]
        if size > 13:
            return ""
        fields = f"convolution_param {{ num_output: 2 kernel_size: 4 stride: 2 pad: 1 {_XAVIER} }}"
        return self._made(layer(name, "Deconvolution", bottom, name, fields), [bottom], name, (2, 2 * size))

    def _pooling(self, name: str, bottom: str) -> str:
        draw, (channels, size) = self._draw, self._blobs[bottom]
        kernel, stride, pad = draw.choice([2, 3]), draw.choice([1, 2]), draw.choice([0, 1])
        if size < kernel:
            return ""
        out = math.ceil((size + 2 * pad - kernel) / stride) + 1
        out -= pad > 0 and (out - 1) * stride >= size + pad
        fields = f"kernel_size: {kernel} stride: {stride} pad: {pad} pool: {draw.choice(['MAX', 'AVE'])}"
        text = layer(name, "Pooling", bottom, name, f"pooling_param {{ {fields} }}")
        return self._made(text, [bottom], name, (channels, out))

    def _neuron(self, name: str, bottom: str) -> str:
        kind = self._draw.choice(list(_TEXTS))
        text = layer(name, kind, bottom, name, self._draw.choice(_TEXTS[kind]))
        return self._made(text, [bottom], name, self._blobs[bottom])

    def _in_place(self, name: str, bottom: str) -> str:
        return layer(name, self._draw.choice(_IN_PLACE), bottom, bottom) if bottom in self._may_change else ""

    def _sum(self, name: str, bottom: str) -> str:
        alike = [other for other, blob in self._blobs.items() if blob == self._blobs[bottom] and other != bottom]
        if not alike:
            return ""
        other = self._draw.choice(alike)
        text = layer(name, "Eltwise", f"{bottom} {other}", name, self._draw.choice(_SUMS))
        return self._made(text, [bottom, other], name, self._blobs[bottom])

    def _concat(self, name: str, bottom: str) -> str:
        other = self._draw.choice([each for each in self._blobs if self._blobs[each][1] == self._blobs[bottom][1]])
        channels = self._blobs[bottom][0] + self._blobs[other][0]
        text = layer(name, "Concat", f"{bottom} {other}", name)
        return self._made(text, [bottom, other], name, (channels, self._blobs[bottom][1]))

    def _split(self, name: str, bottom: str) -> str:
        text = layer(name, "Split", bottom, f"{name} {name}b")
        return self._made(text, [bottom], name, self._blobs[bottom]) + self._made("", [], f"{name}b", self._blobs[name])

    def _branch(self, name: str, bottom: str) -> str:
        self._may_change.discard(bottom)
        self._scores.append(name)
        return dense(name, bottom, name, 3)


def run(full: bool) -> list[Row]:
    """Train each net both ways, a tenth of the nets if not in full."""
    cases = [(f"seed {seed}", partial(_problem, seed)) for seed in range(CASES if full else CASES // 10)]
    return [count("random nets, replays equal layers", cases, f"{ITERATIONS} iterations each")]


def _problem(seed: int) -> str | None:
    """Return what differs, or None."""
    draw = random.Random(seed)
    text = RandomNet(draw).text()
    passes, dtype = draw.choice([1, 1, 2]), draw.choice([torch.float32] * 5 + [torch.float64])
    precision = PRECISIONS[draw.choice(["float32", "float32", "bf16"]) if dtype == torch.float32 else "float32"]
    sizes = [draw.choice([1, 2, 3]) for _ in range(ITERATIONS)]
    every = draw.choice([None, None, 1, 3])  # how many iterations have a batch size; None: all

    def begin(net, iteration):
        for each in net.layers if every else ():
            if each.type == "Input":
                each.values = [value[:1].expand(sizes[iteration // every], *value.shape[1:]) for value in each.values]
        fill(net, iteration)

    net, replays = build(text, dtype=dtype, precision=precision)
    plain, _ = build(text, dtype=dtype, precision=precision)
    mine = train(net, replays.forward, replays.backward, ITERATIONS, passes, begin)
    others = train(plain, plain.forward, plain.backward, ITERATIONS, passes, begin)
    if len(mine) != len(others):
        return f"{len(mine)} values instead of {len(others)}"
    alike = [
        torch.allclose(one, other, rtol=0, atol=0, equal_nan=True) for one, other in zip(mine, others, strict=True)
    ]
    return None if all(alike) else f"value {alike.index(False)} of {len(alike)} differs"
