"""One of the cases; `python -m tests.soak tables` runs all."""

import pytest

from tests.soak import divided_tables


@pytest.mark.slow
def test_divided_tables_equal_one_process_over_200_iterations():
    (row,) = divided_tables.run(full=False)
    assert row.cases == 1
    assert not row.failures, "\n".join(row.failures)
