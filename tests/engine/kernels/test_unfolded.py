"""Products over windows that are copied side by side, against PyTorch's convolutions."""

import pytest
import torch

from mgcaffe.engine.kernels import convolution, onednn, unfolded
from mgcaffe.engine.kernels.choice.choices import Forced
from mgcaffe.engine.kernels.convolution_weight import BACKWARD_WEIGHT, BackwardWeight
from mgcaffe.engine.kernels.geometry import Geometry
from mgcaffe.engine.parameter import Parameter

GEOMETRIES = [
    Geometry((5, 5), (1, 1), (0, 0), (1, 1)),
    Geometry((3, 2), (2, 1), (1, 0), (1, 1)),
    Geometry((3, 3), (1, 2), (2, 1), (2, 1)),
    Geometry((1, 1), (1, 1), (0, 0), (1, 1)),
    Geometry((2, 3), (3, 3), (0, 2), (1, 2)),
]


def weight_gradient(name, dy, x, weight, geometry):
    """Return the gradient by the candidate of this name, and whether it was used."""
    parameter = Parameter(weight.shape)
    parameter.diff = torch.full(weight.shape, float("nan"))
    forced = Forced(name)
    convolution.add_backward_weight(parameter, dy, x, geometry, forced)
    return parameter.diff, bool(forced.used)


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
@pytest.mark.parametrize("channels_last_input", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
def test_gradient_is_pytorchs(geometry, channels_last_input, channels):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(3, channels + 1, 11, 12, generator=generator)[:, 1:]  # a view with gaps
    if channels_last_input:
        x = x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    weight = torch.randn(4, channels, *geometry.kernel, generator=generator)
    walk = geometry.stride, geometry.pad, geometry.dilation
    y = torch.nn.functional.conv2d(x, weight, None, *walk)
    dy = torch.randn(y.shape, generator=generator).contiguous(memory_format=torch.channels_last)
    expected = torch.nn.grad.conv2d_weight(x, weight.shape, dy, *walk)
    for name in ("across", "across_mm"):
        gradient, used = weight_gradient(name, dy, x, weight, geometry)
        assert used
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-4)
    by_rule = convolution.backward_weight(dy, x, weight.shape, geometry)
    torch.testing.assert_close(by_rule, expected, rtol=1e-4, atol=1e-4)


def test_windows_as_wide_as_the_one_image_are_copied_too():
    """Their rows overlap in memory, which oneDNN's products refuse."""
    x = torch.randn(1, 4, 6, 3).contiguous(memory_format=torch.channels_last)
    geometry = Geometry((3, 3), (1, 1), (0, 0), (1, 1))
    rows = unfolded.windows_below(x, (4, 1), geometry)
    assert rows.is_contiguous()
    dy, shape = torch.randn(1, 5, 4, 1).contiguous(memory_format=torch.channels_last), torch.Size((5, 4, 3, 3))
    assert dy.stride(1) == 1
    expected = torch.nn.grad.conv2d_weight(x, shape, dy)
    for name in ("windows_mm", *(["windows"] if onednn.AVAILABLE else [])):
        found, was_used = weight_gradient(name, dy, x, torch.empty(shape), geometry)
        assert was_used
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("geometry", [each for each in GEOMETRIES if each.kernel != (1, 1)], ids=str)
@pytest.mark.parametrize("total_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("beta", [0.0, 1.0])
@pytest.mark.parametrize("name", ["row_windows", *(["windows"] if onednn.AVAILABLE else [])])
def test_windows_of_a_row_add_to_a_total_of_any_format(geometry, total_format, beta, name):
    last = torch.channels_last
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(4, 4, 11, 12, generator=generator).contiguous(memory_format=last)[1:, :3]  # a view with gaps
    total = torch.randn(4, 3, *geometry.kernel, generator=generator).contiguous(memory_format=total_format)
    walk = geometry.stride, geometry.pad, geometry.dilation
    out = geometry.output_size(x.shape[2:])
    dy = torch.randn(3, 4, *out, generator=generator).contiguous(memory_format=last)
    expected = beta * total + torch.nn.grad.conv2d_weight(x, total.shape, dy, *walk)
    if beta == 0:
        total.fill_(float("nan"))
    call = BackwardWeight(total, beta, dy, x, geometry)
    candidate = BACKWARD_WEIGHT.candidates[name]
    assert candidate.serves(call)
    candidate.run(call)
    torch.testing.assert_close(total, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_windows_by_row_are_those_of_all_rows_also_in_a_part_of_a_batch(geometry):
    x = torch.randn(4, 3, 11, 12).contiguous(memory_format=torch.channels_last)[2:]
    out = geometry.output_size(x.shape[2:])
    parts = torch.cat(list(unfolded.windows_by_row(x, out, geometry)), 1)
    assert torch.equal(parts, unfolded.windows_below(x.clone(memory_format=torch.preserve_format), out, geometry))


def test_folding_is_the_adjoint_of_unfolding():
    for geometry in GEOMETRIES:
        x = torch.randn(2, 3, 9, 8).contiguous(memory_format=torch.channels_last)
        out = geometry.output_size(x.shape[2:])
        rows = unfolded.windows_below(x, out, geometry)
        others = torch.randn_like(rows)
        back = unfolded.fold(others, x.shape, out, geometry)
        assert back.is_contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close((rows * others).sum(), (x * back).sum(), rtol=1e-4, atol=1e-4)


def test_windows_that_need_too_much_memory_are_left_to_others():
    geometry = Geometry((3, 3), (1, 1), (0, 0), (1, 1))
    dy = torch.empty(64, 4, 222, 222).contiguous(memory_format=torch.channels_last)
    assert not unfolded.serves(dy, 1, 64 * 222 * 222, geometry)
    assert unfolded.serves(dy, 1, 222 * 222, geometry)
