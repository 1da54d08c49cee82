"""Blocks of several operators: the net computes the same, and its training step is the same."""

import pytest
import torch
from torch import nn

from tests.support.torchkit import check_training_step, converted, layers_of, types_of

pytestmark = pytest.mark.slow

F = torch.nn.functional


def classifier(*parts: nn.Module) -> nn.Module:
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))


class Residual(nn.Module):
    """A block with normalization, attention to channels, a factor for each and a sum in place."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(4, eps=0.001)
        self.relu = nn.ReLU(inplace=True)
        self.squeeze = nn.Conv2d(4, 2, 1)
        self.excite = nn.Conv2d(2, 4, 1)
        self.gate = nn.Hardsigmoid()
        self.factor = nn.Parameter(torch.ones(4, 1, 1))
        self.drop = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.bn(self.conv(x)))
        gate = self.gate(self.excite(F.silu(self.squeeze(F.adaptive_avg_pool2d(y, 1)))))
        y = self.factor * self.drop(gate * y)
        y += x
        return self.relu(y)


class ChannelsLast(nn.Module):
    """A block of ConvNeXt."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.norm = nn.LayerNorm(4, eps=1e-6)
        self.grow, self.shrink = nn.Linear(4, 8), nn.Linear(8, 4)
        self.factor = nn.Parameter(torch.ones(4, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + self.factor * self.shrink(F.gelu(self.grow(y))).permute(0, 3, 1, 2)


class Shuffled(nn.Module):
    """A block of ShuffleNet."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 1, bias=False)
        self.bn = nn.BatchNorm2d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left, right = x.chunk(2, dim=1)
        y = torch.cat([left, F.hardswish(self.bn(self.conv(right)))], dim=1)
        return y.view(-1, 2, 2, 6, 6).transpose(1, 2).contiguous().view(-1, 4, 6, 6)


class Windows(nn.Module):
    """Windows that are not Caffe's, other normalizations, and factors that float32 does not hold."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(4, 4, 2, padding="same"),
            nn.GroupNorm(2, 4, eps=0.125),
            nn.AvgPool2d(5, 2, 2, count_include_pad=False),
        )
        self.larger = nn.ConvTranspose2d(4, 4, 3, 2, padding=1, output_padding=1)
        self.norm = nn.InstanceNorm2d(4, eps=0.125, affine=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.larger(self.stem(x))) + F.interpolate(x[:, :, :3, :3], scale_factor=2)
        return F.local_response_norm(F.mish(y / 3) * F.selu(x), 3)


class Rearranged(nn.Module):
    """Pixels and channels in each other's places, gates, and values that are repeated."""

    def __init__(self) -> None:
        super().__init__()
        self.deep = nn.Sequential(nn.Conv2d(4, 16, 1), nn.PixelShuffle(2), nn.GLU(1))
        self.back = nn.PixelUnshuffle(2)
        self.factor = nn.Parameter(torch.ones(1, 4, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.deep(x).repeat(1, 2, 1, 1)
        y = self.back(y)[:, 2:6] * self.factor.expand_as(x)
        return y * y.mean(1, keepdim=True).sigmoid().expand_as(y) - y.mean((2, 3), keepdim=True).expand_as(y)


class Resized(nn.Module):
    """Pixels that are sums of pixels by weights which float32 does not hold, and windows over rows."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.interpolate(self.conv(x), (11, 7), mode="bilinear") * F.interpolate(self.conv(x), (11, 7), mode="bicubic")
        rows = F.avg_pool1d(self.conv(x).flatten(2), 3, 1, 1, count_include_pad=False)
        volumes = F.avg_pool3d(self.conv(x).unsqueeze(1), 3, 1, 1, count_include_pad=False)
        largest = F.max_pool3d(volumes, 3, 1, 1).view_as(x)
        return F.adaptive_avg_pool2d(y, 6) + rows.view_as(x) + volumes.view_as(x) * largest


class Copied(nn.Module):
    """Copies, of which one side is written over."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        one, two = y.clone(), y.double()
        one.relu_()
        two.mul_(2)
        z = y + one * two.float()
        kept = z.clone()
        z.sigmoid_()
        return z * kept


class SameSize(nn.Module):
    """What keeps its size, and is written over while what it was made of is not."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        one, two = F.interpolate(y, size=(6, 6)), F.interpolate(y, size=(6, 6), mode="bilinear")
        three, four = F.adaptive_avg_pool2d(y, 6), F.adaptive_max_pool2d(y, 6)
        one.relu_()
        two.sigmoid_()
        three.mul_(2)
        four.tanh_()
        return y * (one + two) + three * four


class Double(nn.Module):
    """Weights of 64 bits behind what makes such numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1).double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x.double()).float()


class Shared(nn.Module):
    """A convolution that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(F.elu(self.conv(x)))


BLOCKS = {
    "residual": Residual(),
    "channels_last": ChannelsLast(),
    "shuffled": Shuffled(),
    "windows": Windows(),
    "rearranged": Rearranged(),
    "resized": Resized(),
    "copied": Copied(),
    "same_size": SameSize(),
    "double": Double(),
    "shared": Shared(),
    "normalized_by_batch_alone": nn.Sequential(nn.Conv2d(4, 4, 1), nn.PReLU(4), nn.BatchNorm2d(4, affine=False)),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_computes_the_same_in_evaluation_and_trains_the_same(name):
    module = classifier(BLOCKS[name])
    converted(module)
    check_training_step(module)


def test_numbers_of_other_types_become_float32():
    assert types_of(converted(Double())) == ["Convolution"]


def test_shared_parameters_have_a_name():
    layers = [layer for layer in layers_of(converted(Shared())) if layer.type == "Convolution"]
    assert [layer.name for layer in layers] == ["conv", "conv_2"]
    assert [[spec.name for spec in layer.param] for layer in layers] == [["conv.weight", "conv.bias"]] * 2
