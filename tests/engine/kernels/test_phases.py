"""Filters that see one channel each, with a dilation: gradients by the pixels of each phase."""

from dataclasses import replace

import pytest
import torch

from mgcaffe.engine.kernels import convolution, onednn, phases, processor, unfolded
from mgcaffe.engine.kernels.convolution_data import BACKWARD_DATA, BackwardData
from mgcaffe.engine.kernels.convolution_weight import BACKWARD_WEIGHT, BackwardWeight
from mgcaffe.engine.kernels.geometry import Geometry

pytestmark = pytest.mark.skipif(not onednn.AVAILABLE, reason="this PyTorch has no oneDNN operators")

LAST = torch.channels_last


def drawn(shape, seed):
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return values.contiguous(memory_format=LAST) if len(shape) == 4 and shape[1] > 1 else values


def walk(kernel, dilation, pad=(0, 0), stride=(1, 1), groups=16):
    return Geometry(kernel, stride, pad, dilation, groups)


def calls(geometry, image, batch=3, dtype=torch.float32):
    """The two calls for a gradient, and what they give by PyTorch's operators in float64."""
    x, weight = drawn((batch, geometry.groups, *image), 1).to(dtype), drawn((geometry.groups, 1, *geometry.kernel), 2)
    leaves = [each.double().contiguous().requires_grad_() for each in (x, weight.to(dtype))]
    steps = geometry.stride, geometry.pad, geometry.dilation, geometry.groups
    y = torch.nn.functional.conv2d(leaves[0], leaves[1], None, *steps)
    dy = drawn(tuple(y.shape), 3).to(dtype)
    of_x = BackwardData(dy, weight.to(dtype), image, geometry)
    of_weight = BackwardWeight(torch.full(weight.shape, float("nan")), 0.0, dy, x, geometry)
    return of_x, of_weight, *torch.autograd.grad(y, leaves, dy.double())


@pytest.mark.parametrize("images", [1, 2, 3], ids="images_{}".format)
@pytest.mark.parametrize(("geometry", "image"), [
    (walk((3, 3), (2, 2), (2, 2)), (8, 6)),
    (walk((3, 3), (2, 2), (2, 2)), (9, 7)),  # phases of different sizes
    (walk((5, 5), (2, 2), (4, 4)), (9, 8)),
    (walk((3, 3), (4, 4), (4, 4)), (9, 10)),
    (walk((3, 3), (6, 6), (6, 6)), (5, 4)),  # phases without pixels
    (walk((3, 5), (3, 2), (3, 0)), (10, 13)),
    (walk((1, 3), (1, 3), (0, 3)), (4, 8)),
    (walk((3, 1), (2, 3), (4, 0)), (4, 8)),
    (walk((2, 4), (2, 2)), (9, 9)),
    (walk((3, 3), (2, 2), (6, 4), groups=5), (3, 4)),
], ids=str)  # fmt: skip
def test_gradients_by_phases_are_pytorchs(geometry, image, images, monkeypatch):
    of_x, of_weight, dx, dweight = calls(geometry, image)
    monkeypatch.setattr(unfolded, "MAX_COPY", images * of_weight.x[0].numel())
    way = BACKWARD_DATA.candidates[phases.PHASES]
    assert way.serves(of_x)
    found = way.run(of_x)
    assert found.is_contiguous(memory_format=LAST)
    torch.testing.assert_close(found, dx.float(), rtol=1e-5, atol=1e-5)
    way = BACKWARD_WEIGHT.candidates[phases.PHASES]
    assert way.serves(of_weight)
    for times, beta in ((1, 0.0), (2, 1.0)):
        way.run(of_weight._replace(beta=beta))
        torch.testing.assert_close(of_weight.total, dweight.float() * times, rtol=1e-5, atol=1e-4)


