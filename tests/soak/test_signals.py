"""A seeded tenth of the signals; `python -m tests.soak signals` runs all."""

import pytest

from tests.soak import signals

pytestmark = [pytest.mark.mpi, pytest.mark.slow]


def test_sigint_stops_all_ranks_at_one_iteration_and_the_run_resumes():
    (row,) = signals.run(full=False)
    assert row.cases == signals.TENTH
    assert not row.failures, "\n".join(row.failures)
