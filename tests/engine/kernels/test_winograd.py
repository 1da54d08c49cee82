"""Convolutions by Winograd's filtering, against PyTorch in float64: pieces, borders, groups, and their rounding."""

import itertools

import pytest
import torch

from mgcaffe.engine.kernels import unfolded, winograd, winograd_rows
from mgcaffe.engine.kernels.geometry import Geometry

SIZES = {size.name: size for size in winograd.SIZES}


def random(shape, seed):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, dtype=torch.float64, generator=generator)
    return values.contiguous(memory_format=torch.channels_last) if len(shape) == 4 else values


def by_pytorch(x, weight, bias, geometry, seed=4):
    """Return y, a gradient dy of it, and what it gives for x and the filters."""
    walk = (geometry.stride, geometry.pad, geometry.dilation, geometry.groups)
    y = torch.nn.functional.conv2d(x, weight, bias, *walk)
    dy = random(y.shape, seed)
    return y, dy, torch.nn.grad.conv2d_input(x.shape, weight, dy, *walk), torch.nn.grad.conv2d_weight(
        x, weight.shape, dy, *walk
    )  # fmt: skip


def by_winograd(x, weight, bias, dy, geometry, size):
    """Return y and the gradients of x and the filters, which replaces what was there."""
    dw = torch.full_like(weight, float("nan"))
    winograd.add_backward_weight(dw, 0.0, dy, x, geometry, size)
    return winograd.forward(x, weight, bias, geometry, size), winograd.backward_data(dy, weight, geometry, size), dw


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize(("height", "width", "pad", "across", "groups"), [
    (11, 7, (1, 1), 3, 1), (9, 6, (0, 0), 3, 2), (5, 6, (2, 0), 1, 3), (1, 4, (2, 2), 5, 1), (16, 1, (2, 1), 2, 1),
    (12, 3, (2, 1), 3, 1),  # whole tiles
])  # fmt: skip
def test_all_directions_are_pytorchs(monkeypatch, name, height, width, pad, across, groups):
    size = SIZES[name]
    geometry = Geometry((size.rows, across), (1, 1), pad, (1, 1), groups)
    x, weight, bias = random((5, 6, height, width), 1), random((6, 6 // groups, size.rows, across), 2), random((6,), 3)
    expected, dy, dx, dw = by_pytorch(x, weight, bias, geometry)
    assert winograd.serves(x, weight.shape, expected.shape[2:], geometry, size)
    for most, long_line in itertools.product((unfolded.MAX_COPY, 1), (winograd_rows.LONG_LINE, 1)):
        monkeypatch.setattr(unfolded, "MAX_COPY", most)  # all images at a time, or one by one
        monkeypatch.setattr(winograd_rows, "LONG_LINE", long_line)  # tiles copied, or seen where they are
        found = by_winograd(x, weight, bias, dy, geometry, size)
        assert found[0].is_contiguous(memory_format=torch.channels_last)
        for one, other in zip(found, (expected, dx, dw), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
        positive = winograd.forward(x, weight, bias, geometry, size, relu=True)
        torch.testing.assert_close(positive, expected.clamp(min=0), rtol=1e-10, atol=1e-10)


# In units of 1e-6 of the largest value: forward, for the input, for the filters; measured: the half of each.
ROUNDING = {
    "winograd_f43": (5, 5, 3),
    "winograd_f53": (8, 9, 4),
    "winograd_f73": (30, 36, 14),
    "winograd_f45": (6, 6, 5),
}


@pytest.mark.parametrize("name", SIZES)
def test_rounding_on_a_layer_of_real_size(name):
    size = SIZES[name]
    pad = size.rows // 2
    geometry = Geometry((size.rows, size.rows), (1, 1), (pad, pad), (1, 1))
    x, weight = random((2, 64, 14, 14), 1), random((64, 64, size.rows, size.rows), 2)
    expected, dy, dx, dw = by_pytorch(x, weight, None, geometry)
    found = by_winograd(x.float(), weight.float(), None, dy.float(), geometry, size)
    for one, other, limit in zip(found, (expected, dx, dw), ROUNDING[name], strict=True):
        assert (one.double() - other).abs().max() <= 1e-6 * limit * other.abs().max()


def test_what_is_not_served():
    geometry = Geometry((3, 3), (1, 1), (1, 1), (1, 1))
    size = SIZES["winograd_f43"]
    x = random((1, 4, 8, 8), 1)

    def serves(x=x, filters=(4, 4, 3, 3), geometry=geometry):
        return winograd.serves(x, filters, (8, 8), geometry, size)

    assert serves()
    assert not serves(x=x.contiguous())
    assert not serves(x=x.half())
    assert not serves(x=x[:0])
    assert not serves(x=x.to("meta"))
    for other in (((3, 3), (2, 1), (1, 1), (1, 1)), ((3, 3), (1, 1), (1, 1), (1, 2)), ((5, 3), (1, 1), (1, 1), (1, 1))):
        assert not serves(geometry=Geometry(*other))
    assert not serves(geometry=Geometry((3,), (1,), (1,), (1,)))
    # More than 16 MiB for the filters, or for one image.
    assert not serves(filters=(2048, 1024, 3, 3))
    wide = torch.empty(1, 8, 8192, 64).permute(0, 3, 1, 2)
    assert not winograd.serves(wide, (64, 64, 3, 3), (8, 8192), geometry, size)
