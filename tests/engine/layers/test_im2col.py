"""Im2col: against PyTorch's own for images, against a convolution for any number of axes."""

import pytest
import torch

from mgcaffe.errors import NetError
from tests.support.autograd import check_against_autograd
from tests.support.layerkit import check_gradients, forward_backward, make_layer
from tests.support.layouts import LAYOUTS, random_input

SHAPE = (2, 3, 6, 5)


def im2col(fields: str, shape=SHAPE):
    return make_layer(f'name: "c" type: "Im2col" bottom: "x" top: "y" convolution_param {{ {fields} }}', [shape])


GEOMETRIES = {
    "kernel_size: 3 stride: 2": ((3, 3), (1, 1), (0, 0), (2, 2)),
    "kernel_size: 3 stride: 2 pad: 1": ((3, 3), (1, 1), (1, 1), (2, 2)),
    "kernel_size: 2 dilation: 3": ((2, 2), (3, 3), (0, 0), (1, 1)),
    "kernel_h: 4 kernel_w: 2 stride_h: 1 stride_w: 2 pad_h: 0 pad_w: 1": ((4, 2), (1, 1), (0, 1), (1, 2)),
    "kernel_size: 2 dilation: 3 force_nd_im2col: true": ((2, 2), (3, 3), (0, 0), (1, 1)),
    "kernel_size: 3 stride: 2 force_nd_im2col: true num_output: 7 group: 2": ((3, 3), (1, 1), (0, 0), (2, 2)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("fields", GEOMETRIES)
def test_agrees_with_unfold(fields, layout):
    layer, (top,) = im2col(fields)
    kernel, dilation, pad, stride = GEOMETRIES[fields]
    check_against_autograd(
        layer,
        [random_input(SHAPE, layout)],
        lambda x: torch.nn.functional.unfold(x, kernel, dilation, pad, stride).view(top),
    )


@pytest.mark.parametrize("fields", GEOMETRIES)
def test_gradient_agrees_with_differences(fields):
    check_gradients(im2col(fields, (1, 2, 5, 4))[0], [random_input((1, 2, 5, 4))])


@pytest.mark.parametrize(("rank", "channels"), [(1, 8), (3, 16)])
def test_a_product_with_its_columns_is_a_convolution(rank, channels):
    shape, kernel = (2, 4, *[5] * rank), [2, 2, 2][:rank]
    layer, (top,) = im2col("kernel_size: 2 stride: 2 pad: 1", shape)
    x, weight = random_input(shape), random_input((3, 4, *kernel), seed=9)
    columns = layer.forward([x])[0]
    product = torch.einsum("ok,nkp->nop", weight.reshape(3, -1), columns.flatten(2))
    convolve = {1: torch.nn.functional.conv1d, 3: torch.nn.functional.conv3d}[rank]
    torch.testing.assert_close(product.view(2, 3, *top[2:]), convolve(x, weight, stride=2, padding=1))
    check_gradients(im2col("kernel_size: 2 pad: 1", (1, 2, *[2] * rank))[0], [random_input((1, 2, *[2] * rank))])


def test_axes_before_the_channels_are_a_batch():
    layer, (top,) = im2col("axis: 2 kernel_size: 2", (2, 3, 4, 5))
    assert top == (2, 3, 8, 4)
    x = random_input((2, 3, 4, 5))
    flat, _ = im2col("kernel_size: 2", (6, 4, 5))
    torch.testing.assert_close(layer.forward([x])[0].view(6, 8, 4), flat.forward([x.view(6, 4, 5)])[0])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("force", ["false", "true"])
def test_a_filter_larger_than_the_image_by_less_than_a_stride_meets_zeros_beyond_it(force, layout):
    layer, (top,) = im2col(f"kernel_size: 7 stride: 3 pad: 0 force_nd_im2col: {force}")
    assert top == (2, 3 * 49, 1, 1)
    pad = torch.nn.functional.pad
    check_against_autograd(
        layer,
        [random_input(SHAPE, layout)],
        lambda x: torch.nn.functional.unfold(pad(x, [0, 2, 0, 1]), 7, stride=3).view(top),
    )


def test_an_image_of_no_pixels_gives_a_column_of_zeros_where_a_stride_is_larger():
    layer, (top,) = im2col("kernel_size: 1 stride: 2", (2, 3, 0))
    assert top == (2, 3, 1)
    (y,), (dx,) = forward_backward(layer, [torch.empty(2, 3, 0, dtype=torch.float64)], [torch.ones(top).double()])
    assert not y.any()
    assert dx.shape == (2, 3, 0)


def test_a_filter_that_does_not_fit_is_refused():
    with pytest.raises(NetError, match="the filter does not fit"):
        im2col("kernel_size: 7")


def test_a_kernel_size_is_required():
    with pytest.raises(NetError, match="kernel_size"):
        im2col("stride: 2")
