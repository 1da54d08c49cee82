"""What all layers keep that work value by value: formula, gradient, memory formats, working in place."""

import pytest
import torch

from mgcaffe.engine.layer_context import LayerContext
from tests.support.autograd import check_against_autograd
from tests.support.layerkit import check_gradients, forward_backward, make_layer
from tests.support.layouts import LAYOUTS, random_input

pytestmark = pytest.mark.slow

SHAPE = (2, 3, 4, 5)
F = torch.nn.functional

# The inside of the layer, and its function of the bottom and the parameters.
NEURONS = {
    "relu": ('type: "ReLU"', torch.relu),
    "relu_with_negative_slope": (
        'type: "ReLU" relu_param { negative_slope: 0.25 }',
        lambda x: torch.where(x > 0, x, 0.25 * x),
    ),
    "relu_with_slope_below_zero": (
        'type: "ReLU" relu_param { negative_slope: -0.5 }',
        lambda x: torch.where(x > 0, x, -0.5 * x),
    ),
    "prelu": (
        'type: "PReLU" prelu_param { filler { type: "gaussian" std: 1 } }',
        lambda x, a: torch.where(x > 0, x, a.reshape(1, -1, 1, 1) * x),
    ),
    "prelu_channel_shared": (
        'type: "PReLU" prelu_param { channel_shared: true }',
        lambda x, a: torch.where(x > 0, x, a * x),
    ),
    "sigmoid": ('type: "Sigmoid"', torch.sigmoid),
    "tanh": ('type: "TanH"', torch.tanh),
    "power": (
        'type: "Power" power_param { power: 3 scale: -0.5 shift: 2 }',
        lambda x: (2 - 0.5 * x) ** 3,
    ),
    "power_shift_zero": ('type: "Power" power_param { power: 3 scale: 2 }', lambda x: (2 * x) ** 3),
    "power_zero": ('type: "Power" power_param { power: 0 scale: 2 shift: 1 }', lambda x: x * 0 + 1),
    "power_scale_zero": (
        'type: "Power" power_param { power: 2 scale: 0 shift: 3 }',
        lambda x: x * 0 + 9,
    ),
    "power_one": ('type: "Power" power_param { scale: 2 shift: -1 }', lambda x: 2 * x - 1),
    "power_two": ('type: "Power" power_param { power: 2 shift: 1 }', lambda x: (1 + x) ** 2),
    "power_two_scale_half": ('type: "Power" power_param { power: 2 scale: 0.5 }', lambda x: (0.5 * x) ** 2),
    "softmax": ('type: "Softmax"', lambda x: torch.softmax(x, 1)),
    "softmax_axis": ('type: "Softmax" softmax_param { axis: -1 }', lambda x: torch.softmax(x, -1)),
    "absval": ('type: "AbsVal"', torch.abs),
    "bnll": ('type: "BNLL"', lambda x: torch.logaddexp(x, torch.zeros_like(x))),
    "clip": ('type: "Clip" clip_param { min: -0.5 max: 0.75 }', lambda x: x.clamp(-0.5, 0.75)),
    "elu": ('type: "ELU" elu_param { alpha: 0.5 }', lambda x: F.elu(x, 0.5)),
    "elu_as_relu": ('type: "ELU" elu_param { alpha: 0 }', torch.relu),
    "elu_with_alpha_below_zero": ('type: "ELU" elu_param { alpha: -0.5 }', lambda x: F.elu(x, -0.5)),
    "exp": ('type: "Exp"', torch.exp),
    "exp_shift": ('type: "Exp" exp_param { shift: 1 }', lambda x: torch.exp(1 + x)),
    "exp_base_2": ('type: "Exp" exp_param { base: 2 }', torch.exp2),
    "exp_base_2_shift_1": ('type: "Exp" exp_param { base: 2 shift: 1 }', lambda x: torch.exp2(1 + x)),
    "exp_base_2_scale_3": ('type: "Exp" exp_param { base: 2 scale: 3 }', lambda x: torch.exp2(3 * x)),
    "exp_base_2_shift_1_scale_3": (
        'type: "Exp" exp_param { base: 2 shift: 1 scale: 3 }',
        lambda x: torch.exp2(1 + 3 * x),
    ),
    "log_shift_8": ('type: "Log" log_param { shift: 8 }', lambda x: torch.log(8 + x)),
    "log_base_2_shift_8_scale_half": (
        'type: "Log" log_param { base: 2 shift: 8 scale: -0.5 }',
        lambda x: torch.log2(8 - 0.5 * x),
    ),
    "swish": ('type: "Swish"', F.silu),
    "swish_with_beta": ('type: "Swish" swish_param { beta: 1.5 }', lambda x: x * torch.sigmoid(1.5 * x)),
    "swish_as_linear": ('type: "Swish" swish_param { beta: 0 }', lambda x: x / 2),
    "hard_swish": ('type: "HardSwish"', lambda x: x * (x + 3).clamp(0, 6) / 6),
    "hard_sigmoid": ('type: "HardSigmoid"', lambda x: (x + 3).clamp(0, 6) / 6),
    "hard_sigmoid_steep": (
        'type: "HardSigmoid" hard_sigmoid_param { alpha: 2 beta: 0.75 }',
        lambda x: (2 * x + 0.75).clamp(0, 1),
    ),
    "gelu": ('type: "GELU"', lambda x: x * (1 + torch.erf(x / 2**0.5)) / 2),
    "gelu_tanh": (
        'type: "GELU" gelu_param { approximate: TANH }',
        lambda x: x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))) / 2,
    ),
    "dropout_test_phase": ('type: "Dropout" phase: TEST', lambda x: x * 1),
}


