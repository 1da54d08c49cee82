"""A sample of PyTorch's tests of DDP; `python -m tests.soak ddp-tests` runs all."""

import pytest

from tests.soak import ddp_tests
from tests.support import torch_ddp_tests
from tests.support.ddp_checks import CHECKS
from tests.support.ddp_kit import BEHAVIOUR

pytestmark = pytest.mark.slow


def test_a_sample_passes():
    (row,) = ddp_tests.run(full=False)
    assert not row.failures, row.failures


def test_every_test_that_is_listed_exists_once():
    # These fill BEHAVIOUR.
    from tests.support import (  # noqa: F401
        ddp_behaviour,
        ddp_behaviour_checkpointing,
        ddp_behaviour_outputs,
        ddp_behaviour_state,
    )

    assert set(torch_ddp_tests.needed()) <= {*BEHAVIOUR, *CHECKS}
    named = [(row.file, name) for row in torch_ddp_tests.ROWS for name in row.names]
    assert len(named) == len(set(named))
    # Tests of a refusal, and of the start, which PyTorch tests by a private function of the same name.
    besides = {"test_sparse_gradients", "test_ddp_sync_module_states"}
    assert set(BEHAVIOUR) - besides <= set(torch_ddp_tests.needed())
