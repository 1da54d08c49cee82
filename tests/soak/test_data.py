"""A seeded tenth of the damages; `python -m tests.soak data` makes all."""

import pytest

from tests.soak import data

pytestmark = pytest.mark.slow


def test_a_damaged_database_is_an_error_or_correct_never_a_crash():
    rows = data.run(full=False)
    assert [row.cases for row in rows] == [data.CASES // 10] * 10
    assert not [failure for row in rows for failure in row.failures]
    assert any("the damaged record refused" in row.note for row in rows)
