"""The weight gradient over one channel, against PyTorch's."""

import pytest
import torch

from mgcaffe.engine.kernels import convolution, one_channel
from mgcaffe.engine.kernels.geometry import Geometry


@pytest.mark.parametrize(
    ("kernel", "stride", "pad", "dilation"),
    [
        ((5, 5), (1, 1), (0, 0), (1, 1)),
        ((3, 2), (2, 1), (1, 0), (1, 1)),
        ((3, 3), (1, 2), (2, 1), (2, 1)),
        ((1, 1), (1, 1), (0, 0), (1, 1)),
        ((2, 3), (3, 3), (0, 2), (1, 2)),
    ],
)
@pytest.mark.parametrize("channels_last_input", [False, True])
def test_gradient_is_pytorchs(kernel, stride, pad, dilation, channels_last_input):
    generator = torch.Generator().manual_seed(1)
    geometry = Geometry(kernel, stride, pad, dilation)
    base = torch.randn(3, 2, 11, 12, generator=generator)
    x = base[:, 1:]  # a view with gaps
    if channels_last_input:
        x = x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    weight = torch.randn(4, 1, *kernel, generator=generator)
    y = torch.nn.functional.conv2d(x, weight, None, stride, pad, dilation)
    dy = torch.randn(y.shape, generator=generator).contiguous(memory_format=torch.channels_last)
    expected = torch.nn.grad.conv2d_weight(x, weight.shape, dy, stride, pad, dilation)
    assert one_channel.serves(dy, x, geometry) == (dy.shape[2] * dy.shape[3] > 1)
    torch.testing.assert_close(one_channel.backward_weight(dy, x, geometry), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        convolution.backward_weight(dy, x, weight.shape, geometry), expected, rtol=1e-4, atol=1e-4
    )


def test_too_many_columns_and_more_channels_are_left_to_onednn():
    dy = torch.randn(2, 4, 8, 8).contiguous(memory_format=torch.channels_last)
    assert not one_channel.serves(dy, torch.randn(2, 3, 10, 10), Geometry((3, 3), (1, 1), (0, 0), (1, 1)))
    large = torch.empty(64, 1, 224, 224)
    dy = torch.empty(64, 4, 222, 222).contiguous(memory_format=torch.channels_last)
    assert not one_channel.serves(dy, large, Geometry((3, 3), (1, 1), (0, 0), (1, 1)))
