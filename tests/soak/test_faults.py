"""A seeded tenth of the faults; `python -m tests.soak faults` runs all."""

import pytest

from tests.soak import faults

pytestmark = [pytest.mark.mpi, pytest.mark.slow]


def test_a_rank_that_dies_or_stops_ends_the_job_in_time_and_is_named():
    (row,) = faults.run(full=False)
    assert row.cases == round(len(faults.all_cases()) / 10)
    assert not row.failures, "\n".join(row.failures)
