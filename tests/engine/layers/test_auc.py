"""AUC: against a count of all pairs; ties, what is not defined, and its errors."""

import math

import pytest
import torch

from mgcaffe.errors import DataError, NetError
from tests.support.layerkit import make_layer

TEXT = 'name: "a" type: "AUC" bottom: "x" bottom: "l" top: "y"'


def auc(scores: torch.Tensor, labels: torch.Tensor) -> float:
    layer, (shape,) = make_layer(TEXT, [tuple(scores.shape), tuple(labels.shape)], dtype=scores.dtype)
    (y,) = layer.forward([scores, labels])
    assert shape == tuple(y.shape) == () and y.dtype == scores.dtype
    return float(y)


@pytest.mark.parametrize("different", [3, 10, 10**6])
def test_it_is_the_share_of_pairs_in_the_right_order_with_ties_counted_half(different):
    generator = torch.Generator().manual_seed(different)
    scores = torch.randint(-different, different, (60, 1), generator=generator).double()
    labels = (torch.rand(60, generator=generator) < 0.3).double()
    positive, negative = scores[labels > 0], scores.reshape(-1)[labels == 0]
    won = (positive > negative).double() + (positive == negative).double() / 2
    assert auc(scores, labels) == won.mean().item()


def test_edges():
    x = torch.tensor([1.0, 2.0, 3.0])
    assert auc(x, torch.tensor([0.0, 0.0, 1.0])) == 1
    assert auc(x, torch.tensor([1.0, 1.0, 0.0])) == 0
    assert auc(torch.zeros(3), torch.tensor([1.0, 0.0, 0.0])) == 0.5
    assert math.isnan(auc(x, torch.zeros(3))) and math.isnan(auc(x, torch.ones(3)))
    assert math.isnan(auc(torch.tensor([1.0, math.nan, 3.0]), torch.tensor([0.0, 0.0, 1.0])))


def test_errors():
    with pytest.raises(NetError, match=r"predictions of shape \(3,\) need as many labels, not a bottom 1 of shape"):
        make_layer(TEXT, [(3,), (4,)])
    with pytest.raises(DataError, match=r"label 2 at \[1\] of blob 'l' is no class: .* 2 classes, 0 to 1"):
        auc(torch.zeros(2), torch.tensor([0.0, 2.0]))
