"""Every way to convolve gives the same: products over pixels, oneDNN, ATen, and windows for many axes."""

import pytest
import torch
from torch.nn import functional

from mgcaffe.engine.kernels import (
    convolution,
    convolution_data,
    convolution_weight,
    onednn,
    pointwise,
    processor,
    windows,
)
from mgcaffe.engine.kernels.aten import convolution_backward
from mgcaffe.engine.kernels.choice.choices import Forced
from mgcaffe.engine.kernels.convolution_data import BACKWARD_DATA, BackwardData
from mgcaffe.engine.kernels.convolution_forward import FORWARD, Forward
from mgcaffe.engine.kernels.convolution_weight import BACKWARD_WEIGHT, BackwardWeight
from mgcaffe.engine.kernels.formats import dense
from mgcaffe.engine.kernels.geometry import Geometry
from mgcaffe.engine.parameter import Parameter
from tests.support.layouts import LAYOUTS, random_input

pytestmark = pytest.mark.slow

GEOMETRIES = {
    "pixel": Geometry((1, 1), (1, 1), (0, 0), (1, 1)),
    "pixel_stride": Geometry((1, 1), (2, 3), (0, 0), (1, 1)),
    "pixel_pad": Geometry((1, 1), (1, 1), (1, 1), (1, 1)),
    "pixel_group": Geometry((1, 1), (1, 1), (0, 0), (1, 1), 4),
    "square": Geometry((3, 3), (1, 1), (1, 1), (1, 1)),
    "square_stride": Geometry((3, 3), (2, 2), (1, 1), (1, 1)),
    "uneven": Geometry((3, 2), (2, 1), (0, 1), (1, 2), 2),
}


@pytest.fixture(params=[True, False], ids=["onednn", "aten"])
def with_onednn(request, monkeypatch):
    """Runs a test with oneDNN's operators and without them."""
    if request.param and not onednn.AVAILABLE:
        pytest.skip("this PyTorch has no oneDNN operators")
    monkeypatch.setattr(onednn, "AVAILABLE", request.param)


@pytest.mark.skipif(not onednn.AVAILABLE, reason="this PyTorch has no oneDNN operators")
@pytest.mark.parametrize(
    ("batch", "channels", "size", "name"),
    [
        (2, 32, 12, "aten"),
        (128, 32, 12, "aten"),
        (1, 256, 14, "aten_converted"),
        (8, 512, 7, "aten_converted"),
        (16, 512, 7, "aten_converted"),
        (64, 512, 7, "aten"),  # the images are larger than the filters
    ],
)
def test_rules_go_by_what_the_cache_holds(batch, channels, size, name) -> None:
    """Images are converted where the cache does not hold the filters."""
    x = torch.empty(batch, channels, size, size).contiguous(memory_format=torch.channels_last)
    weight, geometry = torch.empty(channels, channels, 3, 3), GEOMETRIES["square"]
    assert FORWARD.by_rule(Forward(x, weight, None, geometry, relu=True)).name == name
    assert FORWARD.by_rule(Forward(x, weight, None, geometry, relu=False)).name == name
    assert BACKWARD_DATA.by_rule(BackwardData(x, weight, (size, size), geometry)).name == name
    plain = torch.empty(batch, channels, size, size)
    assert FORWARD.by_rule(Forward(plain, weight, None, geometry, relu=False)).name == "aten"


