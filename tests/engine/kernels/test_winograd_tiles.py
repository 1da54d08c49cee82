"""Convolutions by Winograd's filtering along both axes, against PyTorch in float64: pieces, borders, and rounding."""

import pytest
import torch

from mgcaffe.engine.kernels import winograd_tiles
from mgcaffe.engine.kernels.geometry import Geometry


def random(shape, seed):
    values = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return values.contiguous(memory_format=torch.channels_last) if len(shape) == 4 else values


def by_pytorch(x, weight, bias, geometry):
    """Return y, a gradient dy of it, and what it gives for x and the filters."""
    y = torch.nn.functional.conv2d(x, weight, bias, padding=geometry.pad)
    dy = random(y.shape, 4)
    dx = torch.nn.grad.conv2d_input(x.shape, weight, dy, padding=geometry.pad)
    return y, dy, dx, torch.nn.grad.conv2d_weight(x, weight.shape, dy, padding=geometry.pad)


def by_tiles(x, weight, bias, dy, geometry):
    """Return y and the gradients of x and the filters."""
    return (
        winograd_tiles.forward(x, weight, bias, geometry),
        winograd_tiles.backward_data(dy, weight, x.shape[2:], geometry),
        winograd_tiles.backward_weight(dy, x, geometry),
    )


@pytest.mark.parametrize(
    ("height", "width", "pad"), [(12, 12, (0, 0)), (9, 6, (2, 2)), (1, 4, (2, 3)), (5, 11, (0, 4))]
)
def test_all_directions_are_pytorchs(monkeypatch, height, width, pad):
    geometry = Geometry((5, 5), (1, 1), pad, (1, 1))
    x, weight, bias = random((5, 3, height, width), 1), random((6, 3, 5, 5), 2), random((6,), 3)
    expected, dy, dx, dw = by_pytorch(x, weight, bias, geometry)
    assert winograd_tiles.serves(x, weight.shape, expected.shape[2:], geometry)
    for most in (winograd_tiles.CACHED, 1):  # all images at a time, or one by one
        monkeypatch.setattr(winograd_tiles, "CACHED", most)
        found = by_tiles(x, weight, bias, dy, geometry)
        assert all(each.is_contiguous(memory_format=torch.channels_last) for each in found[:2])
        for one, other in zip(found, (expected, dx, dw), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
        positive = winograd_tiles.forward(x, weight, None, geometry, relu=True)
        torch.testing.assert_close(positive, (expected - bias.view(-1, 1, 1)).clamp(min=0), rtol=1e-9, atol=1e-9)


def test_rounding_on_a_layer_of_real_size():
    geometry = Geometry((5, 5), (1, 1), (0, 0), (1, 1))
    x, weight = random((64, 20, 12, 12), 1), random((50, 20, 5, 5), 2)
    expected, dy, dx, dw = by_pytorch(x, weight, None, geometry)
    found = by_tiles(x.float(), weight.float(), None, dy.float(), geometry)
    # In units of 1e-6 of the largest value; measured: the half of each.
    for one, other, limit in zip(found, (expected, dx, dw), (10, 10, 18), strict=True):
        assert (one.double() - other).abs().max() <= 1e-6 * limit * other.abs().max()


def test_what_is_not_served():
    x, out = random((1, 4, 8, 8), 1), (8, 8)

    def serves(x=x, filters=(4, 4, 5, 5), geometry=((5, 5), (1, 1), (2, 2), (1, 1))):
        return winograd_tiles.serves(x, filters, out, Geometry(*geometry))

    assert serves()
    assert not serves(x=x.contiguous())
    assert not serves(x=x.half())
    assert not serves(x=x[:0])
    assert not serves(x=x.to("meta"))
    for other in (
        ((5, 3), (1, 1), (2, 1), (1, 1)), ((5, 5), (2, 1), (2, 2), (1, 1)), ((5, 5), (1, 1), (2, 2), (1, 2)),
        ((5, 5), (1, 1), (2, 2), (1, 1), 2), ((5,), (1,), (2,), (1,)),
    ):  # fmt: skip
        assert not serves(geometry=other)
    # More than 16 MiB for the filters.
    assert not serves(filters=(1024, 128, 5, 5))
