"""Interp: DeepLab's interpolation pixel by pixel in numpy, autograd, differences, and its sizes."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from mgcaffe.errors import NetError
from tests.support.autograd import check_against_autograd
from tests.support.layerkit import check_gradients, forward_backward, make_layer
from tests.support.layouts import LAYOUTS, random_input


def interp(fields: str, *shapes: tuple[int, ...]):
    bottoms = " ".join(f'bottom: "{name}"' for name in "xs"[: len(shapes)])
    text = f'name: "i" type: "Interp" {bottoms} top: "y" interp_param {{ {fields} }}'
    return make_layer(text, list(shapes))


def reference(x: np.ndarray, rows: int, columns: int) -> np.ndarray:
    height, width = x.shape[2:]
    y = np.zeros((*x.shape[:2], rows, columns))
    row_step = (height - 1) / (rows - 1) if rows > 1 else 0.0
    column_step = (width - 1) / (columns - 1) if columns > 1 else 0.0
    for i in range(rows):
        top, down = int(i * row_step), i * row_step - int(i * row_step)
        low = min(top + 1, height - 1)
        for j in range(columns):
            left, across = int(j * column_step), j * column_step - int(j * column_step)
            right = min(left + 1, width - 1)
            y[:, :, i, j] = (1 - down) * ((1 - across) * x[:, :, top, left] + across * x[:, :, top, right])
            y[:, :, i, j] += down * ((1 - across) * x[:, :, low, left] + across * x[:, :, low, right])
    return y


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("fields", "size"),
    [
        ("height: 9 width: 4", (9, 4)),
        ("height: 1 width: 1", (1, 1)),
        ("height: 5 width: 6", (5, 6)),
        ("zoom_factor: 3", (13, 16)),
        ("shrink_factor: 2", (3, 3)),
        ("zoom_factor: 2 shrink_factor: 2", (5, 5)),
        ("zoom_factor: 2 pad_beg: -1", (7, 9)),
        ("height: 4 width: 7 pad_beg: -1 pad_end: -2", (4, 7)),
    ],
)
def test_agrees_with_the_definition_and_autograd(fields, size, layout):
    layer, (shape,) = interp(fields, (2, 3, 5, 6))
    x = random_input((2, 3, 5, 6), layout)
    begin, end = (1 if "pad_beg" in fields else 0), (2 if "pad_end" in fields else 0)
    inner = x[:, :, begin : 5 - end, begin : 6 - end]
    assert shape == (2, 3, *size)
    (y,) = layer.forward([x])
    np.testing.assert_allclose(y.numpy(), reference(inner.numpy(), *size), atol=1e-12)

    def function(x):
        inner = x[:, :, begin : 5 - end, begin : 6 - end]
        return functional.interpolate(inner, size, mode="bilinear", align_corners=True)

    check_against_autograd(layer, [x], function)


def test_a_second_bottom_lends_its_size():
    layer, (shape,) = interp("", (2, 3, 4, 4), (1, 9, 7, 5))
    assert shape == (2, 3, 7, 5)
    x, other = random_input((2, 3, 4, 4)), random_input((1, 9, 7, 5))
    layer.wants_bottom = [True, False]
    _, (dx, nothing) = forward_backward(layer, [x, other], [torch.ones(shape, dtype=torch.float64)])
    assert nothing is None
    assert not layer.differentiable(1)
    torch.testing.assert_close(dx.sum(), torch.tensor(2.0 * 3 * 7 * 5, dtype=torch.float64))


@pytest.mark.parametrize("fields", ["height: 3 width: 5", "zoom_factor: 2 pad_end: -1"])
def test_gradient_agrees_with_differences(fields):
    check_gradients(interp(fields, (1, 2, 3, 3))[0], [random_input((1, 2, 3, 3))])


def test_the_top_follows_a_bottom_that_changes():
    layer, _ = interp("zoom_factor: 2", (1, 1, 3, 3))
    assert layer.reshape([(2, 1, 4, 5)]) == [(2, 1, 7, 9)]


@pytest.mark.parametrize(
    ("fields", "shapes", "message"),
    [
        ("", [(1, 1, 3, 3)], "nothing says the size of the top"),
        ("height: 3", [(1, 1, 3, 3)], "height and width go together"),
        ("height: 3 width: 3 zoom_factor: 2", [(1, 1, 3, 3)], "in more than one way"),
        ("zoom_factor: 2", [(1, 1, 3, 3), (1, 1, 3, 3)], "in more than one way"),
        ("zoom_factor: 0", [(1, 1, 3, 3)], "zoom_factor has to be at least 1, not 0"),
        ("zoom_factor: 2 pad_beg: 1", [(1, 1, 3, 3)], "pad_beg 1: only cutting off is possible"),
        ("zoom_factor: 2 pad_beg: -3", [(1, 1, 3, 3)], "leave nothing of a bottom"),
        ("zoom_factor: 2", [(1, 3, 3)], "bottom 0 needs 4 axes"),
    ],
)
def test_wrong_fields_are_errors(fields, shapes, message):
    with pytest.raises(NetError, match=message):
        interp(fields, *shapes)
