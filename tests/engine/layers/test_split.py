"""Split: the same values under several names, gradients added up."""

import pytest
import torch

from tests.support.layerkit import check_gradients, forward_backward, make_layer
from tests.support.layouts import random_input


def split(tops: int):
    names = " ".join(f'top: "{number}"' for number in range(tops))
    return make_layer(f'name: "s" type: "Split" bottom: "x" {names}', [(2, 3)])


def test_tops_are_the_bottom():
    layer, shapes = split(3)
    x = random_input((2, 3))
    assert shapes == [(2, 3)] * 3
    assert all(top is x for top in layer.forward([x]))
    assert layer.tops_share_bottoms


@pytest.mark.parametrize("tops", [1, 2, 3])
@pytest.mark.parametrize("owned", [(False, False, False), (True, False, False), (False, True, False)])
def test_gradients_add_up_and_only_owned_ones_are_written_over(tops, owned):
    layer, _ = split(tops)
    diffs = [random_input((2, 3), seed=seed) for seed in range(tops)]
    expected, kept = sum(diffs), [diff.clone() for diff in diffs]
    layer.may_overwrite_top_diff = owned[:tops]
    layer.forward([random_input((2, 3))])
    (dx,) = layer.backward(diffs, [True])
    torch.testing.assert_close(dx, expected)
    for diff, before, mine in zip(diffs, kept, owned, strict=False):
        assert mine or torch.equal(diff, before)


def test_gradient_agrees_with_differences():
    check_gradients(split(2)[0], [random_input((2, 3))])


def test_unwanted_gradient_is_not_computed():
    layer, _ = split(2)
    layer.wants_bottom = [False]
    assert forward_backward(layer, [random_input((2, 3))], [random_input((2, 3))] * 2)[1] == [None]
