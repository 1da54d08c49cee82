"""A seeded tenth of the faults; `python -m tests.soak faults` runs all."""

import subprocess
import sys

import pytest

from tests.soak import faults
from tests.support.paths import ROOT

pytestmark = [pytest.mark.mpi, pytest.mark.slow]


def test_a_rank_that_dies_or_stops_ends_the_job_in_time_and_is_named():
    (row,) = faults.run(full=False)
    assert row.cases == round(len(faults.all_cases()) / 10)
    assert not row.failures, "\n".join(row.failures)


def test_every_point_of_a_run_can_be_given_a_fault():
    """The full check finds a point that the code no longer has only when it is run."""
    points = ", ".join(repr(point) for point in faults.DOING)
    probe = (
        f"from tests.support.programs.faulty_engine import install\nfor point in ({points}): install(point, 'kill', 9)"
    )
    subprocess.run([sys.executable, "-c", probe], cwd=ROOT, check=True, timeout=60)
