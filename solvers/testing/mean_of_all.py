"""The score of the mean of all replicas, beside that of one, at the end of training."""

from __future__ import annotations

from collections.abc import Sequence

from mgcaffe.comm import SingleCommunicator
from mgcaffe.engine import Net
from mgcaffe.solvers.events import OutputValue
from mgcaffe.solvers.exchange.ranks import Ranks
from mgcaffe.solvers.replicas.replicas import Replicas
from mgcaffe.solvers.testing.test_runs import TestRuns


def score_mean_of_all(
    nets: Sequence[Net], world: Ranks, replicas: Replicas, seed: int, iteration: int, is_wanted: bool
) -> tuple[tuple[OutputValue, ...], ...]:
    """Test the mean of all replicas on trainer 0; collective, after all have ended their training.

    Args:
        nets: the test nets.
        world: the trainers.
        replicas: the one here among the others.
        seed, iteration: as for a test.
        is_wanted: whether trainer 0 tests at all.

    Returns:
        The scores of each net on trainer 0; nothing on the others, for a single replica, and where it is not wanted.
    """
    is_wanted = is_wanted and bool(nets) and replicas.is_one_of_several
    if not world.communicator.broadcast_object(is_wanted):
        return ()
    with replicas.mean_of_all():
        tests = TestRuns(nets, Ranks(SingleCommunicator()), False, lambda event: None)
        if world.rank == 0:
            tests.run(seed, iteration, lambda: False)
    return tests.scores
