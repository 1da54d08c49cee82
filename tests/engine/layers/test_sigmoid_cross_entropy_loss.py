"""SigmoidCrossEntropyLoss: the formula at all sizes of scores, normalisation, ignored targets."""

import pytest
import torch

from mgcaffe.errors import NetError
from tests.support.layerkit import check_gradients, forward_backward, make_layer
from tests.support.layouts import LAYOUTS, random_input

SHAPE = (4, 3, 2, 5)
ONE = torch.ones((), dtype=torch.float64)


def loss_layer(fields: str = "", shape=SHAPE, targets=None):
    text = f'name: "l" type: "SigmoidCrossEntropyLoss" bottom: "x" bottom: "t" top: "loss" loss_param {{ {fields} }}'
    return make_layer(text, [shape, targets or shape])[0]


def targets_for(shape=SHAPE) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("fields", "divisor"),
    [
        ("", 4),
        ("normalization: FULL", 120),
        ("normalization: VALID", 120),
        ("normalization: NONE", 1),
        ("normalize: true", 120),
        ("normalize: false", 4),
    ],
)
def test_loss_and_gradient_agree_with_binary_cross_entropy(fields, divisor, layout):
    x, targets = random_input(SHAPE, layout), targets_for()
    leaf = x.clone().requires_grad_()
    expected = torch.nn.functional.binary_cross_entropy_with_logits(leaf, targets, reduction="sum") / divisor
    (0.3 * expected).backward()
    (loss,), (dx, none) = forward_backward(loss_layer(fields), [x, targets], [0.3 * ONE])
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(dx, leaf.grad, rtol=1e-12, atol=1e-13)
    assert none is None


def test_gradient_agrees_with_differences():
    check_gradients(loss_layer("normalization: VALID", (2, 3)), [random_input((2, 3)), targets_for((2, 3))])


@pytest.mark.parametrize(("fields", "divisor"), [("", 2), ("normalization: VALID", 4), ("normalization: FULL", 6)])
def test_ignored_targets_have_no_loss_and_no_gradient(fields, divisor):
    layer = loss_layer("ignore_label: -1 " + fields, (2, 3))
    x, targets = random_input((2, 3)), torch.tensor([[1.0, -1, 0], [0, 1, -1]], dtype=torch.float64)
    counted = targets != -1
    (loss,), (dx, _) = forward_backward(layer, [x, targets], [ONE])
    expected = torch.nn.functional.binary_cross_entropy_with_logits(x[counted], targets[counted], reduction="sum")
    torch.testing.assert_close(loss, expected / divisor)
    assert not dx[~counted].any()
    torch.testing.assert_close(dx[counted], (torch.sigmoid(x) - targets)[counted] / divisor)


def test_big_scores_do_not_overflow():
    layer = loss_layer("", (1, 4))
    x = torch.tensor([[1e4, -1e4, 1e4, -1e4]], dtype=torch.float64)
    targets = torch.tensor([[1.0, 0, 0, 1]], dtype=torch.float64)
    (loss,), (dx, _) = forward_backward(layer, [x, targets], [ONE])
    assert loss.item() == 2e4
    assert dx.tolist() == [[0, 0, 1, -1]]


def test_targets_of_another_shape_but_as_many_are_fine_and_others_are_refused():
    layer = loss_layer("", (2, 3), (6,))
    assert layer.forward([random_input((2, 3)), targets_for((6,))])[0].shape == ()
    with pytest.raises(NetError, match="need as many targets"):
        loss_layer("", (2, 3), (2, 1))
