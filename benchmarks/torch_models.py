"""The nets of models/ in plain PyTorch (torch.nn, autograd): the rival of benchmarks/step.py.

    model = build("lenet")                  # images -> scores; GoogLeNet without its auxiliary heads
    model = build("googlenet", auxiliary=True)
    value = loss(model(images), labels)     # what the prototxt's loss layers add up to

Each model computes what its train_val.prototxt computes: Caffe's rounding-up pooling, whose averages count
the padding, local response normalisation, groups, dropout, layers in the same order. BATCHES gives the input
of the benchmark.

Every module carries the name of its Caffe layer, so that weights go from one to the other by name: the state
"conv1.weight" is blob 0 of layer conv1, "conv1.bias" blob 1. The one exception is that PyTorch's batch
normalisation holds both the statistics (Caffe's BatchNorm "bn2a_branch1") and the scale and shift (Caffe's
Scale "scale2a_branch1"): it carries the first name. `blob_of` is this map, `copy_blobs` fills a model
through it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# The benchmark inputs: images, channels, height, width.
BATCHES = {
    "lenet": (64, 1, 28, 28),
    "cifar10_quick": (100, 3, 32, 32),
    "cifar10_full": (100, 3, 32, 32),
    "alexnet": (16, 3, 227, 227),
    "googlenet": (8, 3, 224, 224),
    "resnet50": (8, 3, 224, 224),
}
CLASSES = {
    "lenet": 10,
    "cifar10_quick": 10,
    "cifar10_full": 10,
    "alexnet": 1000,
    "googlenet": 1000,
    "resnet50": 1000,
}


def max_pool(x: Tensor, kernel: int, stride: int, pad: int = 0) -> Tensor:
    """Caffe's MAX pooling: a window that only partly fits still counts."""
    return F.max_pool2d(x, kernel, stride, pad, ceil_mode=True)


def average_pool(x: Tensor, kernel: int, stride: int) -> Tensor:
    """Caffe's AVE pooling: as max_pool; a clipped window is divided by what is left of it."""
    return F.avg_pool2d(x, kernel, stride, ceil_mode=True)


def norm_across(x: Tensor) -> Tensor:
    """LRN across five channels, as AlexNet and GoogLeNet use it."""
    return F.local_response_norm(x, 5, alpha=1e-4, beta=0.75, k=1.0)


def norm_within(x: Tensor) -> Tensor:
    """LRN within each channel, over 3x3 neighbours, as cifar10_full uses it."""
    return x * (1 + 5e-5 * F.avg_pool2d(x * x, 3, stride=1, padding=1)) ** -0.75


def relu(x: Tensor) -> Tensor:
    """ReLU in place, as in the prototxts."""
    return F.relu(x, inplace=True)


class LeNet(nn.Module):
    """Images (N, 1, 28, 28) to scores (N, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 5)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.ip1 = nn.Linear(800, 500)
        self.ip2 = nn.Linear(500, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layers in the prototxt's order."""
        x = max_pool(self.conv1(x), 2, 2)
        x = max_pool(self.conv2(x), 2, 2)
        return self.ip2(relu(self.ip1(x.flatten(1))))


class Cifar10Quick(nn.Module):
    """Images (N, 3, 32, 32) to scores (N, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 5, padding=2)
        self.conv2 = nn.Conv2d(32, 32, 5, padding=2)
        self.conv3 = nn.Conv2d(32, 64, 5, padding=2)
        self.ip1 = nn.Linear(1024, 64)
        self.ip2 = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layers in the prototxt's order."""
        x = relu(max_pool(self.conv1(x), 3, 2))
        x = average_pool(relu(self.conv2(x)), 3, 2)
        x = average_pool(relu(self.conv3(x)), 3, 2)
        return self.ip2(self.ip1(x.flatten(1)))


class Cifar10Full(nn.Module):
    """Images (N, 3, 32, 32) to scores (N, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 5, padding=2)
        self.conv2 = nn.Conv2d(32, 32, 5, padding=2)
        self.conv3 = nn.Conv2d(32, 64, 5, padding=2)
        self.ip1 = nn.Linear(1024, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layers in the prototxt's order."""
        x = norm_within(relu(max_pool(self.conv1(x), 3, 2)))
        x = norm_within(average_pool(relu(self.conv2(x)), 3, 2))
        x = average_pool(relu(self.conv3(x)), 3, 2)
        return self.ip1(x.flatten(1))


