import pytest
import torch
from torch.nn import functional

from mgcaffe.errors import NetError
from tests.engine.layers.test_convolution import text
from tests.support.layerkit import check_gradients, forward_backward, make_layer
from tests.support.layouts import LAYOUTS, random_input


def deconv(fields: str, bottoms: int = 1) -> str:
    return text(fields, bottoms, "Deconvolution")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("kernel", "stride", "pad", "dilation", "group"),
    [(1, 1, 0, 1, 1), (4, 2, 1, 1, 1), (3, 2, 1, 2, 2), (2, 3, 0, 1, 4)],
)
def test_agrees_with_torch_in_every_layout(layout, dtype, kernel, stride, pad, dilation, group) -> None:
    fields = f"num_output: 8 kernel_size: {kernel} stride: {stride} pad: {pad} dilation: {dilation} group: {group}"
    shape = (3, 4, 5, 6)
    layer, (top_shape,) = make_layer(deconv(fields), [shape], dtype=dtype)
    assert layer.parameters[0].shape == (4, 8 // group, kernel, kernel)
    x = random_input(shape, layout).to(dtype)
    dy = random_input(top_shape, layout, seed=6).to(dtype)
    (y,), (dx,) = forward_backward(layer, [x], [dy])

    leaves = [x.clone().requires_grad_(), *(p.data.clone().requires_grad_() for p in layer.parameters)]
    expected = functional.conv_transpose2d(*leaves, stride, pad, 0, group, dilation)
    expected.backward(dy)
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 1e-10, "atol": 1e-10}
    assert tuple(y.shape) == top_shape
    torch.testing.assert_close(y, expected.detach(), **tolerance)
    for ours, leaf in zip([dx, *(p.diff for p in layer.parameters)], leaves, strict=True):
        torch.testing.assert_close(ours, leaf.grad, **tolerance)


@pytest.mark.parametrize("size", [(), (3,), (2, 3), (2, 1, 2), (2, 1, 2, 2)], ids=lambda size: f"{len(size)}axes")
@pytest.mark.parametrize("group", [1, 2])
def test_gradients(size, group) -> None:
    fields = f"num_output: 2 kernel_size: 2 stride: 2 group: {group}"
    layer, _ = make_layer(deconv(fields), [(2, 2, *size)])
    check_gradients(layer, [random_input((2, 2, *size))])


def test_several_bottoms_and_another_channel_axis() -> None:
    layer, shapes = make_layer(deconv("num_output: 3 kernel_size: 2 axis: 2", bottoms=2), [(2, 2, 2, 2, 3)] * 2)
    assert shapes == [(2, 2, 3, 3, 4)] * 2
    check_gradients(layer, [random_input((2, 2, 2, 2, 3)), random_input((2, 2, 2, 2, 3), seed=9)])


def test_bilinear_upsampling_keeps_a_constant_image() -> None:
    fields = (
        'num_output: 3 group: 3 kernel_size: 4 stride: 2 pad: 1 bias_term: false weight_filler { type: "bilinear" }'
    )
    message = f'name: "up" type: "Deconvolution" bottom: "x" top: "y" convolution_param {{ {fields} }}'
    layer, (shape,) = make_layer(message, [(1, 3, 4, 4)])
    assert shape == (1, 3, 8, 8)
    (y,) = layer.forward([torch.ones(1, 3, 4, 4, dtype=torch.float64)])
    assert y[:, :, 1:-1, 1:-1].allclose(torch.ones(()).double())


def test_macs_count_each_bottom_value_once_a_filter_value() -> None:
    layer, shapes = make_layer(deconv("num_output: 4 kernel_size: 2 stride: 2"), [(2, 3, 5, 5)])
    assert layer.macs([(2, 3, 5, 5)], shapes) == 2 * 3 * 25 * 4 * 4


def test_a_pad_that_eats_the_image_is_an_error() -> None:
    with pytest.raises(NetError, match="does not fit"):
        make_layer(deconv("num_output: 4 kernel_size: 1 pad: 3"), [(2, 3, 5, 5)])