def make(name: str, shape: tuple[int, ...] = SHAPE):
    text, function = NEURONS[name]
    layer, top_shapes = make_layer(f'name: "l" bottom: "x" top: "y" {text}', [shape])
    assert top_shapes == [shape]
    return layer, function


def away_from_zero(x: torch.Tensor) -> torch.Tensor:
    return x + 0.05 * torch.sign(x)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NEURONS)
def test_agrees_with_autograd(name, layout):
    layer, function = make(name)
    check_against_autograd(layer, [random_input(SHAPE, layout)], function)


@pytest.mark.parametrize("name", NEURONS)
def test_gradient_agrees_with_differences(name):
    layer, _ = make(name, (2, 3, 2, 2))
    check_gradients(layer, [away_from_zero(random_input((2, 3, 2, 2)))])


@pytest.mark.parametrize("name", NEURONS)
def test_in_place_changes_no_result(name):
    layer, function = make(name)
    x = random_input(SHAPE)
    dy = random_input(SHAPE, seed=6)
    leaf = x.clone().requires_grad_()
    expected = function(leaf, *[parameter.data for parameter in layer.parameters])
    expected.backward(dy)
    layer.may_overwrite_bottom, layer.may_overwrite_top_diff = True, [True]
    (y,) = layer.forward([x])
    torch.testing.assert_close(y, expected.detach(), rtol=1e-12, atol=1e-12)
    (dx,) = layer.backward([dy], [True])
    torch.testing.assert_close(dx, leaf.grad, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NEURONS)
def test_without_backward_it_works_in_place_and_keeps_nothing(name):
    layer, function = make(name)
    layer.backward_follows, layer.may_overwrite_bottom = False, True
    x = random_input(SHAPE)
    expected = function(x.clone(), *[parameter.data for parameter in layer.parameters])
    (y,) = layer.forward([x])
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)
    assert y.data_ptr() == x.data_ptr()
    assert layer.saved is None


@pytest.mark.parametrize("name", [name for name in NEURONS if not name.startswith("softmax")])
def test_channels_last_stays_channels_last(name):
    layer, _ = make(name)
    x = random_input(SHAPE, "channels_last")
    layer.may_overwrite_top_diff = [False]
    (y,) = layer.forward([x])
    (dx,) = layer.backward([random_input(SHAPE, "channels_last", seed=6)], [True])
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert dx.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("name", NEURONS)
def test_unwanted_gradient_is_not_computed(name):
    layer, _ = make(name)
    layer.may_overwrite_top_diff = [False]
    layer.forward([random_input(SHAPE)])
    assert layer.backward([random_input(SHAPE)], [False]) == [None]


def test_a_hard_sigmoid_of_float32_is_pytorchs():
    layer, _ = make_layer(
        "name: 'l' type: 'HardSigmoid' bottom: 'x' top: 'y'", [(4, 50)], context=LayerContext(dtype=torch.float32)
    )
    generator = torch.Generator().manual_seed(1)
    x, dy = (3 * torch.randn(4, 50, generator=generator) for _ in range(2))
    (y,), (dx,) = forward_backward(layer, [x], [dy.clone()])
    line = x / 6 + 0.5
    torch.testing.assert_close(y, line.clamp(0, 1))
    torch.testing.assert_close(dx, torch.where((line > 0) & (line < 1), dy / 6, 0))
