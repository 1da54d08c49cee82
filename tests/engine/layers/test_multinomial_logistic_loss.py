"""MultinomialLogisticLoss: against the formula, and probabilities of zero."""

import math

import pytest
import torch

from mgcaffe.errors import DataError, NetError
from tests.support.layerkit import check_gradients, forward_backward, make_layer
from tests.support.layouts import LAYOUTS, random_input

LABELS = torch.tensor([0.0, 4, 2], dtype=torch.float64)
ONE = torch.ones((), dtype=torch.float64)


def loss_layer(shape=(3, 5), labels=(3,)):
    text = 'name: "m" type: "MultinomialLogisticLoss" bottom: "p" bottom: "l" top: "loss"'
    return make_layer(text, [shape, labels])[0]


def probabilities(shape=(3, 5), layout="contiguous") -> torch.Tensor:
    return torch.softmax(random_input(shape, layout), 1)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_loss_and_gradient_agree_with_the_formula(layout):
    p = probabilities((3, 5), layout)
    leaf = p.clone().requires_grad_()
    expected = -leaf[torch.arange(3), LABELS.long()].log().mean()
    (2 * expected).backward()
    (loss,), (dp, none) = forward_backward(loss_layer(), [p, LABELS], [2 * ONE])
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(dp, leaf.grad)
    assert none is None


def test_gradient_agrees_with_differences():
    check_gradients(loss_layer(), [probabilities(), LABELS])


def test_image_shaped_probabilities_keep_their_shape():
    p = probabilities((3, 5, 1, 1), "channels_last")
    (loss,), (dp, _) = forward_backward(loss_layer((3, 5, 1, 1)), [p, LABELS], [ONE])
    assert dp.shape == p.shape
    assert loss == loss_layer().forward([p[:, :, 0, 0], LABELS])[0]


def test_a_probability_of_zero_has_a_finite_loss_and_slope():
    p, labels = torch.tensor([[0.0, 1]], dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    (loss,), (dp, _) = forward_backward(loss_layer((1, 2), (1,)), [p, labels], [ONE])
    assert loss.item() == pytest.approx(-math.log(1e-20))
    assert dp.tolist() == [[pytest.approx(-1e20), 0]]


def test_labels_are_checked():
    with pytest.raises(NetError, match="that is 4 labels"):
        loss_layer(labels=(4,))
    with pytest.raises(DataError, match=r"label -1 at \[2\] of blob 'l' is no class"):
        loss_layer().forward([probabilities(), torch.tensor([0.0, 1, -1])])


def test_a_loss_of_nothing_is_shown_as_0_and_not_as_minus_0():
    (loss,) = loss_layer((1, 2), (1,)).forward([torch.tensor([[0.0, 1]]).double(), torch.ones(1).double()])
    assert str(float(loss)) == "0.0"
