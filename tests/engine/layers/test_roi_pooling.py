"""ROIPooling: Fast R-CNN's loops in numpy, differences, and its errors."""

import math

import numpy as np
import pytest
import torch

from mgcaffe.engine.layers import roi_pooling
from mgcaffe.errors import DataError, NetError
from tests.support.layerkit import check_gradients, forward_backward, make_layer
from tests.support.layouts import LAYOUTS, random_input

SHAPE = (2, 3, 9, 11)
RECTANGLES = [
    (0, 0, 0, 10, 8),
    (1, 2, 3, 7, 5),
    (1, 4, 4, 4, 4),  # one pixel
    (0, 6, 5, 3, 2),  # corners the wrong way round: one pixel
    (0, -4, -3, 3, 2),  # over the edge
    (1, 8, 6, 30, 20),
    (0, 40, 40, 50, 50),  # outside
    (1, 2.5, 3.5, 6.5, 7.49),
]


def roi(fields: str, count: int, shape: tuple[int, ...] = SHAPE, rows: tuple[int, ...] = (5,)):
    text = f'name: "r" type: "ROIPooling" bottom: "x" bottom: "rois" top: "y" roi_pooling_param {{ {fields} }}'
    return make_layer(text, [shape, (count, *rows)])


def c_round(value: float) -> int:
    return int(math.copysign(math.floor(abs(value) + 0.5), value))


def reference(x, rectangles, grid, scale, dy):
    y, dx = np.zeros((len(rectangles), x.shape[1], *grid)), np.zeros_like(x)
    height, width = x.shape[2:]
    for r, (image, *corners) in enumerate(rectangles):
        left, top, right, bottom = (c_round(corner * scale) for corner in corners)
        cell_h, cell_w = max(bottom - top + 1, 1) / grid[0], max(right - left + 1, 1) / grid[1]
        for c, i, j in np.ndindex(x.shape[1], *grid):
            rows = range(
                min(max(math.floor(i * cell_h) + top, 0), height),
                min(max(math.ceil((i + 1) * cell_h) + top, 0), height),
            )
            columns = range(
                min(max(math.floor(j * cell_w) + left, 0), width),
                min(max(math.ceil((j + 1) * cell_w) + left, 0), width),
            )
            places = [(h, w) for h in rows for w in columns]
            if places:
                best = max(places, key=lambda place: x[int(image), c, place[0], place[1]])
                y[r, c, i, j] = x[int(image), c, best[0], best[1]]
                dx[int(image), c, best[0], best[1]] += dy[r, c, i, j]
    return y, dx


@pytest.mark.parametrize("at_once", [1, 1 << 24])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("fields", "grid", "scale"),
    [
        ("pooled_h: 3 pooled_w: 2", (3, 2), 1.0),
        ("pooled_size: 4", (4, 4), 1.0),
        ("pooled_size: 2 pooled_size: 5 spatial_scale: 0.5", (2, 5), 0.5),
    ],
)
def test_agrees_with_the_definition(fields, grid, scale, layout, at_once, monkeypatch):
    monkeypatch.setattr(roi_pooling, "_VALUES_AT_ONCE", at_once)
    layer, (shape,) = roi(fields, len(RECTANGLES))
    # Values that repeat, so that the first of equals matters.
    x = (random_input(SHAPE, layout) * 2).round() / 2
    dy = random_input((len(RECTANGLES), 3, *grid), layout, seed=9)
    y_expected, dx_expected = reference(x.numpy(), RECTANGLES, grid, scale, dy.numpy())
    assert shape == y_expected.shape
    layer.wants_bottom = [True, False]
    (y,), (dx, nothing) = forward_backward(layer, [x, torch.tensor(RECTANGLES, dtype=torch.float64)], [dy])
    np.testing.assert_array_equal(y.numpy(), y_expected)
    np.testing.assert_allclose(dx.numpy(), dx_expected, atol=1e-12)
    assert nothing is None


def test_gradient_agrees_with_differences():
    layer, _ = roi("pooled_h: 2 pooled_w: 2", 2, (1, 2, 4, 4), (5, 1, 1))
    rectangles = torch.tensor([[0.0, 0, 0, 3, 3], [0, 1, 0, 2, 3]], dtype=torch.float64).reshape(2, 5, 1, 1)
    layer.wants_bottom = [True, False]
    check_gradients(layer, [random_input((1, 2, 4, 4)), rectangles])


def test_no_rectangles_give_an_empty_top_and_no_gradient():
    layer, (shape,) = roi("pooled_h: 2 pooled_w: 2", 0)
    layer.wants_bottom = [True, False]
    assert shape == (0, 3, 2, 2)
    empty = torch.empty(0, 5, dtype=torch.float64)
    (y,), (dx, _) = forward_backward(layer, [random_input(SHAPE), empty], [torch.empty(shape, dtype=torch.float64)])
    assert y.shape == shape
    assert dx.shape == SHAPE
    assert not dx.any()


@pytest.mark.parametrize("rectangle", [(2, 0, 0, 1, 1), (-1, 0, 0, 1, 1), (0, float("nan"), 0, 1, 1)])
def test_a_rectangle_of_no_image_is_a_data_error(rectangle):
    layer, _ = roi("pooled_h: 2 pooled_w: 2", 1)
    with pytest.raises(DataError, match=r"rectangle 0 of blob 'rois' is .* blob 'x', 0 to 1"):
        layer.forward([random_input(SHAPE), torch.tensor([rectangle], dtype=torch.float64)])


@pytest.mark.parametrize(
    ("fields", "shape", "rows", "message"),
    [
        ("pooled_h: 2", SHAPE, (5,), "pooled_h and pooled_w are 2 and 0"),
        ("pooled_h: 2 pooled_size: 2", SHAPE, (5,), "pooled_size excludes pooled_h"),
        ("pooled_size: [1, 2, 3]", SHAPE, (5,), "pooled_size is given 3 times"),
        ("pooled_size: 2 spatial_scale: 0", SHAPE, (5,), "spatial_scale has to be above 0"),
        ("pooled_size: 2", (2, 3, 4), (5,), "bottom 0 needs 4 axes"),
        ("pooled_size: 2", SHAPE, (4,), "five numbers a rectangle"),
    ],
)
def test_what_does_not_fit_is_an_error(fields, shape, rows, message):
    with pytest.raises(NetError, match=message):
        roi(fields, 2, shape, rows)
