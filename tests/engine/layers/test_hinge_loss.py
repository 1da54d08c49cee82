"""HingeLoss: both norms against the formula."""

import pytest
import torch

from mgcaffe.errors import DataError, NetError
from tests.support.layerkit import check_gradients, forward_backward, make_layer
from tests.support.layouts import LAYOUTS, random_input

LABELS = torch.tensor([0.0, 4, 2], dtype=torch.float64)


def hinge(fields: str = "", shape=(3, 5), labels=(3,)):
    text = f'name: "h" type: "HingeLoss" bottom: "x" bottom: "l" top: "loss" hinge_loss_param {{ {fields} }}'
    return make_layer(text, [shape, labels])


def by_hand(x: torch.Tensor, power: int) -> torch.Tensor:
    sides = torch.full(x.shape, -1.0, dtype=x.dtype)
    for row, label in enumerate(LABELS.int().tolist()):
        sides[row, label] = 1
    return (1 - sides * x).clamp(min=0).pow(power).sum() / len(x)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("fields", "power"), [("", 1), ("norm: L1", 1), ("norm: L2", 2)])
def test_loss_and_gradient_agree_with_the_formula(fields, power, layout):
    layer, tops = hinge(fields)
    assert tops == [()]
    x = random_input((3, 5), layout)
    leaf = x.clone().requires_grad_()
    expected = by_hand(leaf, power)
    (0.7 * expected).backward()
    weight = torch.tensor(0.7, dtype=torch.float64)
    (loss,), (dx, none) = forward_backward(layer, [x, LABELS], [weight])
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(dx, leaf.grad)
    assert none is None


@pytest.mark.parametrize("norm", ["L1", "L2"])
def test_gradient_agrees_with_differences(norm):
    check_gradients(hinge(f"norm: {norm}")[0], [random_input((3, 5)) * 3, LABELS])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_but_the_first_axis_count_as_classes(layout):
    x = random_input((3, 2, 2, 3), layout)
    labels = torch.tensor([11.0, 0, 5], dtype=torch.float64)
    spread, _ = hinge("", (3, 2, 2, 3))
    flat, _ = hinge("", (3, 12))
    weight = torch.ones((), dtype=torch.float64)
    (loss,), (dx, _) = forward_backward(spread, [x, labels], [weight])
    (expected,), (rows, _) = forward_backward(flat, [x.reshape(3, 12), labels], [weight])
    assert loss == expected
    assert torch.equal(dx, rows.view(3, 2, 2, 3))


def test_scores_on_the_right_side_cost_nothing():
    layer, _ = hinge("", (1, 3), (1,))
    x, labels = torch.tensor([[-1.0, 1, -5]]), torch.tensor([1.0])
    (loss,), (dx, _) = forward_backward(layer, [x, labels], [torch.tensor(1.0)])
    assert loss == 0
    assert not dx.any()


def test_labels_are_checked():
    with pytest.raises(NetError, match="that is 2 labels"):
        hinge(labels=(2,))
    with pytest.raises(
        NetError, match=r"of shape \(3, 2, 4\), has 3 items, of which all 8 values are scores"
    ) as caught:
        hinge("", (3, 2, 4), (2,))
    assert caught.value.hint == "give one label for each item"
    with pytest.raises(DataError, match=r"label 5 at \[1\] of blob 'l' is no class"):
        hinge()[0].forward([random_input((3, 5)), torch.tensor([0.0, 5, 1])])
