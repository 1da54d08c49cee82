import pytest
import torch
from torch.nn import functional

from mgcaffe.errors import NetError
from tests.support.layerkit import check_gradients, forward_backward, make_layer
from tests.support.layouts import LAYOUTS, random_input


def text(fields: str = "", more: str = "") -> str:
    return f'name: "bn" type: "BatchNorm" bottom: "x" top: "x" {more} batch_norm_param {{ {fields} }}'


SHAPES = [(4, 3, 5, 6), (6, 3), (4, 3, 7), (2, 3, 2, 3, 4)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_training_agrees_with_torch(layout, dtype, shape) -> None:
    layer, _ = make_layer(text("eps: 0.001"), [shape], dtype=dtype)
    x = random_input(shape, layout).mul(3).add(7).to(dtype)
    dy = random_input(shape, layout, seed=9).to(dtype)
    (y,), (dx,) = forward_backward(layer, [x], [dy])
    leaf = x.clone().requires_grad_()
    expected = functional.batch_norm(leaf, None, None, training=True, eps=0.001)
    expected.backward(dy)
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 1e-7, "atol": 1e-7}
    torch.testing.assert_close(y, expected.detach(), **tolerance)
    torch.testing.assert_close(dx, leaf.grad, **tolerance)


@pytest.mark.parametrize("shape", [(3, 2, 2, 2), (5, 2)])
@pytest.mark.parametrize("stored", ["true", "false"])
def test_gradients(shape, stored) -> None:
    layer, _ = make_layer(text(f"use_global_stats: {stored}"), [shape])
    for parameter, value in zip(layer.parameters, (2.0, 9.0, 3.0), strict=True):
        parameter.data.fill_(value)
    check_gradients(layer, [random_input(shape)])


def test_statistics_are_sums_with_a_common_weight() -> None:
    layer, _ = make_layer(text("moving_average_fraction: 0.5"), [(4, 3, 5, 6)])
    means = variances = torch.zeros(3, dtype=torch.float64)
    for seed, weight in ((1, 1.0), (2, 1.5), (3, 1.75)):
        x = random_input((4, 3, 5, 6), seed=seed).add(2)
        layer.forward([x])
        means = means / 2 + x.mean((0, 2, 3))
        variances = variances / 2 + x.transpose(0, 1).flatten(1).var(1, unbiased=True)
        for parameter, expected in zip(layer.parameters, (means, variances, torch.tensor([weight])), strict=True):
            torch.testing.assert_close(parameter.data, expected.double())


@pytest.mark.parametrize("fields", ["", "scale_bias: true"])
def test_a_batch_of_no_items_leaves_the_statistics_as_they_are(fields) -> None:
    layer, _ = make_layer(text(fields), [(4, 3, 5, 6)])
    layer.forward([random_input((4, 3, 5, 6))])
    before = [parameter.data.clone() for parameter in layer.parameters]
    layer.reshape([(0, 3, 5, 6)])
    empty = torch.zeros(0, 3, 5, 6, dtype=torch.float64)
    (y,), (dx,) = forward_backward(layer, [empty], [empty])
    assert y.shape == dx.shape == empty.shape
    for parameter, kept in zip(layer.parameters, before, strict=True):
        torch.testing.assert_close(parameter.data, kept)
        assert not parameter.diff.any()


def test_test_phase_uses_the_stored_statistics_and_leaves_them() -> None:
    layer, _ = make_layer(text(), [(4, 3, 5, 6)], phase=1)
    for parameter, value in zip(layer.parameters, (6.0, 27.0, 3.0), strict=True):
        parameter.data.fill_(value)
    x = random_input((4, 3, 5, 6))
    (y,) = layer.forward([x])
    torch.testing.assert_close(y, (x - 2) / (9 + 1e-5) ** 0.5)
    assert [parameter.data[0].item() for parameter in layer.parameters] == [6.0, 27.0, 3.0]


def test_without_statistics_the_mean_and_variance_are_zero() -> None:
    layer, _ = make_layer(text("use_global_stats: true eps: 0.25"), [(1, 2, 2, 2)])
    x = random_input((1, 2, 2, 2))
    torch.testing.assert_close(layer.forward([x])[0], x * 2)


def test_one_value_a_channel_stores_variance_zero() -> None:
    layer, _ = make_layer(text(), [(1, 3)])
    (y,) = layer.forward([torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64)])
    assert not y.any()
    assert layer.parameters[0].data.tolist() == [1.0, 2.0, 3.0]
    assert layer.parameters[1].data.tolist() == [0.0, 0.0, 0.0]


