"""LSTMUnit: one step of an LSTM."""

import pytest
import torch

from mgcaffe.errors import NetError
from tests.support.autograd import check_against_autograd
from tests.support.layerkit import check_gradients, forward_backward, make_layer
from tests.support.layouts import random_input
from tests.support.recurrentkit import forget_gate

TEXT = 'name: "u" type: "LSTMUnit" bottom: "c" bottom: "gates" bottom: "cont" top: "c1" top: "h1"'


def unit(streams=3, hidden=2):
    return make_layer(TEXT, [(1, streams, hidden), (1, streams, 4 * hidden), (1, streams)])


def bottoms(cont):
    indicators = torch.tensor([cont], dtype=torch.float64)
    streams = len(cont)
    return [random_input((1, streams, 2)), random_input((1, streams, 8), seed=6), indicators]


def formula(cell, gates, cont):
    i, f, o, g = gates.chunk(4, 2)
    cell = forget_gate(cont.unsqueeze(2), f) * cell + torch.sigmoid(i) * torch.tanh(g)
    return cell, torch.sigmoid(o) * torch.tanh(cell)


def test_both_tops_have_the_cells_shape():
    layer, shapes = unit(5, 4)
    assert shapes == [(1, 5, 4), (1, 5, 4)]
    assert layer.parameters == []
    assert layer.wants_bottom == [True, True, False]


@pytest.mark.parametrize("cont", [(0, 0, 0), (1, 1, 1), (0, 1, 0)])
def test_gradients_agree_with_differences(cont):
    check_gradients(unit()[0], bottoms(cont))


@pytest.mark.parametrize("cont", [(0, 0, 0), (1, 0, 1), (0.25, 1, 1.5)])
def test_values_and_gradients_are_those_of_the_formula(cont):
    check_against_autograd(unit()[0], bottoms(cont), formula)


def test_the_forget_gate_has_caffes_slope_for_an_indicator_of_one_half():
    cell, gates = torch.tensor([[[3.0]]], dtype=torch.float64), torch.zeros(1, 1, 4, dtype=torch.float64)
    cont, layer = torch.tensor([[0.5]], dtype=torch.float64), unit(1, 1)[0]
    diffs = [torch.ones_like(cell), torch.zeros_like(cell)]
    _, (before, dgates, _) = forward_backward(layer, [cell, gates, cont], diffs)
    # The gate is 0.5 sigmoid(0) = 0.25; the derivative would be 3 * 0.25 * (1 - 0.5).
    assert dgates[0, 0, 1].item() == 3 * 0.25 * (1 - 0.25)
    assert before.item() == 0.25


def test_a_gradient_can_be_wanted_alone():
    layer, _ = unit()
    values = bottoms((1, 0, 1))
    tops = layer.forward(values)
    diffs = [random_input(tuple(top.shape), seed=8) for top in tops]
    both = layer.backward(diffs, [True, True, False])
    assert torch.equal(layer.backward(diffs, [True, False, False])[0], both[0])
    assert torch.equal(layer.backward(diffs, [False, True, False])[1], both[1])
    assert layer.backward(diffs, [False, False, False]) == [None, None, None]


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(2, 3, 2), (2, 3, 8), (2, 3)], r"bottom 0 has to have shape \(1, N, H\), not \(2, 3, 2\)"),
        ([(1, 3), (1, 3, 8), (1, 3)], "bottom 0 has to have shape"),
        ([(1, 3, 2), (1, 3, 6), (1, 3)], r"bottom 1 has to have shape \(1, 3, 8\).* not \(1, 3, 6\)"),
        ([(1, 3, 2), (1, 3, 8), (1, 3, 1)], r"bottom 2 has to have shape \(1, 3\).* not \(1, 3, 1\)"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(shapes, message):
    with pytest.raises(NetError, match=message):
        make_layer(TEXT, shapes)
