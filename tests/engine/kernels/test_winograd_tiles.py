"""Convolutions by Winograd filtering along both axes, against PyTorch: pieces, borders, groups, and rounding."""

import pytest
import torch

from mgcaffe.engine.kernels import convolution, winograd, winograd_grid, winograd_tiles
from mgcaffe.engine.kernels.choice.choices import Forced
from mgcaffe.engine.kernels.convolution_data import BACKWARD_DATA, BackwardData
from mgcaffe.engine.kernels.geometry import Geometry
from mgcaffe.engine.kernels.winograd_matrices import Size
from mgcaffe.engine.parameter import Parameter

SIZES = {winograd_tiles.name(size): size for size in winograd_tiles.SIZES}
IMAGE = (43, 40)
"""Has 110 tiles of F(4 x 4, 5 x 5) where y has two rows and columns less; they are summed up in two parts."""


def random(shape, seed):
    values = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return values.contiguous(memory_format=torch.channels_last) if len(shape) == 4 else values


def by_pytorch(x, weight, bias, geometry):
    """Return y, a gradient dy of it, and what it gives for x and the filters."""
    walk = (geometry.stride, geometry.pad, geometry.dilation, geometry.groups)
    y = torch.nn.functional.conv2d(x, weight, bias, *walk)
    dy = random(y.shape, 4)
    dx = torch.nn.grad.conv2d_input(x.shape, weight, dy, *walk)
    return y, dy, dx, torch.nn.grad.conv2d_weight(x, weight.shape, dy, *walk)


