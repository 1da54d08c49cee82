"""A seeded twentieth of the convolutions; `python -m tests.soak convolutions` computes all."""

import pytest

from tests.soak import convolutions

pytestmark = pytest.mark.slow


def test_random_convolutions_by_every_candidate_are_those_in_float64():
    (row,) = convolutions.run(full=False)
    assert row.cases == convolutions.CASES // 20
    assert not row.failures
