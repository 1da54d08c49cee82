"""Embed: rows, gradients, and numbers that are no rows."""

import math

import pytest
import torch

from mgcaffe.errors import DataError, NetError
from tests.support.layerkit import check_gradients, forward_backward, make_layer
from tests.support.layouts import random_input

FILLERS = 'weight_filler { type: "uniform" min: -1 } bias_filler { type: "uniform" }'


def embed(fields: str = "", shape=(4,), inputs="input_dim: 5 num_output: 3", layer_fields=""):
    text = f'name: "e" type: "Embed" bottom: "x" top: "y" {layer_fields} embed_param {{ {inputs} {FILLERS} {fields} }}'
    return make_layer(text, [shape])


@pytest.mark.parametrize("shape", [(4,), (4, 1, 1, 1), (2, 3), ()])
def test_one_axis_more(shape):
    layer, shapes = embed("", shape)
    assert shapes == [(*shape, 3)]
    assert tuple(layer.forward([torch.zeros(shape, dtype=torch.float64)])[0].shape) == (*shape, 3)
    assert [parameter.shape for parameter in layer.parameters] == [(5, 3), (3,)]


@pytest.mark.parametrize("bias", [True, False])
def test_every_number_picks_its_row(bias):
    layer, _ = embed(f"bias_term: {str(bias).lower()}")
    (y,) = layer.forward([torch.tensor([4.0, 0, 4, 2], dtype=torch.float64)])
    expected = layer.parameters[0].data[[4, 0, 4, 2]]
    assert len(layer.parameters) == 1 + bias
    torch.testing.assert_close(y, expected + layer.parameters[1].data if bias else expected)


@pytest.mark.parametrize(("bias", "outputs"), [("true", 3), ("false", 3), ("true", 1)])
def test_gradient_agrees_with_differences(bias, outputs):
    layer, _ = embed(f"bias_term: {bias}", (2, 2), f"input_dim: 5 num_output: {outputs}")
    assert layer.wants_bottom == [False]
    check_gradients(layer, [torch.tensor([[4.0, 0], [4, 2]], dtype=torch.float64)])


def test_the_gradient_replaces_what_an_earlier_iteration_left():
    layer, _ = embed()
    table, bias = layer.parameters
    table.diff.fill_(9)
    bias.diff.fill_(9)
    forward_backward(layer, [torch.tensor([1.0, 1, 3, 1])], [torch.ones(4, 3, dtype=torch.float64)])
    assert table.diff[:, 0].tolist() == [0, 3, 0, 1, 0]
    assert bias.diff.tolist() == [4, 4, 4]


def test_frozen_parameters_get_no_gradient():
    layer, _ = embed(layer_fields="param { lr_mult: 0 } param { lr_mult: 0 }")
    forward_backward(layer, [torch.zeros(4)], [random_input((4, 3))])
    assert [parameter.fresh for parameter in layer.parameters] == [True, True]


def test_no_numbers_give_no_rows():
    layer, _ = embed("", (0,))
    (y,), _ = forward_backward(layer, [torch.zeros(0)], [torch.zeros(0, 3, dtype=torch.float64)])
    assert y.shape == (0, 3)
    assert not layer.parameters[0].diff.any()


@pytest.mark.parametrize("value", [5, -1, 1e30, math.nan])
def test_a_number_that_is_no_row_is_named_with_its_place(value):
    layer, _ = embed("", (2, 2))
    with pytest.raises(DataError, match=rf"value {value:g}".replace("+", r"\+")) as caught:
        layer.forward([torch.tensor([[0.0, 1], [value, 2]], dtype=torch.float64)])
    assert "at [1, 0] of blob 'x' is no row number: there are 5 rows, 0 to 4 (layer 'e'" in str(caught.value)


@pytest.mark.parametrize(("inputs", "missing"), [("num_output: 3", "input_dim"), ("input_dim: 3", "num_output")])
def test_both_sizes_are_required(inputs, missing):
    with pytest.raises(NetError, match=f"{missing} has to be at least 1"):
        embed(inputs=inputs)
