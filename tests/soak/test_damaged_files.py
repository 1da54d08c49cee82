"""A seeded sample of the damages; `python -m tests.soak damage` makes all."""

import pytest

from tests.soak import damaged_files

pytestmark = pytest.mark.slow


def test_damage_is_found_and_named_and_costs_no_memory():
    rows = damaged_files.run(full=False)
    assert [row.cases for row in rows] == [36, 24, 37]
    assert not [failure for row in rows for failure in row.failures]
