"""Snapshots that cannot be written; `python -m tests.soak disk` also fills a file system."""

import pytest

from tests.soak import small_disk

pytestmark = pytest.mark.slow


def test_a_full_disk_hurts_neither_the_run_nor_older_snapshots():
    (row,) = small_disk.run(full=False)
    assert row.cases == 6
    assert not row.failures