@pytest.mark.skipif(torch.bfloat16 not in onednn.TYPES, reason="this processor has no products in bfloat16")
def test_in_sixteen_bits_the_inputs_gradient_has_phases_and_the_filters_is_computed_in_float32():
    of_x, of_weight, dx, _ = calls(walk((3, 3), (2, 2), (2, 2)), (9, 33), dtype=torch.bfloat16)
    way = BACKWARD_DATA.candidates[phases.PHASES]
    assert way.serves(of_x)
    torch.testing.assert_close(way.run(of_x).double(), dx, rtol=2.0**-7, atol=1e-2)
    assert BACKWARD_WEIGHT.miscomputed(of_weight)
    assert not BACKWARD_WEIGHT.candidates[phases.PHASES].serves(of_weight)


@pytest.mark.skipif("avx512_bf16" not in processor.flags(), reason="this processor has no instructions for bfloat16")
def test_a_total_of_sixteen_bits_gets_the_filters_gradient_rounded():
    geometry = walk((3, 3), (2, 2), (2, 2))
    _, call, _, dweight = calls(geometry, (5, 33), dtype=torch.bfloat16)
    found = convolution.backward_weight(call.dy, call.x, (16, 1, 3, 3), geometry)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), dweight, rtol=2.0**-8, atol=1e-3)


@pytest.mark.parametrize("geometry", [
    walk((3, 3), (1, 1), (1, 1)),
    walk((3, 3), (2, 2), (2, 2), stride=(2, 2)),
    walk((3, 3), (2, 2), (1, 2)),  # phases of x that belong to several of dy
    walk((1, 1), (2, 2)),
    walk((3, 3), (2, 2), (2, 2), groups=8),  # two channels each
    walk((3, 3), (2, 2), (2, 2), groups=1),
], ids=str)  # fmt: skip
def test_other_filters_are_computed_otherwise(geometry):
    dy = drawn((2, 16, *geometry.output_size((9, 9))), 2)
    assert not phases.serves(dy, 16, geometry)


def test_more_filters_than_channels_and_other_formats_are_computed_otherwise():
    geometry = walk((3, 3), (2, 2), (2, 2))
    dy, twice = (drawn((2, channels, 9, 9), 2) for channels in (16, 32))
    assert phases.serves(dy, 16, geometry)
    assert not phases.serves(twice, 16, geometry)
    assert not phases.serves(dy.contiguous(), 16, geometry)
    assert not phases.serves(dy.double(), 16, geometry)
    assert not phases.serves(dy[:0], 16, geometry)
    call = BackwardWeight(torch.empty(16, 1, 3, 3), 0.0, dy, drawn((2, 16, 9, 9), 1).contiguous(), geometry)
    assert not BACKWARD_WEIGHT.candidates[phases.PHASES].serves(call)


@pytest.mark.parametrize(("batch", "channels", "image", "geometry", "suits"), [
    (8, 672, 14, walk((5, 5), (2, 2), (4, 4)), True),
    (1, 672, 14, walk((5, 5), (2, 2), (4, 4)), True),
    (8, 256, 33, walk((3, 3), (4, 4), (4, 4)), True),
    (1, 72, 28, walk((3, 3), (2, 2), (2, 2)), False),
    (8, 8, 64, walk((3, 3), (2, 2), (2, 2)), False),  # few channels
    (1, 256, 33, walk((3, 3), (6, 6), (6, 6)), False),  # many phases
], ids=str)  # fmt: skip
def test_by_rule_each_phase_is_worth_its_copies(batch, channels, image, geometry, suits):
    geometry = replace(geometry, groups=channels)
    x = torch.empty(batch, channels, image, image).contiguous(memory_format=LAST)
    weight = torch.empty(channels, 1, *geometry.kernel)
    of_x, of_weight = BackwardData(x, weight, (image, image), geometry), BackwardWeight(weight, 0.0, x, x, geometry)
    for operation, call in ((BACKWARD_DATA, of_x), (BACKWARD_WEIGHT, of_weight)):
        assert (operation.by_rule(call).name == phases.PHASES) == suits
