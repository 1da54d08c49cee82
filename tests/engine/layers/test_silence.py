"""Silence: no tops, zero gradients."""

from tests.support.layerkit import forward_backward, make_layer
from tests.support.layouts import random_input


def test_has_no_tops_and_zero_gradients():
    layer, tops = make_layer('name: "s" type: "Silence" bottom: "a" bottom: "b"', [(2, 3), (4,)])
    assert tops == []
    results, diffs = forward_backward(layer, [random_input((2, 3)), random_input((4,))], [])
    assert results == []
    assert [tuple(diff.shape) for diff in diffs] == [(2, 3), (4,)]
    assert not any(diff.any() for diff in diffs)


def test_unwanted_gradient_is_not_made():
    layer, _ = make_layer('name: "s" type: "Silence" bottom: "a" bottom: "b"', [(2, 3), (4,)])
    layer.wants_bottom = [False, True]
    _, diffs = forward_backward(layer, [random_input((2, 3)), random_input((4,))], [])
    assert diffs[0] is None
