"""A seeded tenth of the nets; `python -m tests.soak replays` trains all."""

import pytest

from tests.soak import replays

pytestmark = pytest.mark.slow


def test_replays_of_random_nets_have_the_bits_of_their_layers():
    (row,) = replays.run(full=False)
    assert row.cases == replays.CASES // 10
    assert not row.failures
