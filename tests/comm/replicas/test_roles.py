"""Who is what in a job, and the communicators of each role."""

import pytest

from mgcaffe.comm.replicas.roles import Role, Roles, assign_roles, make_groups
from mgcaffe.comm.transport.threaded import run_ranks
from mgcaffe.errors import UsageError


def test_trainers_come_first_then_embedding_servers_then_synchronization_servers():
    roles = assign_roles(5, embedding_servers=1, sync_servers=1)
    assert roles == Roles(3, 1, 1)
    assert [roles.of(rank) for rank in range(5)] == [Role.TRAINER] * 3 + [Role.EMBEDDING_SERVER, Role.SYNC_SERVER]
    assert [list(roles.ranks(role)) for role in Role] == [[0, 1, 2], [3], [4]]
    assert roles.describe() == (
        "3 trainers (ranks 0-2), 1 embedding server (rank 3), 1 synchronization server (rank 4)"
    )
    alone = assign_roles(4)
    assert not alone.has_servers and alone.ranks(Role.SYNC_SERVER) == range(4, 4)
    assert assign_roles(4, sync_servers=2).describe() == "2 trainers (ranks 0-1), 2 synchronization servers (ranks 2-3)"


@pytest.mark.parametrize(
    ("size", "servers", "said"),
    [
        (3, (3, 0), r"--embedding_servers=3 of 3 ranks: no trainer would be left\n  start at least 4 ranks"),
        (3, (1, 2), "--embedding_servers=1 and --sync_servers=2 of 3 ranks: .*\n.* at least 4"),
        (1, (0, 1), "--sync_servers=1 of 1 rank: no trainer would be left\n  start at least 2 ranks: mpirun -n 2"),
        (3, (0, -1), "sync_servers is -1, and must be 0 or more"),
    ],
)
def test_roles_that_leave_no_trainer_are_wrong_usage(size, servers, said):
    with pytest.raises(UsageError, match=said) as error:
        assign_roles(size, *servers)
    assert error.value.exit_code == 2


@pytest.mark.usefixtures("both_transports")
def test_each_rank_gets_the_communicators_of_its_role():
    def work(world):
        groups = make_groups(world, assign_roles(world.size, 1, 1))
        assert groups.control.allgather(world.rank) == [0, 1, 2, 3]
        found = [groups.trainers, groups.embedding, groups.sync]
        return [None if group is None else group.allgather(world.rank) for group in found]

    trainer = [[0, 1], [0, 1, 2], [0, 1, 3]]
    assert run_ranks(4, work) == [trainer, trainer, [None, [0, 1, 2], None], [None, None, [0, 1, 3]]]


@pytest.mark.usefixtures("both_transports")
def test_without_servers_the_trainers_are_the_world():
    def work(world):
        groups = make_groups(world, assign_roles(world.size))
        return groups.trainers is world and groups.embedding is groups.sync is groups.control is None

    assert run_ranks(2, work) == [True, True]
    groups = run_ranks(2, lambda world: make_groups(world, assign_roles(2, sync_servers=1)))
    assert [each.embedding for each in groups] == [None, None] and groups[1].sync.size == 2
