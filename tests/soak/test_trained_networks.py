"""Some steps of one network; `python -m tests.soak pytorch` trains all."""

import pytest

from tests.soak import trained_networks

pytestmark = pytest.mark.slow


def test_two_ranks_have_the_weights_of_ddp_to_the_bit():
    (row,) = trained_networks.run(full=False)
    assert row.cases == 4 and not row.failures