def test_a_tiny_variance_is_stored_exactly() -> None:
    layer, _ = make_layer(text(), [(4, 3, 5, 6)], dtype=torch.float32)
    x = random_input((4, 3, 5, 6)).mul(1e-4)
    layer.forward([x.float()])
    expected = x.transpose(0, 1).flatten(1).var(1, unbiased=True)
    torch.testing.assert_close(layer.parameters[1].data.double(), expected, rtol=1e-5, atol=0)


def test_the_statistics_are_never_learned() -> None:
    layer, _ = make_layer(text(more="param { decay_mult: 2 } param { lr_mult: 0 }"), [(2, 3, 2, 2)])
    assert [parameter.shape for parameter in layer.parameters] == [(3,), (3,), (1,)]
    assert all(p.lr_mult == 0 and not p.wanted for p in layer.parameters)


@pytest.mark.parametrize(
    ("fields", "more", "shape", "message"),
    [
        ("", "param { lr_mult: 1 }", (2, 3, 2, 2), "lr_mult 1 of blob 0: the statistics cannot be learned"),
        ("", "", (3,), "two axes or more"),
        ("use_weight_bias: true", "", (2, 3), "use_weight_bias is a field of another Caffe"),
        ("filler { value: 2 }", "", (2, 3), "filler is a field of another Caffe"),
        ("relu: true", "", (2, 3), "relu is a field of another Caffe"),
        ("stats_batch_size: 1", "", (2, 3), "stats_batch_size is a field of another Caffe"),
        ("bias_term: false", "", (2, 3), "bias_term is a field of another Caffe"),
    ],
)
def test_wrong_fields_are_errors(fields, more, shape, message) -> None:
    with pytest.raises(NetError, match=message):
        make_layer(text(fields, more), [shape])


def test_the_channels_cannot_change() -> None:
    layer, _ = make_layer(text(), [(2, 3, 2, 2)])
    with pytest.raises(NetError, match="have 3 channels"):
        layer.reshape([(2, 4, 2, 2)])


SCALED = 'scale_filler { type: "uniform" min: 0.5 max: 2 } bias_filler { type: "gaussian" }'


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_nvidias_scale_and_bias_agree_with_torch(layout, shape) -> None:
    layer, _ = make_layer(text(SCALED), [shape])
    x, dy = random_input(shape, layout), random_input(shape, layout, seed=9)
    (y,), (dx,) = forward_backward(layer, [x], [dy])
    leaves = [values.clone().requires_grad_() for values in (x, *(p.data for p in layer.parameters[3:]))]
    expected = functional.batch_norm(leaves[0], None, None, *leaves[1:], training=True, eps=layer.eps)
    expected.backward(dy)
    torch.testing.assert_close(y, expected.detach())
    torch.testing.assert_close(dx, leaves[0].grad)
    for parameter, leaf in zip(layer.parameters[3:], leaves[1:], strict=True):
        torch.testing.assert_close(parameter.diff, leaf.grad)
    assert [parameter.wanted for parameter in layer.parameters] == [False] * 3 + [True] * 2


@pytest.mark.parametrize("fields", ["scale_bias: true", SCALED, f"{SCALED} use_global_stats: true"])
def test_gradients_with_scale_and_bias(fields) -> None:
    layer, _ = make_layer(text(fields), [(3, 2, 2, 2)])
    for parameter, value in zip(layer.parameters[:3], (2.0, 9.0, 3.0), strict=True):
        parameter.data.fill_(value)
    check_gradients(layer, [random_input((3, 2, 2, 2))])


def test_scale_and_bias_are_1_and_0_at_first_and_change_nothing() -> None:
    plain, _ = make_layer(text(), [(4, 3, 5, 6)])
    scaled, _ = make_layer(text("scale_bias: true"), [(4, 3, 5, 6)])
    x = random_input((4, 3, 5, 6))
    torch.testing.assert_close(scaled.forward([x])[0], plain.forward([x])[0])
    for one, other in zip(plain.parameters, scaled.parameters[:3], strict=True):
        assert torch.equal(one.data, other.data)
    assert [parameter.shape for parameter in scaled.parameters] == [(3,), (3,), (1,), (3,), (3,)]


def test_scale_and_bias_may_have_multipliers() -> None:
    more = "param { lr_mult: 0 } param { lr_mult: 0 } param { lr_mult: 0 } param { lr_mult: 2 } param { lr_mult: 3 }"
    layer, _ = make_layer(text("scale_bias: true", more), [(4, 3, 5, 6)])
    assert [parameter.lr_mult for parameter in layer.parameters] == [0, 0, 0, 2, 3]
