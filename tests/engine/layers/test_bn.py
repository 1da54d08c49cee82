"""BN: both forks' kinds against autograd, their averages, and how they are distinguished."""

import pytest
import torch
from torch.nn import functional

from mgcaffe.errors import NetError
from tests.support.autograd import check_against_autograd
from tests.support.layerkit import check_gradients, forward_backward, make_layer
from tests.support.layouts import LAYOUTS, random_input
from tests.support.netkit import inputs, make_net

SHAPE = (3, 4, 2, 5)
UNIFORM = '{ type: "uniform" min: 0.5 max: 2 }'
MOVING = f"slope_filler {UNIFORM} bias_filler {UNIFORM}"
SEGNET = f"scale_filler {UNIFORM} shift_filler {UNIFORM}"


def bn(fields: str, shape: tuple[int, ...] = SHAPE, phase: int = 0, more: str = ""):
    text = f'name: "bn" type: "BN" bottom: "x" top: "y" {more} bn_param {{ {fields} }}'
    return make_layer(text, [shape], phase=phase)[0]


def by_batch(eps: float):
    def function(x, slope, bias, *averages):
        unused = sum(0 * average.sum() for average in averages)
        return functional.batch_norm(x, None, None, slope.reshape(-1), bias.reshape(-1), True, 0, eps) + unused

    return function


def fill_averages(layer) -> None:
    layer.parameters[2].data.copy_(random_input((1, 4, 1, 1), seed=21))
    layer.parameters[3].data.copy_(random_input((1, 4, 1, 1), seed=22).abs() + 0.5)


def by_averages(x, slope, bias, mean, variance):
    mean, variance = mean.detach().reshape(-1), variance.detach().reshape(-1)
    return functional.batch_norm(x, mean, variance, slope.reshape(-1), bias.reshape(-1), False, 0, 1e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [SHAPE, (6, 4), (3, 4, 7)])
@pytest.mark.parametrize(("fields", "eps"), [(MOVING, 1e-5), (f"{MOVING} eps: 0.125", 0.125), (SEGNET, 1e-9)])
def test_training_agrees_with_autograd(fields, eps, shape, layout):
    layer = bn(fields, shape)
    for parameter in layer.parameters[2:]:
        parameter.diff.zero_()
    check_against_autograd(layer, [random_input(shape, layout)], by_batch(eps), tolerance=1e-9)


@pytest.mark.parametrize("phase", [0, 1])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("fields", [SEGNET, f"{SEGNET} bn_mode: INFERENCE"])
def test_segnets_kind_knows_no_phase(fields, layout, phase):
    layer = bn(fields, phase=phase)
    function = by_batch(1e-9)
    if "INFERENCE" in fields:

        def function(x, slope, bias):
            return x * slope + bias

    check_against_autograd(layer, [random_input(SHAPE, layout)], function, tolerance=1e-9)
    assert len(layer.parameters) == 2


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_averages_are_used_in_tests(layout):
    layer = bn(MOVING, phase=1)
    fill_averages(layer)
    x, dy = random_input(SHAPE, layout), random_input(SHAPE, seed=4)
    leaves = [x.clone().requires_grad_(), *(p.data.clone().requires_grad_() for p in layer.parameters)]
    expected = by_averages(*leaves)
    expected.backward(dy)
    (y,), (dx,) = forward_backward(layer, [x], [dy])
    torch.testing.assert_close(y, expected.detach())
    torch.testing.assert_close(dx, leaves[0].grad)
    for parameter, leaf in zip(layer.parameters[:2], leaves[1:3], strict=True):
        torch.testing.assert_close(parameter.diff, leaf.grad)


def test_frozen_uses_the_averages_in_training_and_fixes_all_parameters():
    layer = bn(f"{MOVING} frozen: true")
    assert layer.parameters[3].data.eq(1).all()
    fill_averages(layer)
    before = [parameter.data.clone() for parameter in layer.parameters]
    x, dy = random_input(SHAPE), random_input(SHAPE, seed=4)
    (y,), (dx,) = forward_backward(layer, [x], [dy])
    torch.testing.assert_close(y, by_averages(x, *before))
    torch.testing.assert_close(dx, dy * before[0] / (before[3] + 1e-5).sqrt())
    assert [parameter.wanted or parameter.lr_mult for parameter in layer.parameters] == [0.0] * 4
    assert all(torch.equal(a.data, b) for a, b in zip(layer.parameters, before, strict=True))


