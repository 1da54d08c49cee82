"""Filters that see one channel each: gradients by groups of columns, the bias's beside them, and in 16 bits."""

from dataclasses import replace

import pytest
import torch

from mgcaffe.engine.kernels import convolution, depthwise, onednn, processor, unfolded
from mgcaffe.engine.kernels.choice.choices import RULES, Forced
from mgcaffe.engine.kernels.convolution_data import BACKWARD_DATA, BackwardData
from mgcaffe.engine.kernels.convolution_weight import BACKWARD_WEIGHT, BackwardWeight
from mgcaffe.engine.kernels.geometry import Geometry
from mgcaffe.engine.layer_context import LayerContext
from mgcaffe.engine.parameter import Parameter
from tests.support.layerkit import forward_backward, make_layer

pytestmark = pytest.mark.skipif(not onednn.AVAILABLE, reason="this PyTorch has no oneDNN operators")

LAST = torch.channels_last


def drawn(shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def walk(kernel, stride=(1, 1), pad=(0, 0), dilation=(1, 1), groups=16):
    return Geometry(kernel, stride, pad, dilation, groups)


def operands(geometry, image=(9, 8), batch=3):
    """x, the filters, dy, and by PyTorch's operators in float64 the gradients of x and the filters."""
    channels = geometry.groups
    x = drawn((batch, channels, *image), 1).contiguous(memory_format=LAST)
    weight = drawn((channels, 1, *geometry.kernel), 2)
    leaves = [each.double().contiguous().requires_grad_() for each in (x, weight)]
    walk = geometry.stride, geometry.pad, geometry.dilation, geometry.groups
    y = torch.nn.functional.conv2d(leaves[0], leaves[1], None, *walk)
    dy = drawn(y.shape, 3).contiguous(memory_format=LAST)
    return x, weight, dy, *torch.autograd.grad(y, leaves, dy.double())


@pytest.mark.parametrize("images", [1, 2, 3], ids="images_{}".format)
@pytest.mark.parametrize("geometry", [
    walk((3, 3), pad=(1, 1)), walk((5, 5), pad=(2, 2)), walk((7, 7), pad=(3, 3)), walk((11, 11), pad=(5, 5)),
    walk((4, 4), pad=(1, 1)), walk((1, 5), pad=(0, 2)), walk((5, 2)), walk((2, 8)), walk((5, 5), (2, 2), (2, 2)),
    walk((7, 6), (2, 3), (3, 1)), walk((1, 4), (3, 5), (0, 1)), walk((5, 5), pad=(4, 7)), walk((3, 10), pad=(1, 12)),
    walk((5, 5), pad=(2, 2), groups=5), walk((5, 4), (1, 8), (2, 2), groups=24),
], ids=str)  # fmt: skip
def test_the_gradient_by_columns_is_pytorchs(geometry, images, monkeypatch):
    x, weight, dy, _, expected = operands(geometry)
    monkeypatch.setattr(unfolded, "MAX_COPY", images * x[0].numel())
    total, bias = torch.full(weight.shape, float("nan")), Parameter((len(weight),))
    bias.diff = torch.full(bias.shape, float("nan"))
    call = BackwardWeight(total, 0.0, dy, x, geometry, bias=bias)
    way = BACKWARD_WEIGHT.candidates[depthwise.COLUMNS]
    assert way.serves(call)
    for times, beta in ((1, 0.0), (2, 1.0)):
        way.run(call._replace(beta=beta))
        torch.testing.assert_close(total, expected.float() * times, rtol=1e-5, atol=1e-4)
        torch.testing.assert_close(bias.diff, dy.sum((0, 2, 3)) * times, rtol=1e-5, atol=1e-4)


def test_a_scripts_default_type_does_not_matter():
    x, weight, dy, _, expected = operands(walk((5, 5), pad=(2, 2)))
    total = torch.zeros(weight.shape)
    torch.set_default_dtype(torch.float64)
    try:
        depthwise.add_backward_weight(total, 0.0, dy, x, walk((5, 5), pad=(2, 2)), None)
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(total, expected.float(), rtol=1e-5, atol=1e-4)


def test_an_image_smaller_than_the_filter_and_its_padding_counts_where_it_lies():
    for image in ((2, 2), (1, 3), (3, 1)):
        x, weight, dy, _, expected = operands(walk((5, 7), pad=(3, 4)), image)
        total = torch.zeros(weight.shape)
        depthwise.add_backward_weight(total, 0.0, dy, x, walk((5, 7), pad=(3, 4)), None)
        torch.testing.assert_close(total, expected.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("batch", "channels", "image", "geometry", "suits"), [
    (1, 8, 4, walk((3, 3)), True),  # one call
    (8, 72, 28, walk((4, 4), pad=(1, 1)), True),
    (8, 72, 28, walk((4, 4), (2, 2), (1, 1)), False),  # copies for two sums each
    (8, 144, 56, walk((5, 5), (2, 2), (2, 2)), True),
    (1, 72, 28, walk((5, 5), (2, 2), (2, 2)), False),  # 0.4 ms
    (1, 672, 14, walk((5, 5), pad=(2, 2)), True),
    (1, 480, 4, walk((5, 5), pad=(2, 2)), True),  # fewer rows than the filter has
    (8, 3, 64, walk((5, 5), pad=(2, 2)), False),  # few channels
], ids=str)  # fmt: skip
def test_the_rule_weighs_copies_against_sums(batch, channels, image, geometry, suits):
    assert (rule(batch, channels, image, geometry, torch.float32) == depthwise.COLUMNS) == suits


@pytest.mark.skipif(torch.bfloat16 not in onednn.TYPES, reason="this processor has no products in bfloat16")
@pytest.mark.parametrize(("channels", "image", "geometry", "suits"), [
    (72, 28, walk((5, 5), (2, 2), (2, 2)), True),
    (21, 128, walk((4, 4), (2, 2), (1, 1)), True),
    (21, 128, walk((8, 8), (4, 4), (2, 2)), False),
    (21, 128, walk((16, 16), (8, 8), (4, 4)), False),  # as in learned upsampling
    (21, 500, walk((64, 64), (32, 32), (16, 16)), False),
], ids=str)  # fmt: skip
def test_in_sixteen_bits_large_strides_are_left_to_onednn(channels, image, geometry, suits):
    assert (rule(1, channels, image, geometry, torch.bfloat16) == depthwise.COLUMNS) == suits


def rule(batch, channels, image, geometry, dtype):
    geometry = replace(geometry, groups=channels)
    x = torch.empty(batch, channels, image, image, dtype=dtype).contiguous(memory_format=LAST)
    dy = torch.empty(batch, channels, *geometry.output_size((image, image)), dtype=dtype).contiguous(memory_format=LAST)
    total = torch.empty(channels, 1, *geometry.kernel)
    return BACKWARD_WEIGHT.by_rule(BackwardWeight(total, 0.0, dy, x, geometry)).name


@pytest.mark.parametrize("geometry", [
    walk((5, 5), pad=(2, 2), groups=8),  # two channels each
    walk((5, 5), pad=(4, 4), dilation=(2, 2)),
    walk((1, 1)),
    walk((1, 1), stride=(2, 2)),
    walk((5, 5), pad=(2, 2), groups=1),
], ids=str)  # fmt: skip
def test_other_filters_are_computed_otherwise(geometry):
    x = drawn((2, 16, 9, 9), 1).contiguous(memory_format=LAST)
    dy = drawn((2, 16, *geometry.output_size((9, 9))), 2).contiguous(memory_format=LAST)
    assert not depthwise.serves(dy, x, geometry)


def test_more_filters_than_channels_and_other_formats_are_computed_otherwise():
    geometry = walk((5, 5), pad=(2, 2))
    x, twice = (drawn((2, channels, 9, 9), 1).contiguous(memory_format=LAST) for channels in (16, 32))
    assert depthwise.serves(x, x, geometry)
    assert not depthwise.serves(twice, x, geometry)
    assert not depthwise.serves(x, x.contiguous(), geometry)
    assert not depthwise.serves(x.contiguous(), x, geometry)
    assert not depthwise.serves(x.double(), x.double(), geometry)
    assert not depthwise.serves(x[:0], x[:0], geometry)


def test_groups_of_columns_are_few_and_as_equal_as_can_be():
    found = {width: depthwise._widths(width) for width in (4, 5, 6, 7, 8, 10)}
    assert found == {4: [2, 2], 5: [3, 2], 6: [3, 3], 7: [3, 2, 2], 8: [3, 3, 2], 10: [3, 3, 2, 2]}


def layer_of(kernel, context, fields):
    text = "name: 'l' type: 'DepthwiseConvolution' bottom: 'x' top: 'y' convolution_param {"
    filler = "weight_filler { type: 'gaussian' std: 1 }"
    return make_layer(f"{text} kernel_size: {kernel} {fields} {filler} }}", [(2, 16, 9, 9)], context=context)[0]


def ran(layer, monkeypatch):
    """The layer's gradients of bottom and parameters, and how often the bias's were added up by themselves."""
    alone = []
    add = convolution.add_backward_bias
    monkeypatch.setattr(convolution, "add_backward_bias", lambda *given: (alone.append(1), add(*given)))
    x = drawn((2, 16, 9, 9), 1).contiguous(memory_format=LAST)
    dy = drawn(layer.reshape([x.shape])[0], 2).contiguous(memory_format=LAST)
    _, (dx,) = forward_backward(layer, [x], [dy])
    return dx, [each.diff for each in layer.parameters], len(alone), dy


@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize(("frozen", "sums_apart"), [((), 0), ((0,), 1), ((1,), 0)], ids=["none", "filters", "bias"])
def test_the_bias_is_summed_in_the_call_for_the_filters(kernel, frozen, sums_apart, monkeypatch):
    monkeypatch.setattr(depthwise, "_FEWEST_SUMS", 1)
    layer = layer_of(kernel, LayerContext(), "pad: 1")
    for number in frozen:
        layer.parameters[number].wanted = False
    _, (of_filters, of_bias), apart, dy = ran(layer, monkeypatch)
    assert apart == sums_apart
    assert of_filters.any() == (0 not in frozen)
    expected = torch.zeros(16) if 1 in frozen else dy.sum((0, 2, 3))
    torch.testing.assert_close(of_bias, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", list(BACKWARD_WEIGHT.candidates))
def test_the_bias_is_summed_whatever_computes_the_filters_gradient(name, monkeypatch):
    layer = layer_of(3, LayerContext(choices=Forced(name)), "pad: 1")
    _, (_, of_bias), apart, dy = ran(layer, monkeypatch)
    assert apart == (name not in (depthwise.COLUMNS, *_unserved(layer, dy)))
    torch.testing.assert_close(of_bias, dy.sum((0, 2, 3)), rtol=1e-5, atol=1e-5)


def _unserved(layer, dy):
    """The candidates that cannot compute it, for which the rule's does."""
    call = BackwardWeight(layer.parameters[0].diff, 0.0, dy, dy, layer.geometry)
    serving = {each.name for each in BACKWARD_WEIGHT.serving(call)}
    return set(BACKWARD_WEIGHT.candidates) - serving


def test_a_bottom_with_missing_zeros_gets_its_bias_summed(monkeypatch):
    layer = layer_of(10, LayerContext(), "stride: 3")
    _, (of_filters, of_bias), apart, dy = ran(layer, monkeypatch)
    assert apart == 1
    assert of_filters.any()
    torch.testing.assert_close(of_bias, dy.sum((0, 2, 3)), rtol=1e-5, atol=1e-5)


# Without them PyTorch's own sums are of 16 bits in part, and the net computes such products in float32.
@pytest.mark.skipif("avx512_bf16" not in processor.flags(), reason="this processor has no instructions for bfloat16")
@pytest.mark.parametrize("geometry", [
    walk((3, 3), pad=(1, 1)), walk((5, 5), pad=(2, 2)), walk((3, 3), (2, 2), (1, 1)), walk((5, 5), (2, 2), (2, 2)),
    walk((7, 5), (4, 7), (3, 2)),
], ids=str)  # fmt: skip
def test_gradients_in_sixteen_bits_are_rounded_once(geometry, monkeypatch):
    monkeypatch.setattr(unfolded, "MAX_COPY", 1)  # one image at a time
    x, weight, dy, *_ = operands(geometry)
    x, dy, weight = (each.bfloat16() for each in (x, dy, weight))
    leaves = [each.double().contiguous().requires_grad_() for each in (x, weight)]
    steps = geometry.stride, geometry.pad, geometry.dilation, geometry.groups
    y = torch.nn.functional.conv2d(leaves[0], leaves[1], None, *steps)
    of_x, of_filters = torch.autograd.grad(y, leaves, dy.double())
    call = BackwardData(dy, weight, x.shape[2:], geometry)
    taken = "widened" if max(geometry.stride) > 1 else "aten"
    assert RULES.candidate(BACKWARD_DATA, call).name == taken
    ways = [each for each in BACKWARD_DATA.serving(call) if each.name in ("aten", "widened")]
    assert len(ways) == 2
    for way in ways:
        dx = way.run(call)
        assert dx.dtype == torch.bfloat16
        assert dx.is_contiguous(memory_format=LAST)
        torch.testing.assert_close(dx.double(), of_x, rtol=2.0**-8, atol=1e-5)
    total = torch.full(weight.shape, float("nan"), dtype=torch.bfloat16)
    BACKWARD_WEIGHT.candidates[depthwise.COLUMNS].run(BackwardWeight(total, 0.0, dy, x, geometry))
    torch.testing.assert_close(total.double(), of_filters, rtol=2.0**-8, atol=1e-4)
