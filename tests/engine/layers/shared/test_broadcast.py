"""Scale and Bias with a blob that stretches over some axes: every place of it, as parameter and as bottom."""

import pytest
import torch

from tests.support.autograd import check_against_autograd
from tests.support.layerkit import check_gradients, make_layer
from tests.support.layouts import LAYOUTS, random_input

pytestmark = pytest.mark.slow

SHAPE = (2, 3, 4, 5)
# Name: axis, the blob's shape.
PLACES = {
    "everywhere": (0, SHAPE),
    "at the beginning": (0, (2, 3)),
    "in the middle": (1, (3, 4)),
    "at the end": (2, (4, 5)),
    "at the end, counted from there": (-2, (4, 5)),
    "one axis": (1, (3,)),
    "a number": (0, ()),
    "a number with an axis that does not matter": (2, ()),
}
KINDS = {"Scale": torch.mul, "Bias": torch.add}


GAUSSIAN = 'filler { type: "gaussian" }'


def make(kind, axis, blob, *, learned, fields="", shape=SHAPE):
    bottoms = 'bottom: "x"' if learned else 'bottom: "x" bottom: "b"'
    fields = f"axis: {axis} num_axes: {len(blob)} {GAUSSIAN} {fields}" if learned else f"axis: {axis} {fields}"
    text = f'name: "l" type: "{kind}" {bottoms} top: "y" {kind.lower()}_param {{ {fields} }}'
    return make_layer(text, [shape] if learned else [shape, blob])[0]


def function(kind, axis):
    def apply(x, blob):
        behind = x.dim() - axis % x.dim() - blob.dim() if blob.dim() else 0
        return KINDS[kind](x, blob.reshape((*blob.shape, *[1] * behind)))

    return apply


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_autograd(kind, place, learned, layout):
    axis, blob = PLACES[place]
    layer = make(kind, axis, blob, learned=learned)
    bottoms = [random_input(SHAPE, layout)] + ([] if learned else [random_input(blob, seed=8)])
    check_against_autograd(layer, bottoms, function(kind, axis))


@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
def test_in_place_changes_no_result(kind, place, learned):
    axis, blob = PLACES[place]
    layer = make(kind, axis, blob, learned=learned)
    x, dy = random_input(SHAPE), random_input(SHAPE, seed=6)
    second = layer.parameters[0].data if learned else random_input(blob, seed=8)
    leaves = [values.clone().requires_grad_() for values in (x, second)]
    expected = function(kind, axis)(*leaves)
    expected.backward(dy)
    layer.may_overwrite_bottom, layer.may_overwrite_top_diff = True, [True]
    (y,) = layer.forward([x] if learned else [x, second])
    torch.testing.assert_close(y, expected.detach(), rtol=1e-12, atol=1e-12)
    dx, *others = layer.backward([dy], layer.wants_bottom)
    torch.testing.assert_close(dx, leaves[0].grad, rtol=1e-12, atol=1e-12)
    dsecond = layer.parameters[0].diff if learned else others[0]
    torch.testing.assert_close(dsecond, leaves[1].grad, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize("place", ["everywhere", "in the middle", "at the end"])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_agree_with_differences(kind, place, learned):
    axis, blob = PLACES[place]
    layer = make(kind, axis, tuple(min(size, 2) for size in blob), learned=learned, shape=(2, 2, 2, 2))
    bottoms = [random_input((2, 2, 2, 2))] + ([] if learned else [random_input((2,) * len(blob), seed=8)])
    check_gradients(layer, bottoms)


@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize("place", PLACES)
def test_a_scale_with_a_bias_agrees_with_autograd(place, learned):
    axis, blob = PLACES[place]
    fields = 'bias_term: true bias_filler { type: "gaussian" }'
    layer = make("Scale", axis, blob, learned=learned, fields=fields)
    multiply, add = function("Scale", axis), function("Bias", axis)
    bottoms = [random_input(SHAPE)] + ([] if learned else [random_input(blob, seed=8)])
    check_against_autograd(layer, bottoms, lambda x, factor, bias: add(multiply(x, factor), bias))


@pytest.mark.parametrize("kind", KINDS)
def test_a_number_for_a_number(kind):
    layer = make(kind, 1, (), learned=False, shape=())
    x, factor = torch.tensor(3.0, dtype=torch.float64), torch.tensor(2.0, dtype=torch.float64)
    (y,) = layer.forward([x, factor])
    assert y == KINDS[kind](x, factor)
    check_gradients(layer, [x, factor])
