import numpy as np
import pytest
import torch

from mgcaffe.errors import NetError
from tests.support.layerkit import check_gradients, forward_backward, make_layer
from tests.support.layouts import LAYOUTS, random_input

pytestmark = pytest.mark.slow


def text(fields: str) -> str:
    return f'name: "norm" type: "LRN" bottom: "x" top: "y" lrn_param {{ {fields} }}'


def across(x: np.ndarray, size: int, alpha: float, beta: float, k: float) -> np.ndarray:
    scale = np.full_like(x, k)
    for c in range(x.shape[1]):
        window = x[:, max(c - size // 2, 0) : c + size // 2 + 1]
        scale[:, c] += alpha / size * (window**2).sum(1)
    return x * scale**-beta


def within(x: np.ndarray, size: int, alpha: float, beta: float) -> np.ndarray:
    reach = size // 2
    padded = np.pad(x**2, [(0, 0), (0, 0), (reach, reach), (reach, reach)])
    mean = sum(padded[:, :, i : i + x.shape[2], j : j + x.shape[3]] for i in range(size) for j in range(size)) / size**2
    return x * (1 + alpha * mean) ** -beta


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("beta", [0.75, 0.5, 0.6])
@pytest.mark.parametrize(("channels", "size"), [(7, 5), (3, 5), (1, 3), (16, 3), (6, 1), (40, 5)])
def test_across_channels_agrees_with_the_definition(layout, dtype, beta, channels, size) -> None:
    shape = (3, channels, 4, 5)
    layer, _ = make_layer(text(f"local_size: {size} alpha: 0.5 beta: {beta} k: 2"), [shape], dtype=dtype)
    x, dy = random_input(shape, layout), random_input(shape, layout, seed=9)
    (y,), (dx,) = forward_backward(layer, [x.to(dtype)], [dy.to(dtype)])
    tolerance = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-7, "atol": 1e-7}
    np.testing.assert_allclose(y.double().numpy(), across(x.numpy(), size, 0.5, beta, 2.0), **tolerance)
    # The directional derivative along a random direction, from the definition alone.
    direction, step = random_input(shape, seed=11), 1e-6
    ends = [across((x + sign * step * direction).numpy(), size, 0.5, beta, 2.0) for sign in (1, -1)]
    slope = ((ends[0] - ends[1]) * dy.numpy()).sum() / (2 * step)
    np.testing.assert_allclose(float((dx.double() * direction).sum()), slope, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [1, 3, 5])
def test_within_channel_agrees_with_the_definition_and_ignores_k(layout, size) -> None:
    shape = (2, 3, 6, 5)
    fields = f"local_size: {size} alpha: 0.5 beta: 0.75 k: 7 norm_region: WITHIN_CHANNEL"
    layer, _ = make_layer(text(fields), [shape])
    x = random_input(shape, layout)
    (y,) = layer.forward([x])
    np.testing.assert_allclose(y.numpy(), within(x.numpy(), size, 0.5, 0.75), rtol=1e-12)


@pytest.mark.parametrize("region", ["ACROSS_CHANNELS", "WITHIN_CHANNEL"])
@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
def test_gradients(region, layout) -> None:
    layer, _ = make_layer(text(f"local_size: 3 alpha: 0.9 norm_region: {region}"), [(2, 5, 3, 3)])
    check_gradients(layer, [random_input((2, 5, 3, 3), layout)])


def test_many_images_agree_with_torch() -> None:
    """Large enough to be computed in several pieces."""
    shape = (5, 48, 40, 40)
    for layout in LAYOUTS:
        layer, _ = make_layer(text("local_size: 5 alpha: 0.0001 beta: 0.75"), [shape], dtype=torch.float32)
        x = random_input(shape, layout).float().mul_(30)
        dy = random_input(shape, layout, seed=2).float()
        (y,), (dx,) = forward_backward(layer, [x], [dy])
        leaf = x.clone().requires_grad_()
        expected = torch.nn.functional.local_response_norm(leaf, 5, 0.0001, 0.75, 1.0)
        expected.backward(dy)
        torch.testing.assert_close(y, expected.detach(), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(dx, leaf.grad, rtol=1e-4, atol=1e-5)


def test_an_even_window_is_an_error() -> None:
    with pytest.raises(NetError, match="local_size has to be odd, not 4"):
        make_layer(text("local_size: 4"), [(1, 2, 3, 3)])


def test_four_axes_are_needed() -> None:
    with pytest.raises(NetError, match="needs 4 axes"):
        make_layer(text(""), [(2, 5, 5)])
