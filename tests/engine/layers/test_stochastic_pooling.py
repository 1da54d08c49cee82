"""STOCHASTIC pooling: what Caffe's GPU code does, written as loops."""

import itertools

import numpy as np
import pytest
import torch

from mgcaffe.engine.net import Net
from mgcaffe.prototxt import NetParameter, parse_text
from tests.support.autograd import check_against_autograd
from tests.support.layerkit import check_gradients, forward_backward, make_layer
from tests.support.layouts import LAYOUTS, random_input

TRAIN, TEST = 0, 1


def text(fields):
    return f'name: "pool" type: "Pooling" bottom: "x" top: "y" pooling_param {{ pool: STOCHASTIC {fields} }}'


def positive(shape, layout="contiguous"):
    return random_input(shape, layout).abs_()


def windows(shape, out, kernel, stride):
    """Of every window its place in the top, and its pixels in row order."""
    for n, c, i, j in itertools.product(range(shape[0]), range(shape[1]), range(out[2]), range(out[3])):
        rows = range(i * stride, min(i * stride + kernel, shape[2]))
        columns = range(j * stride, min(j * stride + kernel, shape[3]))
        yield (n, c, i, j), [(n, c, h, w) for h, w in itertools.product(rows, columns)]


def drawn(x, out, kernel, stride, uniform):
    """The pixel that each window draws, by the loop of Caffe's GPU code; none for a window without pixels."""
    places = {}
    for place, pixels in windows(x.shape, out, kernel, stride):
        mark = uniform[place] * sum(x[pixel] for pixel in pixels)
        total = 0.0
        for pixel in pixels:
            total += x[pixel]
            if total >= mark:
                places[place] = pixel
                break
    return places


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("kernel", "stride"), [(2, 2), (3, 2), (3, 1), (1, 2), (2, 3)])
def test_training_draws_as_caffes_gpu_code_does(layout, kernel, stride) -> None:
    x = positive((2, 3, 7, 8), layout)
    x[0, 0] = 0
    x[1, :, ::2] = 0
    layer, (out,) = make_layer(text(f"kernel_size: {kernel} stride: {stride}"), [(2, 3, 7, 8)], seed=8)
    generator = torch.Generator().manual_seed(8)
    uniform = 1 - torch.empty((2, 3, out[2] * out[3]), dtype=torch.float64).uniform_(generator=generator)
    places = drawn(x.numpy(), out, kernel, stride, uniform.reshape(out).numpy())
    expected, gradient = np.zeros(out), np.zeros((2, 3, 7, 8))
    dy = random_input(out, layout)
    for place, pixel in places.items():
        expected[place] = x[pixel]
        gradient[pixel] += dy[place].item()

    (y,), (dx,) = forward_backward(layer, [x], [dy])

    np.testing.assert_array_equal(y.numpy(), expected)
    np.testing.assert_allclose(dx.numpy(), gradient, atol=1e-12)
    if layout == "channels_last":
        assert y.is_contiguous(memory_format=torch.channels_last)


def test_a_pixel_is_drawn_as_often_as_its_value_says() -> None:
    pixels = torch.tensor([[1.0, 0.0, 3.0], [2.0, 0.5, 3.5]], dtype=torch.float64)
    x = pixels.expand(40000, 1, 2, 3).clone()
    layer, _ = make_layer(text("global_pooling: true"), [(40000, 1, 2, 3)])
    (y,) = layer.forward([x])
    values, counts = np.unique(y.numpy(), return_counts=True)
    expected = {value: value / 10 for value in (0.5, 1.0, 2.0, 3.0, 3.5)}
    assert values.tolist() == list(expected)
    for count, share in zip(counts, expected.values(), strict=True):
        assert abs(count / 40000 - share) < 5 * (share * (1 - share) / 40000) ** 0.5


def test_a_window_of_zeros_gives_zero_and_hands_its_gradient_to_its_first_pixel() -> None:
    layer, _ = make_layer(text("kernel_size: 2 stride: 2"), [(1, 1, 2, 4)])
    dy = torch.tensor([[[[5.0, 7.0]]]], dtype=torch.float64)
    (y,), (dx,) = forward_backward(layer, [torch.zeros(1, 1, 2, 4, dtype=torch.float64)], [dy])
    assert torch.equal(y, torch.zeros_like(y))
    assert dx.tolist() == [[[[5, 0, 7, 0], [0, 0, 0, 0]]]]


@pytest.mark.parametrize("phase", [TRAIN, TEST])
def test_nan_is_not_hidden(phase) -> None:
    x = positive((1, 1, 4, 4))
    x[0, 0, 1, 1] = float("nan")
    layer, _ = make_layer(text("kernel_size: 2 stride: 2"), [(1, 1, 4, 4)], phase=phase)
    (y,) = layer.forward([x])
    assert torch.isnan(y).tolist() == [[[[True, False], [False, False]]]]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("kernel", "stride"), [(2, 2), (3, 2), (1, 2), (2, 3)])
def test_testing_weights_every_pixel_by_itself(layout, kernel, stride) -> None:
    x = positive((2, 3, 7, 8), layout)
    x[0, 0] = 0
    layer, (out,) = make_layer(text(f"kernel_size: {kernel} stride: {stride}"), [(2, 3, 7, 8)], phase=TEST)
    expected = np.zeros(out)
    for place, pixels in windows((2, 3, 7, 8), out, kernel, stride):
        total = sum(x[pixel].item() for pixel in pixels)
        if total > 0:
            expected[place] = sum(x[pixel].item() ** 2 for pixel in pixels) / total
    (y,) = layer.forward([x])
    np.testing.assert_allclose(y.numpy(), expected, atol=1e-12)
    x = x + 0.1  # away from the kink where a sum becomes 0
    check_gradients(layer, [x])


def test_the_gradient_in_testing_is_autograds() -> None:
    def function(x):
        values = x.unfold(2, 3, 2).unfold(3, 3, 2).flatten(4)
        return values.square().sum(4) / values.sum(4)

    layer, _ = make_layer(text("kernel_size: 3 stride: 2"), [(2, 3, 7, 7)], phase=TEST)
    assert layer.keeps_bottoms
    check_against_autograd(layer, [positive((2, 3, 7, 7))], function)


def test_the_nets_stream_decides() -> None:
    net = Net(
        parse_text(
            'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 4 dim: 2 dim: 6 dim: 6 } } }'
            "layer { " + text("kernel_size: 3 stride: 3") + " }",
            NetParameter,
        ),
        seed=1,
    )
    net.blobs["x"].data.copy_(positive((4, 2, 6, 6)))

    def run(*numbers):
        net.reseed(*numbers)
        net.forward()
        return net.blobs["y"].data.clone()

    assert torch.equal(run(1, 0, 7), run(1, 0, 7))
    assert not torch.equal(run(1, 0, 7), run(1, 0, 8))
    assert not torch.equal(run(1, 0, 7), run(1, 1, 7))


def test_the_bottom_may_be_overwritten_before_backward_in_training_only() -> None:
    layer, (out,) = make_layer(text("kernel_size: 2 stride: 2"), [(1, 2, 4, 4)])
    assert not layer.keeps_bottoms
    x = positive((1, 2, 4, 4))
    layer.forward([x])
    dy = random_input(out)
    (before,) = layer.backward([dy], [True])
    x.zero_()
    (after,) = layer.backward([dy], [True])
    assert torch.equal(before, after)
