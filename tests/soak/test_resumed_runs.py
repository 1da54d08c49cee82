"""A seeded tenth of the resumes; `python -m tests.soak resume` runs all."""

import pytest

from tests.soak import resumed_runs

pytestmark = pytest.mark.slow


def test_stopped_and_resumed_equals_never_stopped():
    (row,) = resumed_runs.run(full=False)
    assert row.cases == len(resumed_runs.all_cases()) // 10
    assert not row.failures