class AlexNet(nn.Module):
    """Images (N, 3, 227, 227) to scores (N, 1000)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 96, 11, stride=4)
        self.conv2 = nn.Conv2d(96, 256, 5, padding=2, groups=2)
        self.conv3 = nn.Conv2d(256, 384, 3, padding=1)
        self.conv4 = nn.Conv2d(384, 384, 3, padding=1, groups=2)
        self.conv5 = nn.Conv2d(384, 256, 3, padding=1, groups=2)
        self.fc6 = nn.Linear(9216, 4096)
        self.drop6 = nn.Dropout(0.5)
        self.fc7 = nn.Linear(4096, 4096)
        self.drop7 = nn.Dropout(0.5)
        self.fc8 = nn.Linear(4096, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layers in the prototxt's order."""
        x = max_pool(norm_across(relu(self.conv1(x))), 3, 2)
        x = max_pool(norm_across(relu(self.conv2(x))), 3, 2)
        x = relu(self.conv4(relu(self.conv3(x))))
        x = max_pool(relu(self.conv5(x)), 3, 2).flatten(1)
        x = self.drop6(relu(self.fc6(x)))
        return self.fc8(self.drop7(relu(self.fc7(x))))


class NamedLayers(nn.Module):
    """A module whose submodules are reached by their Caffe names, which are no Python identifiers."""

    def __getitem__(self, name: str) -> nn.Module:
        """Return the submodule called `name`."""
        return getattr(self, name)


# GoogLeNet: input channels, then widths: 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool projection.
INCEPTION = {
    "inception_3a": (192, 64, 96, 128, 16, 32, 32),
    "inception_3b": (256, 128, 128, 192, 32, 96, 64),
    "inception_4a": (480, 192, 96, 208, 16, 48, 64),
    "inception_4b": (512, 160, 112, 224, 24, 64, 64),
    "inception_4c": (512, 128, 128, 256, 24, 64, 64),
    "inception_4d": (512, 112, 144, 288, 32, 64, 64),
    "inception_4e": (528, 256, 160, 320, 32, 128, 128),
    "inception_5a": (832, 256, 160, 320, 32, 128, 128),
    "inception_5b": (832, 384, 192, 384, 48, 128, 128),
}
# Input channels of its auxiliary heads.
HEADS = {"loss1": 512, "loss2": 528}


class GoogLeNet(NamedLayers):
    """Images (N, 3, 224, 224) to scores (N, 1000); while training with heads also those of both heads."""

    def __init__(self, auxiliary: bool = False) -> None:
        super().__init__()
        self.auxiliary = auxiliary
        self.add_module("conv1/7x7_s2", nn.Conv2d(3, 64, 7, stride=2, padding=3))
        self.add_module("conv2/3x3_reduce", nn.Conv2d(64, 64, 1))
        self.add_module("conv2/3x3", nn.Conv2d(64, 192, 3, padding=1))
        for module, (inputs, one, three_reduce, three, five_reduce, five, pooled) in INCEPTION.items():
            self.add_module(f"{module}/1x1", nn.Conv2d(inputs, one, 1))
            self.add_module(f"{module}/3x3_reduce", nn.Conv2d(inputs, three_reduce, 1))
            self.add_module(f"{module}/3x3", nn.Conv2d(three_reduce, three, 3, padding=1))
            self.add_module(f"{module}/5x5_reduce", nn.Conv2d(inputs, five_reduce, 1))
            self.add_module(f"{module}/5x5", nn.Conv2d(five_reduce, five, 5, padding=2))
            self.add_module(f"{module}/pool_proj", nn.Conv2d(inputs, pooled, 1))
        for head, inputs in HEADS.items() if auxiliary else ():
            self.add_module(f"{head}/conv", nn.Conv2d(inputs, 128, 1))
            self.add_module(f"{head}/fc", nn.Linear(2048, 1024))
            self.add_module(f"{head}/drop_fc", nn.Dropout(0.7))
            self.add_module(f"{head}/classifier", nn.Linear(1024, 1000))
        self.add_module("pool5/drop_7x7_s1", nn.Dropout(0.4))
        self.add_module("loss3/classifier", nn.Linear(1024, 1000))

    def inception(self, module: str, x: Tensor) -> Tensor:
        """Return one inception module."""
        one = relu(self[f"{module}/1x1"](x))
        three = relu(self[f"{module}/3x3"](relu(self[f"{module}/3x3_reduce"](x))))
        five = relu(self[f"{module}/5x5"](relu(self[f"{module}/5x5_reduce"](x))))
        pooled = relu(self[f"{module}/pool_proj"](max_pool(x, 3, 1, 1)))
        return torch.cat([one, three, five, pooled], dim=1)

    def head(self, name: str, x: Tensor) -> Tensor:
        """Return one auxiliary head's scores."""
        x = relu(self[f"{name}/conv"](average_pool(x, 5, 3)))
        x = self[f"{name}/drop_fc"](relu(self[f"{name}/fc"](x.flatten(1))))
        return self[f"{name}/classifier"](x)

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor, Tensor]:
        """Return the layers in the prototxt's order; the heads' scores follow the main ones."""
        x = norm_across(max_pool(relu(self["conv1/7x7_s2"](x)), 3, 2))
        x = relu(self["conv2/3x3"](relu(self["conv2/3x3_reduce"](x))))
        x = max_pool(norm_across(x), 3, 2)
        heads = []
        for module in INCEPTION:
            x = self.inception(module, x)
            if module in ("inception_3b", "inception_4e"):
                x = max_pool(x, 3, 2)
            if self.auxiliary and self.training and module in ("inception_4a", "inception_4d"):
                heads.append(self.head("loss1" if module == "inception_4a" else "loss2", x))
        x = self["pool5/drop_7x7_s1"](average_pool(x, 7, 1).flatten(1))
        scores = self["loss3/classifier"](x)
        return (scores, heads[0], heads[1]) if heads else scores


