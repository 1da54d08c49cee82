"""NormalizedEntropy: against PyTorch's losses; certain predictions, what is not defined."""

import math

import pytest
import torch

from tests.support.layerkit import make_layer

F = torch.nn.functional


def entropy(x: torch.Tensor, labels: torch.Tensor, fields: str = "") -> float:
    text = f'name: "e" type: "NormalizedEntropy" bottom: "x" bottom: "l" top: "y" {fields}'
    layer, _ = make_layer(text, [tuple(x.shape), tuple(labels.shape)], dtype=x.dtype)
    return float(layer.forward([x, labels])[0])


def base(positives: int, count: int) -> float:
    p = positives / count
    return -(p * math.log(p) + (1 - p) * math.log(1 - p))


@pytest.mark.parametrize("fields", ["", "normalized_entropy_param { predictions: PROBABILITY }"])
def test_it_is_the_mean_loss_over_that_of_the_base_rate(fields):
    generator = torch.Generator().manual_seed(5)
    x = 3 * torch.randn((50, 1), generator=generator, dtype=torch.float64)
    labels = (torch.rand(50, generator=generator) < 0.3).double()
    loss = F.binary_cross_entropy_with_logits(x[:, 0], labels).item()
    expected = loss / base(int(labels.sum()), 50)
    assert entropy(torch.sigmoid(x) if fields else x, labels, fields) == pytest.approx(expected, rel=1e-12)


def test_the_base_rate_itself_gives_1_and_constant_labels_nothing():
    labels = torch.tensor([1.0, 0.0, 0.0, 0.0])
    assert entropy(torch.full((4,), -math.log(3)), labels) == pytest.approx(1, rel=1e-6)
    assert math.isnan(entropy(torch.zeros(4), torch.ones(4)))
    assert math.isnan(entropy(torch.full((4,), math.nan), labels))


def test_predictions_are_kept_from_being_certain():
    labels = torch.tensor([1.0, 0.0])
    worst = -math.log(1e-12) / base(1, 2)
    for x in (torch.tensor([-1e4, 1e4]), torch.tensor([-math.inf, math.inf])):
        assert entropy(x, labels) == pytest.approx(worst, rel=1e-4)  # 1 - 1e-12 is rounded to a multiple of 2^-53
        assert entropy(-x, labels) == pytest.approx(0, abs=1e-11)
    zero_and_one = torch.tensor([0.0, 1.0])
    assert entropy(zero_and_one, labels, "normalized_entropy_param { predictions: PROBABILITY }") == pytest.approx(
        worst, rel=1e-4
    )
