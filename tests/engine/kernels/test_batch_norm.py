import pytest
import torch
from torch.nn import functional

from mgcaffe.engine.kernels import batch_norm
from mgcaffe.engine.kernels.elementwise import relu_backward
from tests.support.layouts import LAYOUTS, random_input


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", [(4, 6, 5, 7), (5, 6), (2, 6, 2, 3, 4)])
def test_norm_scale_and_relu_in_one_agree_with_torch(layout, relu, shape) -> None:
    x = random_input(shape, layout).add(3)
    weight, bias = random_input((6,), seed=2), random_input((6,), seed=3)
    dy = random_input(shape, layout, seed=4)
    leaves = [tensor.clone().requires_grad_() for tensor in (x, weight, bias)]
    expected = functional.batch_norm(leaves[0], None, None, leaves[1], leaves[2], training=True, eps=1e-3)
    expected = expected.relu() if relu else expected
    expected.backward(dy)

    y, statistics = batch_norm.forward(x, weight, bias, 1e-3, relu=relu)
    torch.testing.assert_close(y, expected.detach())
    torch.testing.assert_close(statistics.mean, x.transpose(0, 1).flatten(1).mean(1))
    torch.testing.assert_close(statistics.unbiased_variance, x.transpose(0, 1).flatten(1).var(1))
    kept = dy.clone()
    masked = relu_backward(dy, y) if relu else dy
    gradients = batch_norm.backward(masked, x, weight, statistics.mean, statistics.inverse_std)
    for gradient, leaf in zip(gradients, leaves, strict=True):
        torch.testing.assert_close(gradient, leaf.grad)
    assert torch.equal(dy, kept)


def test_only_wanted_gradients_are_given() -> None:
    x = random_input((4, 3, 2, 2))
    _, statistics = batch_norm.forward(x, None, None, 1e-5)
    gradients = batch_norm.backward(x, x, None, statistics.mean, statistics.inverse_std, (True, False, False))
    assert [gradient is not None for gradient in gradients] == [True, False, False]


def test_the_top_is_enough_for_backward() -> None:
    x, dy = random_input((4, 3, 5, 5)).mul(2).add(1), random_input((4, 3, 5, 5), seed=2)
    y, statistics = batch_norm.forward(x, None, None, 1e-5)
    expected = batch_norm.backward(dy, x, None, statistics.mean, statistics.inverse_std)[0]
    torch.testing.assert_close(batch_norm.backward_from_top(dy, y, statistics.inverse_std), expected)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", [(8, 72, 32, 25), (4, 6, 5, 7), (5, 6)], ids=["pieces", "small", "plain"])
def test_the_statistics_are_enough_to_normalize_again(relu, shape) -> None:
    x = random_input(shape, "channels_last").add(3)
    assert batch_norm.suits_pieces(x) == (shape[0] == 8)  # the last piece is a part of one
    weight, bias = random_input(shape[1:2], seed=2), random_input(shape[1:2], seed=3)
    y, found = batch_norm.forward(x, weight, bias, 1e-3, relu=relu)
    again = batch_norm.normalize(x, weight, bias, found.mean, found.inverse_std, relu)
    torch.testing.assert_close(again, y)
    assert again.stride() == y.stride()