class ResNet50(NamedLayers):
    """Images (N, 3, 224, 224) to scores (N, 1000); strides on the first 1x1 convolution of a stage."""

    # Stage, blocks, width of the inner convolutions.
    STAGES = ((2, 3, 64), (3, 4, 128), (4, 6, 256), (5, 3, 512))

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3)
        self.bn_conv1 = nn.BatchNorm2d(64)
        self.blocks: list[str] = []
        inputs = 64
        for stage, blocks, width in self.STAGES:
            for index in range(blocks):
                block = f"{stage}{'abcdef'[index]}"
                self.blocks.append(block)
                stride = 2 if index == 0 and stage > 2 else 1
                if index == 0:
                    self._add(f"{block}_branch1", inputs, 4 * width, 1, stride)
                self._add(f"{block}_branch2a", inputs, width, 1, stride)
                self._add(f"{block}_branch2b", width, width, 3, 1)
                self._add(f"{block}_branch2c", width, 4 * width, 1, 1)
                inputs = 4 * width
        self.fc1000 = nn.Linear(2048, 1000)

    def _add(self, name: str, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
        self.add_module(f"res{name}", convolution)
        self.add_module(f"bn{name}", nn.BatchNorm2d(outputs))

    def conv(self, name: str, x: Tensor) -> Tensor:
        """Return a convolution and its normalisation."""
        return self[f"bn{name}"](self[f"res{name}"](x))

    def bottleneck(self, block: str, x: Tensor) -> Tensor:
        """Return one bottleneck block."""
        shortcut = self.conv(f"{block}_branch1", x) if block.endswith("a") else x
        x = relu(self.conv(f"{block}_branch2a", x))
        x = relu(self.conv(f"{block}_branch2b", x))
        x = self.conv(f"{block}_branch2c", x)
        x += shortcut
        return relu(x)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layers in the prototxt's order."""
        x = max_pool(relu(self.bn_conv1(self.conv1(x))), 3, 2)
        for block in self.blocks:
            x = self.bottleneck(block, x)
        return self.fc1000(average_pool(x, 7, 1).flatten(1))


BUILDERS: dict[str, Callable[[], nn.Module]] = {
    "lenet": LeNet,
    "cifar10_quick": Cifar10Quick,
    "cifar10_full": Cifar10Full,
    "alexnet": AlexNet,
    "googlenet": GoogLeNet,
    "resnet50": ResNet50,
}


def build(name: str, auxiliary: bool = False) -> nn.Module:
    """Return the model of that name, with PyTorch's own initial weights, in training mode.

    Args:
        name: a key of BATCHES.
        auxiliary: GoogLeNet with both auxiliary heads.
    """
    return GoogLeNet(auxiliary=True) if auxiliary and name == "googlenet" else BUILDERS[name]()


def loss(scores: Tensor | tuple[Tensor, ...], labels: Tensor) -> Tensor:
    """Return the mean softmax loss over the batch; auxiliary heads count 0.3 each.

    Args:
        scores: what the model returned, (N, classes), or three of them.
        labels: (N,), integers.
    """
    if isinstance(scores, Tensor):
        return F.cross_entropy(scores, labels)
    main, *heads = scores
    return F.cross_entropy(main, labels) + sum(0.3 * F.cross_entropy(head, labels) for head in heads)


def blob_of(state: str) -> tuple[str, int] | None:
    """Return the Caffe layer and blob index that an entry of `state_dict()` stands for.

    Returns:
        For instance ("conv1", 0) for "conv1.weight"; None for `num_batches_tracked`, which Caffe has not.
    """
    layer, _, field = state.rpartition(".")
    if field == "num_batches_tracked":
        return None
    if field in ("running_mean", "running_var"):
        return layer, int(field == "running_var")
    if layer.startswith("bn"):
        layer = "scale" + layer.removeprefix("bn")
    return layer, int(field == "bias")


def copy_blobs(model: nn.Module, blobs: Mapping[str, Sequence[Tensor]]) -> None:
    """Fill a model with a Caffe net's parameters.

    Args:
        model: one of `build`.
        blobs: each layer's blobs, by layer name, shaped as Caffe's. A BatchNorm layer has three: the sums of
            means and variances, and the factor they are divided by.
    """
    with torch.no_grad():
        for state, target in model.state_dict().items():
            place = blob_of(state)
            if place is None:
                continue
            layer, index = place
            values = blobs[layer][index]
            if state.endswith(("running_mean", "running_var")):
                factor = float(blobs[layer][2])
                values = values / factor if factor else torch.zeros_like(values)
            target.copy_(values)
