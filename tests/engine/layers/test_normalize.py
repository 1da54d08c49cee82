"""Normalize: the formula under autograd, differences, and its fields."""

import pytest
import torch

from mgcaffe.errors import NetError
from tests.support.autograd import check_against_autograd
from tests.support.layerkit import check_gradients, make_layer
from tests.support.layouts import LAYOUTS, random_input

FIELDS = [f"across_spatial: {a} channel_shared: {b}" for a in ("true", "false") for b in ("true", "false")]
UNEQUAL = 'scale_filler { type: "uniform" min: 1 max: 20 } eps: 0.01'


def normalize(fields: str, shape: tuple[int, ...]):
    return make_layer(f'name: "n" type: "Normalize" bottom: "x" top: "y" norm_param {{ {fields} }}', [shape])[0]


def formula(fields: str, eps: float):
    def function(x, s):
        axes = list(range(1, x.dim())) if "across_spatial: true" in fields else [1]
        return x / (x.square().sum(axes, keepdim=True) + eps).sqrt() * s.reshape(1, -1, *[1] * (x.dim() - 2))

    return function


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("fields", FIELDS)
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (3, 4), (2, 3, 5)])
def test_agrees_with_autograd(shape, fields, layout):
    layer = normalize(f"{fields} {UNEQUAL}", shape)
    check_against_autograd(layer, [random_input(shape, layout)], formula(fields, layer.eps), tolerance=1e-11)


@pytest.mark.parametrize("fields", FIELDS)
def test_gradient_agrees_with_differences(fields):
    check_gradients(normalize(f"{fields} {UNEQUAL}", (2, 3, 2, 2)), [random_input((2, 3, 2, 2))])


def test_by_default_an_image_as_a_whole_gets_length_1():
    layer = normalize("", (2, 3, 4, 5))
    assert (layer.parameters[0].shape, layer.eps) == ((), pytest.approx(1e-10))
    (y,) = layer.forward([random_input((2, 3, 4, 5)) * 7])
    torch.testing.assert_close(y.flatten(1).norm(dim=1), torch.ones(2, dtype=torch.float64))


def test_a_factor_without_a_gradient_leaves_the_bottoms_as_it_is():
    layer = normalize(FIELDS[3], (2, 3, 2))
    x, dy = random_input((2, 3, 2)), random_input((2, 3, 2), seed=2)
    layer.forward([x])
    (expected,) = layer.backward([dy], [True])
    layer.parameters[0].wanted = False
    layer.parameters[0].clear_diff()
    (dx,) = layer.backward([dy], [True])
    assert torch.equal(dx, expected)
    assert not layer.parameters[0].diff.any()


@pytest.mark.parametrize(
    ("fields", "shape", "message"),
    [("", (3,), "needs a channel axis"), ("eps: -1", (2, 3), "eps has to be 0 or more")],
)
def test_wrong_fields_are_errors(fields, shape, message):
    with pytest.raises(NetError, match=message):
        normalize(fields, shape)


def test_channels_may_not_change():
    layer = normalize("channel_shared: false", (2, 3, 4))
    assert layer.reshape([(5, 3, 1)]) == [(5, 3, 1)]
    with pytest.raises(NetError, match="there are 3 factors"):
        layer.reshape([(2, 4, 4)])
