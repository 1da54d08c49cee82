"""The kill of an embedding server under torchrun; `python -m tests.soak torchrun` runs all."""

import pytest

from tests.soak import torchrun


@pytest.mark.slow
def test_a_killed_embedding_server_is_named_under_torchrun():
    (row,) = torchrun.run(full=False)
    assert row.cases == 1
    assert not row.failures, "\n".join(row.failures)
