"""Five of the kills; `python -m tests.soak kill` makes all."""

import pytest

from tests.soak import killed_snapshots

pytestmark = pytest.mark.slow


def test_whatever_moment_a_run_is_killed_at_its_snapshots_are_whole():
    (row,) = killed_snapshots.run(full=False)
    assert row.cases == killed_snapshots.FEW
    assert not row.failures
