import pytest
import torch

from mgcaffe.engine.kernels.precision import BF16
from mgcaffe.engine.layer_context import LayerContext
from mgcaffe.errors import NetError
from tests.support.layerkit import check_gradients, forward_backward, make_layer
from tests.support.layouts import LAYOUTS, random_input

GAUSSIAN = 'weight_filler { type: "gaussian" } bias_filler { type: "gaussian" }'


def text(fields: str) -> str:
    return f'name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param {{ {fields} {GAUSSIAN} }}'


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("fields", ["", "transpose: true", "bias_term: false", "bias_term: false transpose: true"])
def test_agrees_with_torch_in_every_layout(layout, dtype, fields) -> None:
    layer, (top_shape,) = make_layer(text(f"num_output: 5 {fields}"), [(4, 3, 2, 6)], dtype=dtype)
    x, dy = random_input((4, 3, 2, 6), layout).to(dtype), random_input(top_shape, layout).to(dtype)
    (y,), (dx,) = forward_backward(layer, [x], [dy])
    leaves = [x.clone().requires_grad_(), *(p.data.clone().requires_grad_() for p in layer.parameters)]
    expected = leaves[0].flatten(1) @ (leaves[1] if "transpose" in fields else leaves[1].t())
    if len(leaves) > 2:
        expected = expected + leaves[2]
    expected.backward(dy)
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 1e-10, "atol": 1e-10}
    torch.testing.assert_close(y, expected.detach(), **tolerance)
    for ours, leaf in zip([dx, *(p.diff for p in layer.parameters)], leaves, strict=True):
        torch.testing.assert_close(ours, leaf.grad, **tolerance)


@pytest.mark.parametrize("transpose", [False, True])
def test_a_transposed_weight_is_stored_the_other_way_round(transpose) -> None:
    fields = f"num_output: 10 transpose: {str(transpose).lower()}"
    layer, shapes = make_layer(text(fields), [(2, 3, 4, 5)])
    assert shapes == [(2, 10)]
    assert [parameter.shape for parameter in layer.parameters] == [(60, 10) if transpose else (10, 60), (10,)]


def test_a_batch_of_one_is_a_row_of_a_larger_batch() -> None:
    layer, _ = make_layer(text("num_output: 5"), [(3, 2, 3, 4)])
    x = random_input((3, 2, 3, 4))
    (whole,) = layer.forward([x])
    assert layer.reshape([(1, 2, 3, 4)]) == [(1, 5)]
    torch.testing.assert_close(layer.forward([x[1:2]])[0], whole[1:2])


@pytest.mark.parametrize(("axis", "top"), [(0, (3,)), (1, (2, 3)), (2, (2, 3, 3)), (-1, (2, 3, 2, 3))])
@pytest.mark.parametrize("transpose", ["true", "false"])
def test_axis_and_gradients(axis, top, transpose) -> None:
    layer, (shape,) = make_layer(text(f"num_output: 3 axis: {axis} transpose: {transpose}"), [(2, 3, 2, 2)])
    assert shape == top
    check_gradients(layer, [random_input((2, 3, 2, 2))])


def test_gradient_replaces_what_a_fresh_parameter_holds() -> None:
    layer, (shape,) = make_layer(text("num_output: 3"), [(2, 4)])
    for parameter in layer.parameters:
        parameter.diff.fill_(float("nan"))
    forward_backward(layer, [random_input((2, 4))], [torch.ones(shape, dtype=torch.float64)])
    assert all(parameter.diff.isfinite().all() for parameter in layer.parameters)


def test_wide_layers_agree_with_float64() -> None:
    layer, (shape,) = make_layer(text("num_output: 300"), [(17, 700)], dtype=torch.float32)
    x, dy = random_input((17, 700)), random_input(shape)
    (y,), (dx,) = forward_backward(layer, [x.float()], [dy.float()])
    weight, bias = (parameter.data.double() for parameter in layer.parameters)
    torch.testing.assert_close(y.double(), x @ weight.t() + bias, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(dx.double(), dy @ weight, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(layer.parameters[0].diff.double(), dy.t() @ x, rtol=1e-4, atol=1e-3)


def test_macs() -> None:
    layer, shapes = make_layer(text("num_output: 3"), [(2, 4, 5)])
    assert layer.macs([(2, 4, 5)], shapes) == 2 * 20 * 3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("", "num_output has to be at least 1"),
        ("num_output: 2 axis: 5", "axis 5 does not exist"),
        ("num_output: 2 relu: true", "relu is a field of another Caffe"),
    ],
)
def test_wrong_fields_are_errors(fields, message) -> None:
    with pytest.raises(NetError, match=message):
        make_layer(text(fields), [(2, 3)])


def test_the_inputs_cannot_change() -> None:
    layer, _ = make_layer(text("num_output: 2"), [(2, 3, 4)])
    assert layer.reshape([(5, 4, 3)]) == [(5, 2)]
    with pytest.raises(NetError, match="needs 12 inputs"):
        layer.reshape([(2, 3, 5)])


@pytest.mark.parametrize("is_narrow", [False, True])
@pytest.mark.parametrize("transpose", ["false", "true"])
def test_over_few_rows_products_with_the_weight_stay_in_float32_in_bf16(transpose, is_narrow) -> None:
    fields = f"num_output: 5 bias_term: false transpose: {transpose}"
    layer, _ = make_layer(text(fields), [(4, 6)], context=LayerContext(precision=BF16))
    x, dy = random_input((4, 6)).float(), random_input((4, 5), seed=2).float()
    if is_narrow:
        x = x.bfloat16()
    tops, diffs = forward_backward(layer, [x], [dy.clone()])
    assert layer.saved[0].data_ptr() == x.data_ptr()  # a widened copy would stay beside it
    weight = layer.parameters[0]
    filters = weight.data.t() if transpose == "true" else weight.data
    torch.testing.assert_close(tops[0], x.float() @ filters.t())
    torch.testing.assert_close(diffs[0], dy @ filters)
    rounded = (dy.bfloat16().float().t() @ x.bfloat16().float()).bfloat16().float()
    torch.testing.assert_close(weight.diff, rounded.t() if transpose == "true" else rounded, rtol=2**-6, atol=1e-6)
    assert torch.equal(weight.diff, weight.diff.bfloat16().float())