def test_every_training_pass_moves_the_averages():
    layer = bn("momentum: 0.75 slope_filler { value: 1 }")
    mean, variance = torch.zeros(4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    for seed in (1, 2, 3):
        x = random_input(SHAPE, seed=seed)
        layer.forward([x])
        mean = 0.75 * mean + 0.25 * x.mean((0, 2, 3))
        variance = 0.75 * variance + 0.25 * x.var((0, 2, 3), correction=0)
    torch.testing.assert_close(layer.parameters[2].data.reshape(-1), mean)
    torch.testing.assert_close(layer.parameters[3].data.reshape(-1), variance)
    assert [parameter.measured for parameter in layer.parameters] == [False, False, True, True]


def test_a_batch_of_no_items_leaves_the_averages_as_they_are():
    layer = bn(MOVING)
    layer.forward([random_input(SHAPE)])
    before = [parameter.data.clone() for parameter in layer.parameters]
    layer.reshape([(0, *SHAPE[1:])])
    (y,) = layer.forward([torch.zeros(0, *SHAPE[1:], dtype=torch.float64)])
    assert y.shape == (0, *SHAPE[1:])
    for parameter, kept in zip(layer.parameters, before, strict=True):
        torch.testing.assert_close(parameter.data, kept)


@pytest.mark.parametrize("fields", [MOVING, f"{MOVING} frozen: true", SEGNET, f"{SEGNET} bn_mode: INFERENCE"])
def test_gradient_agrees_with_differences(fields):
    check_gradients(bn(fields, (3, 2, 2)), [random_input((3, 2, 2))])


def test_a_slope_without_filler_is_1():
    for fields in ("momentum: 0.5", "bn_mode: LEARN"):
        slope, bias = bn(fields).parameters[:2]
        assert (slope.data.unique().tolist(), bias.data.unique().tolist()) == ([1.0], [0.0])
        assert slope.shape == bias.shape == (1, 4, 1, 1)


@pytest.mark.parametrize(("slope", "bias"), [("slope_filler", "bias_filler"), ("scale_filler", "shift_filler")])
def test_slope_and_bias_begin_as_the_fillers_of_either_kind_say(slope, bias):
    layer = bn(f"{slope} {{ value: 3 }} {bias} {{ value: 2 }}")
    assert [parameter.data.unique().tolist() for parameter in layer.parameters[:2]] == [[3], [2]]


def test_multipliers_count_for_slope_and_bias_only():
    params = "param { lr_mult: 3 decay_mult: 0 } param { lr_mult: 2 } param { lr_mult: 1 } param { lr_mult: 1 }"
    layer = bn(MOVING, more=params)
    assert [parameter.lr_mult for parameter in layer.parameters] == [3, 2, 0, 0]


@pytest.mark.parametrize("order", [1, -1])
def test_averages_are_not_shared_with_what_is_learned(order):
    layers = [
        'layer { name: "bn" type: "BN" bottom: "x" top: "x" param { } param { } param { name: "a" } '
        "bn_param { momentum: 0.9 } }",
        'layer { name: "bias" type: "Bias" bottom: "x" top: "x" param { name: "a" lr_mult: 1 } }',
    ]
    with pytest.raises(NetError, match="one of the two is a statistic, which is measured and not learned"):
        make_net(inputs(x=SHAPE) + "".join(layers[::order]))


def test_averages_that_two_layers_share_are_not_learned_either():
    names = "".join(f'param {{ name: "{name}" lr_mult: 2 decay_mult: 3 }} ' for name in "abcd")
    layers = (
        f'layer {{ name: "{name}" type: "BN" bottom: "{name}" top: "{name}" {names} bn_param {{ momentum: 0.9 }} }}\n'
        for name in "xz"
    )
    net = make_net(inputs(x=SHAPE, z=SHAPE) + "".join(layers))
    assert [(each.lr_mult, each.decay_mult) for each in net.parameters] == [(2, 3), (2, 3), (0, 0), (0, 0)]


@pytest.mark.parametrize(
    ("fields", "shape", "message"),
    [
        ("", SHAPE, "no field is given, so it is not clear which Caffe's BN"),
        (f"{SEGNET} momentum: 0.9", SHAPE, "momentum and scale_filler are fields of different Caffes"),
        ("momentum: 2", SHAPE, "momentum has to be from 0 to 1"),
        ("momentum: 0.5", (3,), "needs a channel axis"),
    ],
)
def test_wrong_fields_are_errors(fields, shape, message):
    with pytest.raises(NetError, match=message):
        bn(fields, shape)
