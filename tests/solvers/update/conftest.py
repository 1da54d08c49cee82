"""What tests of gradients that are kept as products share."""

import pytest

from mgcaffe.engine.kernels import linear_ways
from tests.support.products import INPUTS, OUTPUTS, suit


@pytest.fixture
def small_is_large(monkeypatch):
    """The first layer's weight is large, and its gradient has two pieces."""
    size = INPUTS * OUTPUTS
    monkeypatch.setattr(linear_ways, "LARGE_WEIGHT", size)
    monkeypatch.setattr(linear_ways, "PIECE", size // 2)
    suit(monkeypatch, lambda rows, shape: shape[0] * shape[1] >= size)
