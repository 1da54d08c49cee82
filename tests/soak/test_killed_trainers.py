"""One kill of a synchronization server; `python -m tests.soak replicas` runs all."""

import pytest

from tests.soak import killed_trainers

pytestmark = [pytest.mark.mpi, pytest.mark.slow]


def test_a_killed_trainer_or_server_ends_the_job_and_leaves_what_can_be_resumed():
    rows = killed_trainers.run(full=False)
    failures = [f"{row.check}: {failure}" for row in rows for failure in row.failures]
    assert not failures, "\n".join(failures)