def of_filters(dy, x, geometry, size, kept=None):
    """Return the gradient of filters, which replaces what was there."""
    shape = (dy.shape[1], x.shape[1] // geometry.groups, size.rows, size.rows)
    total = torch.full(shape, float("nan"), dtype=x.dtype)
    winograd_tiles.add_backward_weight(total, 0.0, dy, x, geometry, size, kept)
    return total


def by_tiles(x, weight, bias, dy, geometry, size):
    """Return y and the gradients of x and the filters."""
    return (
        winograd_tiles.forward(x, weight, bias, geometry, size),
        winograd_tiles.backward_data(dy, weight, geometry, size),
        of_filters(dy, x, geometry, size),
    )


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize(
    ("height", "width", "pad", "groups"),
    [
        (12, 12, (0, 0), 1), (9, 6, (2, 2), 2), (1, 5, (2, 0), 1), (5, 11, (0, 2), 3), (13, 7, (1, 1), 1),
        (4, 3, (4, 3), 2),
    ],
)  # fmt: skip
def test_all_directions_are_pytorchs(monkeypatch, name, height, width, pad, groups):
    size = SIZES[name]
    pad = tuple(min(each, size.rows - 1) for each in pad)
    pad = (max(pad[0], (size.rows - height + 1) // 2), pad[1])  # at least one row of output
    geometry = Geometry((size.rows, size.rows), (1, 1), pad, (1, 1), groups)
    shape = (12, 6 // groups, size.rows, size.rows)
    x, weight, bias = random((5, 6, height, width), 1), random(shape, 2), random((12,), 3)
    expected, dy, dx, dw = by_pytorch(x, weight, bias, geometry)
    assert winograd_tiles.serves(x, weight.shape, expected.shape[2:], geometry, size)
    for most in (winograd_grid.CACHED, 1):  # all images at a time, or one by one
        monkeypatch.setattr(winograd_grid, "CACHED", most)
        found = by_tiles(x, weight, bias, dy, geometry, size)
        assert all(each.is_contiguous(memory_format=torch.channels_last) for each in found[:2])
        for one, other in zip(found, (expected, dx, dw), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
        positive = winograd_tiles.forward(x, weight, None, geometry, size, relu=True)
        torch.testing.assert_close(positive, (expected - bias.view(-1, 1, 1)).clamp(min=0), rtol=1e-9, atol=1e-9)


# In units of 1e-6 of the largest value: forward, for the input, for the filters; measured: the half of each.
ROUNDING = {
    "winograd_tiles_f23": (0.8, 0.6, 1.1),
    "winograd_tiles_f43": (4, 4, 3),
    "winograd_tiles_f45": (14, 14, 15),
}


@pytest.mark.parametrize("name", SIZES)
def test_rounding_on_a_layer_of_real_size(name):
    size = SIZES[name]
    pad = size.rows // 2
    geometry = Geometry((size.rows, size.rows), (1, 1), (pad, pad), (1, 1))
    x, weight = random((2, 64, 14, 14), 1), random((64, 64, size.rows, size.rows), 2)
    expected, dy, dx, dw = by_pytorch(x, weight, None, geometry)
    found = by_tiles(x.float(), weight.float(), None, dy.float(), geometry, size)
    for one, other, limit in zip(found, (expected, dx, dw), ROUNDING[name], strict=True):
        assert (one.double() - other).abs().max() <= 1e-6 * limit * other.abs().max()


def test_few_tiles_are_summed_up_at_a_time_where_there_are_many_points():
    """Sums of 784 tiles, three times LeNet's, round by 7e-6 of the largest value in parts; by MKL at once 11e-6."""
    x, dy = random((16, 8, 28, 28), 1), random((16, 8, 28, 28), 2)
    geometry = Geometry((5, 5), (1, 1), (2, 2), (1, 1))
    expected = torch.nn.grad.conv2d_weight(x, (8, 8, 5, 5), dy, padding=2)
    found = of_filters(dy.float(), x.float(), geometry, SIZES["winograd_tiles_f45"])
    assert (found.double() - expected).abs().max() <= 9e-6 * expected.abs().max()


def test_parts_of_a_sum_are_products_of_their_own(monkeypatch):
    """784 tiles are 14 parts of 56, each with 64 points."""
    x, dy = random((16, 8, 28, 28), 1), random((16, 8, 28, 28), 2)
    multiply, batches = torch.bmm, []
    monkeypatch.setattr(torch, "bmm", lambda *args, **options: batches.append(args) or multiply(*args, **options))
    geometry = Geometry((5, 5), (1, 1), (2, 2), (1, 1))
    of_filters(dy, x, geometry, SIZES["winograd_tiles_f45"])
    assert (14 * 64, 8, 56) in [left.shape for left, _ in batches]


@pytest.mark.parametrize(
    ("size", "tiles", "values", "parts"),
    [
        ("winograd_tiles_f45", 256, 1000, 4),
        ("winograd_tiles_f45", 7, 1000, 1),
        ("winograd_tiles_f45", 67, 1000, 1),
        ("winograd_tiles_f45", 256, 1 << 14, 4),
        ("winograd_tiles_f45", 256, (1 << 14) + 1, 1),
        ("winograd_tiles_f43", 256, 1000, 1),
    ],
)
def test_in_how_many_parts_sums_are_made(size, tiles, values, parts):
    """Those of 8 to 64 tiles, as long as all parts have at most 16 MiB."""
    assert winograd_tiles.count_parts(tiles, SIZES[size].points ** 2, values) == parts


@pytest.mark.parametrize("most", [winograd_grid.CACHED, 1])
@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("groups", [1, 2])
def test_both_gradients_at_once_are_those_made_apart(monkeypatch, name, groups, most):
    """With the same bits, and from one transformation of dy for each piece of the images and each group."""
    monkeypatch.setattr(winograd_grid, "CACHED", most)
    size, made = SIZES[name], []
    transform = winograd_grid.given_tiles
    monkeypatch.setattr(winograd_grid, "given_tiles", lambda *args: made.append(1) or transform(*args))
    geometry = Geometry((size.rows, size.rows), (1, 1), (1, 1), (1, 1), groups)
    x, dy = random((3, 4, *IMAGE), 1).float(), random((3, 6, *geometry.output_size(IMAGE)), 2).float()
    weight, results = Parameter((6, 4 // groups, size.rows, size.rows)), []
    weight.data = random(weight.shape, 3).float()
    for apart in (False, True):
        weight.diff, weight.fresh = torch.zeros_like(weight.data), True
        made.clear()
        if apart:
            convolution.add_backward_weight(weight, dy, x, geometry, Forced(name))
            dx = convolution.backward_data(dy, weight.data, IMAGE, geometry, Forced(name))
        else:
            dx = convolution.backward(weight, dy, x, geometry, Forced(name))
        results.append((dx, weight.diff, len(made)))
    (dx, dw, once), (dx_apart, dw_apart, twice) = results
    assert torch.equal(dx, dx_apart) and torch.equal(dw, dw_apart)
    assert once == groups * (3 if most == 1 else 1) and twice == 2 * once


@pytest.mark.parametrize("most", [winograd_grid.CACHED, 1])
@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("of_both", [False, True])
def test_tiles_that_forward_keeps_give_the_same_gradient(monkeypatch, name, groups, most, of_both):
    """They are transformed once, also where they come in pieces."""
    monkeypatch.setattr(winograd_grid, "CACHED", most)
    size, made = SIZES[name], []
    transform = winograd_grid.seen_tiles
    monkeypatch.setattr(winograd_grid, "seen_tiles", lambda *args: made.append(1) or transform(*args))
    geometry = Geometry((size.rows, size.rows), (1, 1), (1, 1), (1, 1), groups)
    x, weight = random((3, 4, *IMAGE), 1).float(), random((6, 4 // groups, size.rows, size.rows), 2).float()
    dy = random((3, 6, *geometry.output_size(IMAGE)), 3).float()
    expected = of_filters(dy, x, geometry, size)
    by_pytorch = torch.nn.grad.conv2d_weight(x, weight.shape, dy, padding=1, groups=groups)
    torch.testing.assert_close(expected, by_pytorch, rtol=1e-3, atol=1e-3)
    made.clear()
    kept = winograd_tiles.Tiles()
    winograd_tiles.forward(x, weight, None, geometry, size, kept=kept)
    found = torch.full(weight.shape, float("nan"))
    if of_both:
        winograd_tiles.backward(found, 0.0, dy, x, weight, geometry, size, kept)
    else:
        found = of_filters(dy, x, geometry, size, kept)
    assert torch.equal(found, expected)
    assert len(made) == len(kept.seen) == groups * (3 if most == 1 else 1)


def test_of_both_gradients_that_of_the_filters_is_added_before_the_other_takes_memory(monkeypatch):
    x, weight, dy = random((3, 4, 9, 8), 1), random((6, 4, 3, 3), 2), random((3, 6, 9, 8), 3)
    total, found, data = torch.zeros_like(weight), [], winograd_tiles._Data
    monkeypatch.setattr(winograd_tiles, "_Data", lambda *args: found.append(total.clone()) or data(*args))
    geometry = Geometry((3, 3), (1, 1), (1, 1), (1, 1))
    winograd_tiles.backward(total, 0.0, dy, x, weight, geometry, SIZES["winograd_tiles_f43"])
    assert total.any() and torch.equal(found[0], total)


@pytest.mark.parametrize("images", [winograd_grid.CACHED, 1])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("name", SIZES)
def test_many_sums_are_made_for_some_outputs_at_a_time(monkeypatch, name, groups, images):
    """They give the gradient that all at once give, and are added to what there was."""
    size, channels = SIZES[name], 8
    geometry = Geometry((size.rows, size.rows), (1, 1), (1, 1), (1, 1), groups)
    x, weight = random((3, channels, 9, 8), 1), random((150 * groups, channels // groups, size.rows, size.rows), 2)
    dy = random((3, len(weight), *geometry.output_size((9, 8))), 3)
    expected = of_filters(dy, x, geometry, size)
    multiply, outputs = torch.bmm, []
    monkeypatch.setattr(torch, "bmm", lambda *args, **options: outputs.append(args[0].shape[1]) or multiply(*args))
    monkeypatch.setattr(winograd_tiles.unfolded, "MAX_COPY", size.points**2 * channels // groups * 150)
    monkeypatch.setattr(winograd_grid, "CACHED", images)
    total = torch.ones_like(weight)
    winograd_tiles.add_backward_weight(total, 1.0, dy, x, geometry, size)
    torch.testing.assert_close(total, 1 + expected, rtol=1e-9, atol=1e-9)
    pieces = groups * (3 if images == 1 else 1)
    assert [outputs.count(each) for each in (64, 22, 150)] == [2 * pieces, pieces, 0]


@pytest.mark.parametrize(
    ("size", "channels", "outputs", "at_a_time"),
    [
        ("f43", 256, 256, 256),
        ("f23", 512, 511, 511),
        ("f23", 512, 512, 128),
        ("f43", 512, 512, 64),
        ("f45", 2048, 512, 64),
    ],
)
def test_for_how_many_outputs_sums_are_made(size, channels, outputs, at_a_time):
    """For all where that takes less than 16 MiB, else for as many as take 4 MiB, and at least 64."""
    tiling = winograd_grid.Tiling(SIZES[f"winograd_tiles_{size}"], channels, outputs, (14, 14))
    assert winograd_tiles.outputs_at_a_time(tiling) == at_a_time


def test_kept_tiles_of_another_size_are_passed_over():
    small, large = SIZES["winograd_tiles_f23"], SIZES["winograd_tiles_f43"]
    geometry = Geometry((3, 3), (1, 1), (1, 1), (1, 1))
    x, weight, dy = random((3, 4, 9, 8), 1), random((6, 4, 3, 3), 2), random((3, 6, 9, 8), 3)
    kept = winograd_tiles.Tiles()
    winograd_tiles.forward(x, weight, None, geometry, large, kept=kept)
    found = of_filters(dy, x, geometry, small, kept)
    assert torch.equal(found, of_filters(dy, x, geometry, small))
    winograd_tiles.forward(x, weight, None, geometry, small, kept=kept)
    assert (kept.size, len(kept.seen)) == (small, 1)  # not those of before as well


def test_many_tiles_are_not_kept(monkeypatch):
    """Three images of 6 tiles with 36 values for each of 4 channels are 2592 values."""
    geometry = Geometry((3, 3), (1, 1), (1, 1), (1, 1), 2)
    x, weight = random((3, 4, 9, 8), 1), random((6, 2, 3, 3), 2)
    for most, count in ((2592, 2), (2591, 0)):
        monkeypatch.setattr(winograd_tiles, "KEPT", most)
        kept = winograd_tiles.Tiles()
        winograd_tiles.forward(x, weight, None, geometry, SIZES["winograd_tiles_f43"], kept=kept)
        assert len(kept.seen) == count


@pytest.mark.parametrize(("module", "size", "fewest"), [(winograd_tiles, Size(4, 3), 3), (winograd, Size(7, 3), 2)])
def test_what_a_large_image_copies_is_at_most_what_the_batch_has(module, size, fewest):
    """One of 112x112 with 128 channels copies 27.6 MiB by tiles, 21.9 by rows; x and y have 12.25 MiB an image."""
    geometry = Geometry((3, 3), (1, 1), (1, 1), (1, 1))
    for images in (fewest - 1, fewest):
        x = torch.empty(images, 128, 112, 112).contiguous(memory_format=torch.channels_last)
        assert module.serves(x, (128, 128, 3, 3), (112, 112), geometry, size) == (images == fewest)


def test_what_a_large_image_copies_is_at_most_64_mib():
    geometry = Geometry((3, 3), (1, 1), (1, 1), (1, 1))
    for length, is_served in ((240, True), (256, False)):
        x = torch.empty(1, 64, length, length).contiguous(memory_format=torch.channels_last).expand(9, -1, -1, -1)
        assert winograd_tiles.serves(x, (64, 64, 3, 3), (length, length), geometry, Size(4, 3)) == is_served


def test_what_is_not_served():
    size = SIZES["winograd_tiles_f45"]
    x, out = random((1, 4, 8, 8), 1), (8, 8)

    def serves(x=x, filters=(4, 4, 5, 5), out=out, geometry=((5, 5), (1, 1), (2, 2), (1, 1))):
        return winograd_tiles.serves(x, filters, out, Geometry(*geometry), size)

    assert serves()
    assert not serves(x=x.contiguous())
    assert not serves(x=x.half())
    assert not serves(x=x[:0])
    assert not serves(x=x.to("meta"))
    for other in (
        ((5, 3), (1, 1), (2, 1), (1, 1)), ((5, 5), (2, 1), (2, 2), (1, 1)), ((5, 5), (1, 1), (2, 2), (1, 2)),
        ((5, 5), (1, 1), (2, 5), (1, 1)), ((3, 3), (1, 1), (1, 1), (1, 1)), ((5,), (1,), (2,), (1,)),
    ):  # fmt: skip
        assert not serves(geometry=other)
    # More than 16 MiB for the filters, or for the tiles of y before and after.
    assert not serves(filters=(1024, 128, 5, 5))
    assert serves(filters=(4, 256, 5, 5), out=(40, 40))
    assert not serves(filters=(4, 256, 5, 5), out=(48, 48))


@pytest.mark.parametrize(
    ("images", "length", "outputs", "is_served"),
    [
        (1, 7, 227, True), (1, 7, 228, False), (7, 14, 512, False), (8, 14, 512, True), (64, 14, 910, True),
        (64, 14, 911, False),
    ],
)  # fmt: skip
def test_filters_take_16_mib_or_twice_the_tiles_of_all_images_up_to_64_mib(images, length, outputs, is_served):
    """Filters of 512 channels to 512 have 36 MiB so, and tiles of 14x14 between these 2.25 MiB an image."""
    x = torch.empty(images, 512, length, length).contiguous(memory_format=torch.channels_last)
    geometry = Geometry((3, 3), (1, 1), (1, 1), (1, 1))
    size = SIZES["winograd_tiles_f43"]
    assert winograd_tiles.serves(x, (outputs, 512, 3, 3), (length, length), geometry, size) == is_served


@pytest.mark.parametrize(
    ("outputs", "channels", "pad", "most"), [(2, 256, 1, 60), (256, 2, 1, 84), (64, 64, 0, 120), (64, 64, 2, 120)]
)
def test_the_gradient_for_x_is_served_by_the_tiles_of_dy(outputs, channels, pad, most):
    """16 MiB are 227 tiles to 256 channels, 451 from 256 to 2, and 910 from 64 to 64."""
    geometry = Geometry((3, 3), (1, 1), (pad, pad), (1, 1))
    weight = torch.empty(outputs, channels, 3, 3)
    for length, is_served in ((most, True), (most + 8, False)):
        dy = torch.empty(1, outputs, length, length).contiguous(memory_format=torch.channels_last)
        call = BackwardData(dy, weight, geometry.transposed_size((length, length)), geometry)
        assert BACKWARD_DATA.candidates["winograd_tiles_f43"].serves(call) == is_served
