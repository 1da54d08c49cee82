import itertools
import math

import numpy as np
import pytest
import torch

from mgcaffe.errors import NetError
from tests.support.layerkit import check_gradients, forward_backward, make_layer
from tests.support.layouts import LAYOUTS, random_input

pytestmark = pytest.mark.slow


def text(fields: str, tops: int = 1) -> str:
    names = " ".join(f'top: "y{index}"' for index in range(tops))
    return f'name: "pool" type: "Pooling" bottom: "x" {names} pooling_param {{ {fields} }}'


def pooled_size(size: int, kernel: int, stride: int, pad: int, any_pad: bool, ceil: bool) -> int:
    count = (math.ceil if ceil else math.floor)((size + 2 * pad - kernel) / stride) + 1
    return count - 1 if any_pad and (count - 1) * stride >= size + pad else count


def reference(
    x: np.ndarray, dy_of: dict, average: bool, kernel: tuple, stride: tuple, pad: tuple, ceil: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Caffe's pooling, window by window: tops, mask, and the bottom's gradient for the given top gradient."""
    batch, channels, height, width = x.shape
    sizes = [pooled_size(x.shape[2 + a], kernel[a], stride[a], pad[a], any(pad), ceil) for a in (0, 1)]
    y, mask = np.zeros((batch, channels, *sizes)), np.full((batch, channels, *sizes), -1.0)
    dx = np.zeros_like(x)
    dy = np.random.default_rng(4).standard_normal(y.shape)
    dy_of["dy"] = dy
    for n, c, i, j in itertools.product(range(batch), range(channels), *map(range, sizes)):
        top, left = i * stride[0] - pad[0], j * stride[1] - pad[1]
        bottom, right = min(top + kernel[0], height + pad[0]), min(left + kernel[1], width + pad[1])
        area = (bottom - top) * (right - left)
        inside = list(
            itertools.product(range(max(top, 0), min(bottom, height)), range(max(left, 0), min(right, width)))
        )
        if not inside:
            continue
        if average:
            y[n, c, i, j] = sum(x[n, c, h, w] for h, w in inside) / area
            for h, w in inside:
                dx[n, c, h, w] += dy[n, c, i, j] / area
        else:
            h, w = max(inside, key=lambda place: x[n, c, place[0], place[1]])
            y[n, c, i, j], mask[n, c, i, j] = x[n, c, h, w], h * width + w
            dx[n, c, h, w] += dy[n, c, i, j]
    return y, mask, dx


GEOMETRIES = [
    ((2, 2), (2, 2), (0, 0)),
    ((3, 3), (2, 2), (0, 0)),
    ((3, 3), (2, 2), (1, 1)),
    ((3, 3), (1, 1), (1, 1)),
    ((3, 2), (2, 3), (1, 0)),
    ((3, 3), (2, 2), (2, 2)),
    ((4, 3), (1, 3), (3, 2)),
    ((1, 1), (2, 2), (0, 0)),
    ((2, 1), (3, 4), (0, 0)),
    ((2, 2), (4, 4), (1, 1)),
    ((9, 9), (2, 2), (0, 0)),
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("ceil", [True, False])
@pytest.mark.parametrize("pool", ["MAX", "AVE"])
@pytest.mark.parametrize(("kernel", "stride", "pad"), GEOMETRIES)
@pytest.mark.parametrize("size", [(8, 8), (7, 10), (9, 6)])
def test_agrees_with_the_definition(layout, ceil, pool, kernel, stride, pad, size) -> None:
    x = random_input((2, 3, *size), layout).mul(2).round() / 2
    fields = f"pool: {pool} kernel_h: {kernel[0]} kernel_w: {kernel[1]} stride_h: {stride[0]} stride_w: {stride[1]}"
    fields += f" pad_h: {pad[0]} pad_w: {pad[1]} round_mode: {'CEIL' if ceil else 'FLOOR'}"
    if min(pooled_size(size[a], kernel[a], stride[a], pad[a], any(pad), ceil) for a in (0, 1)) < 1:
        with pytest.raises(NetError, match="does not fit"):
            make_layer(text(fields), [tuple(x.shape)])
        return
    given: dict = {}
    expected, mask, dx_expected = reference(x.numpy(), given, pool == "AVE", kernel, stride, pad, ceil)
    tops = 2 if pool == "MAX" else 1
    layer, shapes = make_layer(text(fields, tops), [tuple(x.shape)])
    assert shapes == [expected.shape] * tops
    dy = torch.tensor(given["dy"])
    ys, (dx,) = forward_backward(layer, [x], [dy] * tops)
    np.testing.assert_allclose(ys[0].numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(dx.numpy(), dx_expected, atol=1e-12)
    if pool == "MAX":
        np.testing.assert_array_equal(ys[1].numpy(), mask)


@pytest.mark.parametrize("pad", [0, 1, 2])
def test_a_window_of_minus_infinity_alone_has_no_place(pad) -> None:
    x = torch.full((1, 2, 4, 4), -math.inf, dtype=torch.float64)
    x[0, 1] = torch.arange(16.0).view(4, 4)
    layer, _ = make_layer(text(f"kernel_size: 3 stride: 2 pad: {pad}", 2), [tuple(x.shape)])
    y, mask = layer.forward([x])
    assert (y[0, 0] == -math.inf).all() and (mask[0, 0] == -1).all()
    torch.testing.assert_close(mask[0, 1], y[0, 1])


@pytest.mark.parametrize("pool", ["MAX", "AVE"])
@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
def test_global_pooling_follows_the_bottoms_size(pool, layout) -> None:
    layer, (shape,) = make_layer(text(f"pool: {pool} global_pooling: true"), [(2, 3, 4, 5)])
    assert shape == (2, 3, 1, 1)
    x = random_input((2, 3, 4, 5), layout)
    check_gradients(layer, [x])
    assert layer.reshape([(1, 3, 2, 2)]) == [(1, 3, 1, 1)]
    x = random_input((1, 3, 2, 2), layout)
    (y,) = layer.forward([x])
    torch.testing.assert_close(y, x.amax((2, 3), True) if pool == "MAX" else x.mean((2, 3), keepdim=True))


@pytest.mark.parametrize("pool", ["MAX", "AVE"])
def test_formats_are_kept(pool) -> None:
    for fields in ("kernel_size: 3 stride: 2", "global_pooling: true"):
        layer, (shape,) = make_layer(text(f"pool: {pool} {fields}"), [(2, 8, 6, 6)])
        x = random_input((2, 8, 6, 6), "channels_last")
        (y,), (dx,) = forward_backward(layer, [x], [random_input(shape, "channels_last")])
        assert y.is_contiguous(memory_format=torch.channels_last)
        assert dx.is_contiguous(memory_format=torch.channels_last)


def test_the_bottom_may_be_overwritten_before_backward() -> None:
    layer, (shape,) = make_layer(text("kernel_size: 2 stride: 2"), [(1, 2, 4, 4)])
    x = random_input((1, 2, 4, 4))
    layer.forward([x])
    dy = torch.ones(shape, dtype=torch.float64)
    (before,) = layer.backward([dy], [True])
    x.zero_()
    (after,) = layer.backward([dy], [True])
    assert not layer.keeps_bottoms
    assert torch.equal(before, after)


@pytest.mark.parametrize(
    ("fields", "tops", "message"),
    [
        ("", 1, "kernel_size has to be at least 1"),
        ("kernel_size: 2 kernel_h: 2 kernel_w: 2", 1, "either kernel_size or kernel_h and kernel_w"),
        ("kernel_h: 2 kernel_w: 0", 1, "kernel_size has to be at least 1"),
        ("kernel_h: 2", 1, "kernel_h and kernel_w have to be given together"),
        ("kernel_size: 2 stride: 1 stride_h: 1", 1, "either stride or stride_h"),
        ("kernel_size: 2 pad: 1 pad_w: 1", 1, "either pad or pad_h"),
        ("kernel_size: 2 stride_h: 1", 1, "stride_h and stride_w have to be given together"),
        ("kernel_size: 2 pad_w: 1", 1, "pad_h and pad_w have to be given together"),
        ("kernel_size: 2 stride: 0", 1, "stride has to be at least 1"),
        ("kernel_size: 2 stride: 2 stride_h: 1 stride_w: 1", 1, "either stride or stride_h"),
        ("kernel_size: 2 pad: 2", 1, "smaller than the kernel"),
        ("kernel_size: 2 global_pooling: true", 1, "global_pooling takes no kernel_size"),
        ("pad: 1 global_pooling: true", 1, "global_pooling needs pad 0 and stride 1"),
        ("stride_h: 1 stride_w: 2 global_pooling: true", 1, "global_pooling needs pad 0 and stride 1"),
        ("kernel_size: 2 pad: 1 pool: STOCHASTIC", 1, "STOCHASTIC pooling takes no pad"),
        ("kernel_size: 2 pad_h: 0 pad_w: 1 pool: STOCHASTIC", 1, "STOCHASTIC pooling takes no pad"),
        ("kernel_size: 2 pool: AVE", 2, "only MAX pooling has a second top"),
        ("kernel_size: 2 avg_include_pad: false", 1, "avg_include_pad is a field of another Caffe"),
        ("kernel_size: 2 round_mode: FLOOR ceil_mode: true", 1, "round_mode and ceil_mode say the opposite"),
        ("kernel_size: 9 round_mode: FLOOR", 1, "does not fit"),
    ],
)
def test_wrong_fields_are_errors(fields, tops, message) -> None:
    with pytest.raises(NetError, match=message) as caught:
        make_layer(text(fields, tops), [(1, 2, 5, 5)])
    assert "layer 'pool'" in str(caught.value)


@pytest.mark.parametrize("side", ["kernel_h", "kernel_w"])
def test_one_side_beside_kernel_size_has_no_effect_and_a_warning_says_so(side, caplog) -> None:
    layer, (shape,) = make_layer(text(f"kernel_size: 2 {side}: 4 stride: 2"), [(1, 2, 6, 6)])
    assert (layer.kernel, shape) == ((2, 2), (1, 2, 3, 3))
    assert [record.getMessage() for record in caplog.records] == [
        f"{side} has no effect beside kernel_size and without its partner (layer 'pool')"
    ]


def test_four_axes_are_needed() -> None:
    with pytest.raises(NetError, match="needs 4 axes"):
        make_layer(text("kernel_size: 2"), [(2, 5, 5)])


@pytest.mark.parametrize(
    ("fields", "size"),
    [
        ("", 4),
        ("round_mode: CEIL", 4),
        ("ceil_mode: true", 4),
        ("torch_pooling: false", 4),
        ("round_mode: FLOOR", 3),
        ("ceil_mode: false", 3),
        ("torch_pooling: true", 3),
        ("ceil_mode: false round_mode: FLOOR", 3),
    ],
)
@pytest.mark.parametrize("pool", ["MAX", "AVE"])
def test_every_name_of_the_rounding_counts(fields, size, pool) -> None:
    layer, (shape,) = make_layer(text(f"pool: {pool} kernel_size: 3 stride: 2 {fields}"), [(1, 2, 8, 8)])
    assert shape == (1, 2, size, size)
    (y,) = layer.forward([random_input((1, 2, 8, 8))])
    assert tuple(y.shape) == shape
