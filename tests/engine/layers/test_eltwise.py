"""Eltwise: the three operations, coefficients, ties, zeros, and what is kept."""

import pytest
import torch

from mgcaffe.engine.kernels.formats import format_of
from mgcaffe.errors import NetError
from tests.support.autograd import check_against_autograd
from tests.support.layerkit import check_gradients, forward_backward, make_layer
from tests.support.layouts import LAYOUTS, random_input

SHAPE = (2, 3, 4, 5)
OPERATIONS = {
    "sum": ("operation: SUM", lambda a, b, c: a + b + c),
    "sum_coeff": ("coeff: 1 coeff: -0.5 coeff: 2", lambda a, b, c: a - 0.5 * b + 2 * c),
    "sum_coeff_first": ("coeff: 3 coeff: 1 coeff: 1", lambda a, b, c: 3 * a + b + c),
    "stable_prod": ("operation: PROD", lambda a, b, c: a * b * c),
    "unstable_prod": ("operation: PROD stable_prod_grad: false", lambda a, b, c: a * b * c),
    "max": ("operation: MAX", lambda a, b, c: torch.maximum(torch.maximum(a, b), c)),
}


def eltwise(fields: str, *shapes: tuple[int, ...]):
    bottoms = " ".join(f'bottom: "{name}"' for name in "abcd"[: len(shapes)])
    text = f'name: "e" type: "Eltwise" {bottoms} top: "y" eltwise_param {{ {fields} }}'
    return make_layer(text, list(shapes))[0]


def vector(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_agrees_with_autograd(name, layout):
    fields, function = OPERATIONS[name]
    bottoms = [random_input(SHAPE, layout, seed=seed) for seed in (1, 2, 3)]
    check_against_autograd(eltwise(fields, SHAPE, SHAPE, SHAPE), bottoms, function, tolerance=1e-9)


@pytest.mark.parametrize("name", OPERATIONS)
def test_gradient_agrees_with_differences(name):
    bottoms = [random_input((2, 3), seed=seed) for seed in (1, 2, 3)]
    check_gradients(eltwise(OPERATIONS[name][0], (2, 3), (2, 3), (2, 3)), bottoms)


def test_sum_hands_the_same_gradient_to_all_bottoms():
    layer = eltwise("", (3,), (3,))
    dy = vector(1, 2, 3)
    _, diffs = forward_backward(layer, [vector(1, 1, 1), vector(2, 2, 2)], [dy])
    assert diffs[0] is dy
    assert diffs[1] is dy
    assert layer.saved is None
    assert not layer.keeps_bottoms


def test_equal_values_go_to_the_second_bottom_and_later_ones_have_to_be_larger():
    layer = eltwise("operation: MAX", (4,), (4,), (4,))
    bottoms = [vector(1, 1, 2, 0), vector(1, 0, 1, 1), vector(1, 1, 2, 2)]
    tops, diffs = forward_backward(layer, bottoms, [vector(1, 1, 1, 1)])
    assert tops[0].tolist() == [1, 1, 2, 2]
    assert [diff.tolist() for diff in diffs] == [[0, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1]]


def test_max_keeps_one_byte_a_value():
    layer = eltwise("operation: MAX", (4,), (4,))
    layer.forward([vector(1, 1, 2, 0), vector(1, 0, 1, 1)])
    assert layer.saved.element_size() == 1
    assert (layer.keeps_bottoms, layer.keeps_tops) == (False, False)


def test_stable_gradient_of_a_product_holds_at_zero_and_the_other_does_not():
    bottoms = [vector(0, 2), vector(3, 5)]
    _, stable = forward_backward(eltwise("operation: PROD", (2,), (2,)), bottoms, [vector(1, 1)])
    assert [diff.tolist() for diff in stable] == [[3, 5], [0, 2]]
    layer = eltwise("operation: PROD stable_prod_grad: false", (2,), (2,))
    _, unstable = forward_backward(layer, bottoms, [vector(1, 1)])
    assert unstable[0].isnan().tolist() == [True, False]


def test_only_wanted_gradients_are_computed():
    layer = eltwise("operation: PROD", (2,), (2,))
    layer.may_overwrite_top_diff = [False]
    layer.forward([vector(0, 2), vector(3, 5)])
    first, second = layer.backward([vector(1, 1)], [False, True])
    assert first is None
    assert second.tolist() == [0, 2]


def test_shapes_that_differ_are_refused():
    with pytest.raises(NetError, match=r"bottom 0 \('a'\) has \(2, 3\), bottom 1 \('b'\) has \(2, 1\)"):
        eltwise("", (2, 3), (2, 1))
    with pytest.raises(NetError, match="before 2015 every blob had four axes; a Flatten layer brings blob 'b' to two"):
        eltwise("operation: PROD", (2, 3), (2, 3, 1, 1))
    with pytest.raises(NetError, match=r"has \(2, 3\) .*\)$"):
        eltwise("", (2, 3, 1, 4), (2, 3))


def test_coefficients_have_to_fit():
    with pytest.raises(NetError, match="1 coefficients for 2 bottoms"):
        eltwise("coeff: 1", (2,), (2,))
    with pytest.raises(NetError, match="1 coefficients for 2 bottoms"):
        eltwise("operation: MAX coeff: 1", (2,), (2,))
    with pytest.raises(NetError, match="SUM only"):
        eltwise("operation: PROD coeff: 1 coeff: 1", (2,), (2,))


def test_the_maximum_takes_no_notice_of_coefficients_and_says_so(caplog):
    layer = eltwise("operation: MAX coeff: -1 coeff: 10", (2,), (2,))
    (y,), (da, db) = forward_backward(layer, [vector(1, 4), vector(3, 2)], [vector(5, 6)])
    assert [values.tolist() for values in (y, da, db)] == [[3, 4], [0, 6], [5, 0]]
    assert [record.getMessage() for record in caplog.records] == [
        "coeff has no effect with the operation MAX (layer 'e')"
    ]


@pytest.mark.parametrize("spare", [None, 0, 1])
def test_a_sum_has_the_memory_format_of_its_first_bottom(spare):
    layer = eltwise("operation: SUM", SHAPE, SHAPE)
    layer.spare_bottom = spare
    last, ordinary = torch.randn(SHAPE).contiguous(memory_format=torch.channels_last), torch.randn(SHAPE)
    for bottoms in ([last, ordinary], [ordinary, last]):
        expected = format_of(bottoms[0])
        (y,) = layer.forward([each.clone() for each in bottoms])
        assert format_of(y) == expected
        assert torch.equal(y, last + ordinary)
