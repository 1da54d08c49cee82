"""ContrastiveLoss: both versions, both kinds of pair."""

import pytest
import torch

from mgcaffe.errors import NetError
from tests.support.layerkit import check_gradients, forward_backward, make_layer
from tests.support.layouts import random_input

PAIRS = 12


def contrastive(fields: str = "", shape=(PAIRS, 2), similar=(PAIRS,), other=None):
    text = 'name: "l" type: "ContrastiveLoss" bottom: "a" bottom: "b" bottom: "y" top: "loss" '
    return make_layer(text + f"contrastive_loss_param {{ {fields} }}", [shape, other or shape, similar])[0]


def pairs() -> list[torch.Tensor]:
    a, b = random_input((PAIRS, 2)), random_input((PAIRS, 2), seed=8)
    return [a, b, (torch.arange(PAIRS) % 2).double()]


@pytest.mark.parametrize("margin", [1.0, 2.5])
@pytest.mark.parametrize("legacy", [False, True])
def test_loss_is_the_formula(margin, legacy):
    a, b, y = pairs()
    layer = contrastive(f"margin: {margin} legacy_version: {str(legacy).lower()}")
    total = 0.0
    for index in range(PAIRS):
        square = float((a[index] - b[index]).square().sum())
        apart = max(margin - square, 0) if legacy else max(margin - square**0.5, 0) ** 2
        total += square if y[index] else apart
    assert layer.forward([a, b, y])[0].item() == pytest.approx(total / PAIRS / 2)


@pytest.mark.parametrize("fields", ["margin: 2.5", "margin: 2.5 legacy_version: true"])
def test_gradient_agrees_with_differences(fields):
    # Caffe divides by d + 1e-4 where the derivative has d.
    check_gradients(contrastive(fields), pairs(), tolerance=2e-4)


def test_gradients_are_opposite_and_none_flows_to_the_similarity():
    layer = contrastive("margin: 2.5", (PAIRS, 2, 1, 1), (PAIRS, 1, 1, 1))
    a, b, y = pairs()
    bottoms = [a.reshape(PAIRS, 2, 1, 1), b.reshape(PAIRS, 2, 1, 1), y.reshape(PAIRS, 1, 1, 1)]
    assert [layer.differentiable(index) for index in range(3)] == [True, True, False]
    _, (da, db, none) = forward_backward(layer, bottoms, [torch.ones((), dtype=torch.float64)])
    assert da.shape == (PAIRS, 2, 1, 1)
    assert torch.equal(da, -db)
    assert none is None


def test_equal_members_of_a_pair_have_a_gradient():
    layer = contrastive("", (1, 2), (1,))
    x = torch.ones(1, 2, dtype=torch.float64)
    one = torch.ones((), dtype=torch.float64)
    (loss,), (da, _, _) = forward_backward(layer, [x, x.clone(), torch.zeros(1, dtype=torch.float64)], [one])
    assert loss.item() == 0.5
    assert not da.any()


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(NetError, match="12 pairs need as many values in bottom 2"):
        contrastive(similar=(3,))
    for shapes in [((PAIRS, 2), (PAIRS, 3)), ((PAIRS, 2), (PAIRS,)), ((PAIRS, 2), (PAIRS, 1, 2)), ((), (1,))]:
        with pytest.raises(NetError, match="of one shape N x C"):
            contrastive(shape=shapes[0], other=shapes[1])


@pytest.mark.parametrize(
    ("shape", "other"),
    [((PAIRS, 2), (PAIRS, 2, 1, 1)), ((PAIRS, 2, 1), (PAIRS, 2)), ((PAIRS,), (PAIRS,)), ((PAIRS,), (PAIRS, 1, 1, 1))],
)
def test_axes_of_size_one_at_the_end_do_not_matter(shape, other):
    a, b, y = pairs()
    count = 2 if 2 in shape else 1
    a, b = a[:, :count].contiguous(), b[:, :count].contiguous()
    one = torch.ones((), dtype=torch.float64)
    plain = contrastive("margin: 2.5", (PAIRS, count))
    (expected,), (da, db, _) = forward_backward(plain, [a, b, y], [one])
    layer = contrastive("margin: 2.5", shape, other=other)
    (loss,), diffs = forward_backward(layer, [a.view(shape), b.view(other), y], [one])
    assert loss == expected
    assert torch.equal(diffs[0], da.view(shape))
    assert torch.equal(diffs[1], db.view(other))