@pytest.mark.parametrize("kernel", [1, 3])
def test_a_relu_lets_nan_through_by_every_candidate(kernel):
    x = random_input((2, 4, 12, 12), seed=1).float().contiguous(memory_format=torch.channels_last)
    weight = random_input((8, 4, kernel, kernel), seed=2).float()
    pad = (kernel // 2,) * 2
    call = Forward(x, weight, torch.zeros(8), Geometry((kernel, kernel), (1, 1), pad, (1, 1)), relu=True)
    x[1, 2, 5, 6] = float("nan")
    for candidate in FORWARD.serving(call):
        y = candidate.run(call)
        assert y[1, :, 5, 6].isnan().all(), candidate.name
        assert (y[0] >= 0).all(), candidate.name


@pytest.mark.skipif(not onednn.AVAILABLE, reason="this PyTorch has no oneDNN operators")
@pytest.mark.parametrize(
    ("channels", "outputs", "size", "kernel", "on_avx2", "otherwise"),
    [
        (64, 64, 56, "square", "row_windows", "aten"),
        (512, 512, 7, "square", "row_windows", "windows"),
        (16, 32, 28, "square", "aten", "aten"),  # too few channels for products
        (128, 128, 56, "square_stride", "row_windows", "aten"),
        (32, 256, 56, "square_stride", "aten", "aten"),  # rows too short
        (256, 64, 14, "pixel", "product_mm", "product"),
        (64, 64, 56, "pixel", "product_mm", "images"),
    ],
)
def test_rules_for_filters_gradients_go_by_the_class_of_processor(
    channels, outputs, size, kernel, on_avx2, otherwise, monkeypatch
):
    last, geometry = torch.channels_last, GEOMETRIES[kernel]
    x = torch.empty(8, channels, size, size).contiguous(memory_format=last)
    dy = torch.empty(8, outputs, *geometry.output_size((size, size))).contiguous(memory_format=last)
    call = BackwardWeight(torch.empty(outputs, channels, *geometry.kernel), 0.0, dy, x, geometry)
    products = "product_mm" if kernel == "pixel" else otherwise
    for is_avx2, is_fast, name in ((True, True, on_avx2), (False, True, products), (False, False, otherwise)):
        monkeypatch.setattr(processor, "ON_AVX2", is_avx2)
        monkeypatch.setattr(processor, "FAST_MM", is_fast)
        assert BACKWARD_WEIGHT.by_rule(call).name == name


@pytest.mark.skipif(not onednn.AVAILABLE, reason="this PyTorch has no oneDNN operators")
@pytest.mark.parametrize(
    ("dtype", "channels", "outputs", "size", "on_avx2", "name"),
    [
        (torch.float32, 64, 128, 32, False, "product_exchanged_mm"),
        (torch.float32, 64, 127, 32, False, "product_mm"),
        (torch.float32, 64, 128, 31, False, "product_mm"),  # too few pixels
        (torch.float32, 128, 64, 32, False, "product_mm"),
        (torch.float32, 64, 128, 32, True, "product_mm"),
        (torch.bfloat16, 64, 128, 32, False, "product_mm"),
    ],
)
def test_products_over_many_pixels_are_exchanged_on_intels_where_channels_grow(
    dtype, channels, outputs, size, on_avx2, name, monkeypatch
):
    x, dy = (
        torch.empty(4, each, size, size, dtype=dtype).contiguous(memory_format=torch.channels_last)
        for each in (channels, outputs)
    )
    monkeypatch.setattr(processor, "ON_AVX2", on_avx2)
    monkeypatch.setattr(processor, "FAST_MM", True)
    monkeypatch.setattr(onednn, "TYPES", (torch.float32, torch.bfloat16))
    call = BackwardWeight(torch.empty(outputs, channels, 1, 1), 0.0, dy, x, GEOMETRIES["pixel"])
    assert BACKWARD_WEIGHT.by_rule(call).name == name


@pytest.mark.skipif(not onednn.AVAILABLE, reason="this PyTorch has no oneDNN operators")
@pytest.mark.parametrize(
    ("batch", "on_avx2", "otherwise"),
    [(1, "across_mm", "across_mm"), (16, "across_mm", "aten"), (64, "aten", "aten")],
)
def test_windows_of_one_channel_are_copied_where_a_cache_holds_them(batch, on_avx2, otherwise, monkeypatch):
    x = torch.empty(batch, 1, 28, 28)
    dy = torch.empty(batch, 20, 24, 24).contiguous(memory_format=torch.channels_last)
    call = BackwardWeight(torch.empty(20, 1, 5, 5), 0.0, dy, x, Geometry((5, 5), (1, 1), (0, 0), (1, 1)))
    for is_avx2, name in ((True, on_avx2), (False, otherwise)):
        monkeypatch.setattr(processor, "ON_AVX2", is_avx2)
        assert BACKWARD_WEIGHT.by_rule(call).name == name


@pytest.mark.parametrize(
    ("pixels", "images"), [(25088, 98), (6272, 28), (1568, 16), (1024, 16), (1023, 0), (2053, 0), (2062, 0), (0, 0)]
)
def test_pixels_are_seen_as_sixteen_images_or_more_of_sixty_four_pixels_or_more(pixels, images):
    """Primes, and twice a prime, are not divided; of the sizes that can be, one near 256 is taken."""
    assert pointwise.count_images(pixels) == images


@pytest.mark.parametrize(("batch", "channels", "calls"), [(1, 6, 1), (64, 24, 2)])
@pytest.mark.parametrize("fresh", [True, False])
def test_small_gradients_of_input_and_filters_come_from_one_call(batch, channels, calls, fresh, monkeypatch) -> None:
    """They are those of two calls, and the filters' is added to what the parameter holds."""
    geometry, called = GEOMETRIES["square"], []
    weight = Parameter((8, channels, 3, 3))
    weight.data, weight.diff, weight.fresh = torch.randn(weight.shape), torch.ones(weight.shape), fresh
    x = torch.randn(batch, channels, 14, 14).contiguous(memory_format=torch.channels_last)
    dy = torch.randn(batch, 8, 14, 14).contiguous(memory_format=torch.channels_last)
    expected = convolution.backward_data(dy, weight.data, (14, 14), geometry)
    of_weight = convolution.backward_weight(dy, x, weight.shape, geometry)

    def counted(*arguments):
        called.append(arguments[-1])
        return convolution_backward(*arguments)

    for module in (convolution, convolution_data, convolution_weight):
        monkeypatch.setattr(module, "convolution_backward", counted)
    dx = convolution.backward(weight, dy, x, geometry)
    assert len(called) == calls
    torch.testing.assert_close(dx, expected)
    torch.testing.assert_close(weight.diff, of_weight if fresh else of_weight + 1, rtol=1e-5, atol=1e-4)
    assert not weight.fresh


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("channels", [1, 3, 7])
@pytest.mark.parametrize("name", ["aten", "aten_converted"])
def test_filters_of_one_pixel_on_few_channels_get_the_pixels_they_visit(name, channels, memory_format, monkeypatch):
    """With the others, and a stride, oneDNN writes beyond its memory."""
    given = []

    def watched(dy, x, weight, geometry, wanted):
        given.append((tuple(x.shape[2:]), geometry.stride, wanted[1]))
        return convolution_backward(dy, x, weight, geometry, wanted)

    for module in (convolution, convolution_data, convolution_weight):
        monkeypatch.setattr(module, "convolution_backward", watched)
    x = torch.randn(2, channels, 13, 12).contiguous(memory_format=memory_format)
    dy = torch.randn(2, 8, 7, 4).contiguous(memory_format=memory_format)
    weight = Parameter((8, channels, 1, 1))
    weight.data, weight.diff = torch.randn(weight.shape), torch.zeros(weight.shape)
    dx = convolution.backward(weight, dy, x, GEOMETRIES["pixel_stride"], Forced(name))
    assert [each[:2] for each in given if each[2]] == [((7, 4), (1, 1))]
    torch.testing.assert_close(dx, torch.nn.grad.conv2d_input(x.shape, weight.data, dy, (2, 3)))
    expected = torch.nn.grad.conv2d_weight(x[:, :, ::2, ::3].contiguous(), weight.shape, dy)
    torch.testing.assert_close(weight.diff, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("with_onednn")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize(("channels", "outputs", "size"), [(4, 8, 9), (176, 172, 6), (32, 96, 40)])
@pytest.mark.parametrize("name", GEOMETRIES)
def test_all_ways_agree(layout, relu, channels, outputs, size, name) -> None:
    geometry = GEOMETRIES[name]
    x = random_input((2, channels, size, size), layout).float()
    weight = Parameter((outputs, channels // geometry.groups, *geometry.kernel))
    weight.data = random_input(weight.shape, seed=2).float() / channels
    weight.diff = torch.full(weight.shape, float("nan"))
    bias = random_input((outputs,), seed=3).float()
    shift = Parameter(bias.shape)
    shift.diff = torch.full(bias.shape, float("nan"))
    walk = geometry.stride, geometry.pad, geometry.dilation, geometry.groups
    leaves = [tensor.clone().requires_grad_() for tensor in (x, weight.data, bias)]
    expected = functional.conv2d(*leaves, *walk)
    dy = random_input(tuple(expected.shape), layout, seed=4).float()
    expected.backward(dy)

    y = convolution.forward(x, weight.data, bias, geometry, relu=relu)
    torch.testing.assert_close(y, expected.clamp(min=0).detach() if relu else expected.detach(), rtol=1e-4, atol=1e-4)
    dx = convolution.backward_data(dy, weight.data, x.shape[2:], geometry)
    torch.testing.assert_close(dx, leaves[0].grad, rtol=1e-4, atol=1e-4)
    for times in (1, 2):
        convolution.add_backward_weight(weight, dy, x, geometry)
        torch.testing.assert_close(weight.diff, leaves[1].grad * times, rtol=1e-3, atol=2e-3)
        convolution.add_backward_bias(shift, dy)
        torch.testing.assert_close(shift.diff, leaves[2].grad * times, rtol=1e-3, atol=2e-3)
    if layout == "channels_last":
        assert y.is_contiguous(memory_format=torch.channels_last)
        assert dx.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("name", GEOMETRIES)
def test_windows_agree_with_torch(name) -> None:
    geometry = GEOMETRIES[name]
    x = random_input((2, 4, 7, 6))
    weight = random_input((8, 4 // geometry.groups, *geometry.kernel), seed=2)
    y = windows.forward(x, weight, geometry)
    torch.testing.assert_close(y, convolution.forward(x, weight, None, geometry))
    dy = random_input(tuple(y.shape), seed=3)
    dx = windows.backward_data(dy, weight, (7, 6), geometry)
    torch.testing.assert_close(dx, convolution.backward_data(dy, weight, (7, 6), geometry))
    dw = windows.backward_weight(dy, x, weight.shape, geometry)
    torch.testing.assert_close(dw, convolution.backward_weight(dy, x, weight.shape, geometry))


def test_the_same_inputs_give_the_same_bits() -> None:
    x = random_input((4, 32, 14, 14), "channels_last").float()
    for geometry in (GEOMETRIES["pixel"], GEOMETRIES["square"]):
        weight = random_input((48, 32, *geometry.kernel), seed=2).float()
        first, second = (convolution.forward(x, weight, None, geometry) for _ in range(2))
        assert torch.equal(first, second)


def test_dense_closes_gaps_and_keeps_the_format() -> None:
    wide = random_input((2, 6, 4, 4), "channels_last")
    part = dense(wide[:, 1:4])
    assert part.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(part, wide[:, 1:4])
    assert dense(wide) is wide


@pytest.mark.parametrize("channels", [3, 16])
def test_the_gradient_of_a_bias_of_many_pixels(channels):
    dy = random_input((2, channels, 90, 50), "channels_last", seed=1).float()
    bias = Parameter((channels,))
    bias.diff = torch.full((channels,), float("nan"))
    for times in (1, 2):
        convolution.add_backward_bias(bias, dy)
        torch.testing.assert_close(bias.diff, times * dy.double().sum((0, 2, 3)).float(), rtol=1e-3, atol=2e-3)
