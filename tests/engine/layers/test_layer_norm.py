"""LayerNorm: against PyTorch's own and against differences, its parameters, and its errors."""

import pytest
import torch

from mgcaffe.errors import NetError
from tests.support.autograd import check_against_autograd
from tests.support.layerkit import check_gradients, make_layer
from tests.support.layouts import LAYOUTS, random_input

F = torch.nn.functional
SHAPE = (2, 3, 4, 5)
FILLERS = 'scale_filler { type: "gaussian" std: 1 } bias_filler { type: "gaussian" std: 1 }'


def layer_norm(fields: str = "", shape: tuple[int, ...] = SHAPE):
    return make_layer(f'name: "n" type: "LayerNorm" bottom: "x" top: "y" layer_norm_param {{ {fields} }}', [shape])[0]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axis", [-1, 1, 2, 0])
@pytest.mark.parametrize("fields", ["", "affine: false", "bias_term: false", "eps: 0.5"])
def test_agrees_with_autograd(axis, layout, fields):
    layer = layer_norm(f"axis: {axis} {fields} {FILLERS}")
    normalized = SHAPE[axis:]
    check_against_autograd(
        layer, [random_input(SHAPE, layout)], lambda x, *affine: F.layer_norm(x, normalized, *affine, eps=layer.eps)
    )


@pytest.mark.parametrize("fields", ["", "affine: false", "bias_term: false", "axis: 1"])
def test_gradient_agrees_with_differences(fields):
    check_gradients(layer_norm(f"{fields} {FILLERS}", (3, 2, 4)), [random_input((3, 2, 4))])


def test_scale_and_bias_begin_with_one_and_zero_and_have_the_normalized_shape():
    scale, bias = layer_norm("axis: 2").parameters
    assert scale.shape == bias.shape == (4, 5)
    assert (scale.data == 1).all() and (bias.data == 0).all()
    assert layer_norm("affine: false").parameters == []


def test_a_frozen_scale_gets_no_gradient():
    text = 'name: "n" type: "LayerNorm" bottom: "x" top: "y" param { lr_mult: 0 } param { }'
    layer, _ = make_layer(text, [SHAPE])
    layer.forward([random_input(SHAPE)])
    layer.backward([random_input(SHAPE, seed=6)], [False])
    scale, bias = layer.parameters
    assert not scale.diff.any() and bias.diff.all()


def test_a_batch_of_no_items_passes():
    layer = layer_norm(shape=(0, 4))
    (y,) = layer.forward([torch.zeros((0, 4), dtype=torch.float64)])
    (dx,) = layer.backward([torch.zeros((0, 4), dtype=torch.float64)], [True])
    assert y.shape == dx.shape == (0, 4)


@pytest.mark.parametrize(
    ("fields", "shape", "message"),
    [
        ("axis: 4", SHAPE, "axis 4 does not exist in a blob with 4 axes"),
        ("eps: -1", SHAPE, "eps has to be 0 or more, not -1"),
        ("", (2, 0), "there is nothing to normalize"),
    ],
)
def test_errors(fields, shape, message):
    with pytest.raises(NetError, match=message):
        layer_norm(fields, shape)


def test_a_bottom_of_another_size_is_refused():
    with pytest.raises(NetError, match=r"the bottom changed to shape \(2, 7\); the scale has shape \(3,\)"):
        layer_norm(shape=(2, 3)).reshape([(2, 7)])
