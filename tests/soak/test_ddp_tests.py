"""A sample of PyTorch's tests of DDP; `python -m tests.soak ddp-tests` runs all."""

import pytest

from tests.soak import ddp_tests
from tests.support import torch_ddp_tests
from tests.support.ddp_behaviour import BEHAVIOUR
from tests.support.ddp_checks import CHECKS

pytestmark = pytest.mark.slow


def test_a_sample_passes():
    (row,) = ddp_tests.run(full=False)
    assert not row.failures, row.failures


def test_every_test_that_is_listed_exists_once():
    # These fill BEHAVIOUR.
    from tests.support import ddp_behaviour_checkpointing, ddp_behaviour_outputs, ddp_behaviour_state  # noqa: F401

    assert set(torch_ddp_tests.needed()) <= {*BEHAVIOUR, *CHECKS}
    named = [(row.file, name) for row in torch_ddp_tests.ROWS for name in row.names]
    assert len(named) == len(set(named))
    refusals = {"test_sparse_gradients"}  # the test of a refusal
    assert set(BEHAVIOUR) - refusals <= set(torch_ddp_tests.needed())
