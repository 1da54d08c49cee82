"""One period of DS-Sync's groups gives every rank the mean of all."""

import numpy as np
import pytest

from mgcaffe.comm.replicas.groups import group_of, radices
from mgcaffe.comm.replicas.topology import Groups
from mgcaffe.comm.transport.threaded import run_ranks
from mgcaffe.errors import CommError


@pytest.mark.parametrize(
    ("size", "form", "sizes"),
    [
        (1, "factors", [1]),
        (2, "grid", [2]),
        (3, "hypercube", [3]),
        (4, "grid", [2, 2]),
        (9, "grid", [3, 3]),
        (16, "grid", [4, 4]),
        (16, "hypercube", [2, 2, 2, 2]),
        (7, "factors", [7]),
        (10, "factors", [2, 5]),
        (12, "factors", [2, 2, 3]),
    ],
)
def test_the_groups_of_each_round_divide_the_ranks_and_mix_them_all(size, form, sizes):
    assert radices(size, form) == sizes
    mixed = np.eye(size)
    for number in range(len(sizes)):
        groups = {tuple(group_of(rank, number, sizes)) for rank in range(size)}
        assert sorted(rank for group in groups for rank in group) == list(range(size))
        assert {len(group) for group in groups} == {sizes[number]}
        matrix = np.zeros((size, size))
        for group in groups:
            matrix[np.ix_(group, group)] = 1 / len(group)
        mixed = matrix @ mixed
    np.testing.assert_allclose(mixed, np.full((size, size), 1 / size), rtol=1e-14)


def test_four_ranks_are_paired_as_in_the_paper_up_to_their_numbers():
    assert [group_of(rank, 0, [2, 2]) for rank in range(4)] == [[0, 1], [0, 1], [2, 3], [2, 3]]
    assert [group_of(rank, 1, [2, 2]) for rank in range(4)] == [[0, 2], [1, 3], [0, 2], [1, 3]]
    assert group_of(3, 2, [2, 2]) == group_of(3, 0, [2, 2])


@pytest.mark.parametrize(("size", "form"), [(4, "grid"), (8, "hypercube"), (9, "grid"), (16, "hypercube")])
def test_a_period_without_training_gives_the_exact_mean(size, form):
    check_a_period(size, form)


@pytest.mark.usefixtures("both_transports")
def test_a_period_of_groups_whose_sizes_differ():
    check_a_period(6, "factors")


def check_a_period(size, form):
    values = np.random.default_rng(1).integers(-1000, 1000, (size, 5)).astype(np.float64) * size

    def rank(communicator):
        topology = Groups(communicator, form)
        mine = values[communicator.rank].copy()
        counts = [topology.average(mine, number) for number in range(topology.rounds)]
        return mine, counts

    for mine, counts in run_ranks(size, rank):
        assert (mine == values.mean(0)).all()  # whole numbers: no rounding
        assert counts == radices(size, form)


@pytest.mark.parametrize(
    ("size", "form", "said"),
    [(8, "grid", "8 ranks make no square grid"), (6, "hypercube", "6 ranks make no hypercube"), (4, "ring", "'ring'")],
)
def test_forms_that_do_not_fit_are_refused(size, form, said):
    with pytest.raises(CommError, match=said):
        radices(size, form)
