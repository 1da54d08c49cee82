import pytest
import torch

from mgcaffe.errors import NetError
from tests.support.layerkit import check_gradients, forward_backward, make_layer
from tests.support.layouts import LAYOUTS, random_input

GAUSSIAN = 'filler { type: "gaussian" } bias_filler { type: "gaussian" }'


def text(fields: str, bottoms: int = 1) -> str:
    names = 'bottom: "x" bottom: "s"' if bottoms == 2 else 'bottom: "x"'
    return f'name: "scale" type: "Scale" {names} top: "y" scale_param {{ {fields} }}'


def stretched(blob: torch.Tensor, axis: int, rank: int) -> torch.Tensor:
    return blob.reshape(*blob.shape, *[1] * (rank - axis - blob.dim()))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("bias", ["true", "false"])
@pytest.mark.parametrize(
    ("axis", "num_axes", "blob"),
    [(1, 1, (3,)), (0, 1, (2,)), (0, -1, (2, 3, 4, 5)), (-2, 2, (4, 5)), (1, 0, ()), (3, 1, (5,))],
)
def test_learned_blob_stretches_over_its_axes(layout, bias, axis, num_axes, blob) -> None:
    shape = (2, 3, 4, 5)
    layer, shapes = make_layer(text(f"axis: {axis} num_axes: {num_axes} bias_term: {bias} {GAUSSIAN}"), [shape])
    assert shapes == [shape]
    assert [parameter.shape for parameter in layer.parameters] == [blob] * (2 if bias == "true" else 1)
    x = random_input(shape, layout)
    expected = x * stretched(layer.parameters[0].data, axis % 4 if blob else 0, 4)
    if bias == "true":
        expected = expected + stretched(layer.parameters[1].data, axis % 4 if blob else 0, 4)
    torch.testing.assert_close(layer.forward([x])[0], expected)


@pytest.mark.parametrize(("axis", "num_axes"), [(1, 1), (0, 2), (0, -1), (1, 0), (2, 2)])
def test_gradients_of_a_learned_blob(axis, num_axes) -> None:
    layer, _ = make_layer(text(f"axis: {axis} num_axes: {num_axes} bias_term: true {GAUSSIAN}"), [(2, 3, 2, 2)])
    check_gradients(layer, [random_input((2, 3, 2, 2))])


@pytest.mark.parametrize(("axis", "blob"), [(0, (2, 3)), (0, (2,)), (1, (3,)), (2, (2, 2)), (0, (2, 3, 2, 2)), (1, ())])
@pytest.mark.parametrize("bias", ["true", "false"])
def test_gradients_of_a_second_bottom(axis, blob, bias) -> None:
    layer, _ = make_layer(text(f"axis: {axis} bias_term: {bias} {GAUSSIAN}", 2), [(2, 3, 2, 2), blob])
    assert [parameter.shape for parameter in layer.parameters] == ([blob] if bias == "true" else [])
    check_gradients(layer, [random_input((2, 3, 2, 2)), random_input(blob, seed=8)])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_factor_a_channel_in_float32_agrees_with_torch(layout) -> None:
    shape = (4, 8, 6, 7)
    layer, _ = make_layer(text(f"bias_term: true {GAUSSIAN}"), [shape], dtype=torch.float32)
    x, dy = random_input(shape, layout).float(), random_input(shape, layout, seed=7).float()
    (y,), (dx,) = forward_backward(layer, [x], [dy])
    leaves = [x.clone().requires_grad_(), *(p.data.clone().requires_grad_() for p in layer.parameters)]
    expected = leaves[0] * leaves[1].view(-1, 1, 1) + leaves[2].view(-1, 1, 1)
    expected.backward(dy)
    torch.testing.assert_close(y, expected.detach(), rtol=1e-5, atol=1e-5)
    for ours, leaf in zip([dx, *(p.diff for p in layer.parameters)], leaves, strict=True):
        torch.testing.assert_close(ours, leaf.grad, rtol=1e-4, atol=1e-4)


def test_the_default_fillers_are_one_and_zero() -> None:
    layer, _ = make_layer(text("bias_term: true"), [(2, 3)])
    assert layer.parameters[0].data.tolist() == [1.0] * 3
    assert layer.parameters[1].data.tolist() == [0.0] * 3


def test_a_parameter_with_lr_mult_0_gets_no_gradient() -> None:
    layer, _ = make_layer("param { lr_mult: 0 } " + text("bias_term: true"), [(2, 3, 2, 2)])
    forward_backward(layer, [random_input((2, 3, 2, 2))], [torch.ones(2, 3, 2, 2, dtype=torch.float64)])
    assert not layer.parameters[0].diff.any()
    assert layer.parameters[1].diff.tolist() == [8.0] * 3


@pytest.mark.parametrize(
    ("fields", "shapes", "message"),
    [
        ("axis: 4", [(2, 3, 2, 2)], "axis 4 does not exist"),
        ("num_axes: -2", [(2, 3, 2, 2)], "num_axes has to be -1 or more"),
        ("axis: 2 num_axes: 3", [(2, 3, 2, 2)], "3 axes from axis 2 on go beyond"),
        ("axis: 2", [(2, 3, 2, 2), (2, 2, 2)], "bottom 1, .* from axis 2 on go beyond"),
        ("axis: 1", [(2, 3, 2, 2), (4,)], r"bottom 1 has shape \(4,\), but bottom 0 has \(3,\)"),
    ],
)
def test_blobs_that_do_not_fit_are_errors(fields, shapes, message) -> None:
    with pytest.raises(NetError, match=message):
        make_layer(text(fields, len(shapes)), shapes)


def test_a_learned_blob_cannot_change() -> None:
    layer, _ = make_layer(text(""), [(2, 3, 2, 2)])
    assert layer.reshape([(5, 3, 1, 4)]) == [(5, 3, 1, 4)]
    with pytest.raises(NetError, match="the parameter has shape"):
        layer.reshape([(2, 4, 2, 2)])
