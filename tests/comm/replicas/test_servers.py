"""Trainers, and servers that hold EASGD's centre, with threads as ranks."""

import threading
import time

import numpy as np
import pytest

from mgcaffe.comm.replicas.centre_server import CentreServer
from mgcaffe.comm.replicas.control import Control, serve
from mgcaffe.comm.replicas.roles import Role, assign_roles, make_groups
from mgcaffe.comm.replicas.rules import SequentialElasticAveraging
from mgcaffe.comm.replicas.servers import Servers, slices
from mgcaffe.comm.replicas.synchronizer import ParameterSynchronizer
from mgcaffe.comm.replicas.topology import DONE, FLAGS, SNAPSHOT, STOP
from mgcaffe.comm.transport.threaded import run_ranks
from mgcaffe.errors import PeerFailure
from tests.support.gloo import die

SIZE, RATE = 7, 0.3


def _run(trainers, servers, train, *, rate=RATE):
    """Run `train(topology)` on every trainer; return what it returned, and the servers."""
    roles = assign_roles(trainers + servers, sync_servers=servers)

    def rank(world):
        groups = make_groups(world, roles)
        control = Control(groups.control, roles, lambda: "", lambda cause: None)
        if roles.of(world.rank) is Role.TRAINER:
            result = train(Servers(groups.sync, trainers))
            control.leave()
            return result
        server = CentreServer(groups.sync, trainers, rate)
        serve(server.step, control)
        return server

    results = run_ranks(trainers + servers, rank)
    return results[:trainers], results[trainers:]


def _synchronizer(topology, **how):
    return ParameterSynchronizer(SequentialElasticAveraging(RATE), topology, **how)


@pytest.mark.parametrize("size", [0, 1, 2, 7, 9])
@pytest.mark.parametrize("servers", [1, 2, 3])
def test_slices_cover_an_array_evenly(size, servers):
    parts = [np.arange(size)[part] for part in slices(size, servers)]
    assert np.concatenate(parts).tolist() == list(range(size))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.usefixtures("both_transports")
@pytest.mark.parametrize(
    ("trainers", "servers", "how"),
    [
        (1, 1, {"every": 1}), (1, 2, {"every": 1}), (2, 1, {"every": 1}), (1, 3, {"every": 1}), (2, 2, {"every": 1}),
        (3, 1, {"every": 1}), (2, 2, {}),
    ],
)  # fmt: skip
def test_without_training_the_gap_to_the_centre_shrinks_by_the_square(trainers, servers, how):
    """shadowsync.md section 2: each exchange takes the gap times (1-a)^2, whatever other trainers do."""

    def train(topology):
        replica = np.random.default_rng(topology.rank).standard_normal(SIZE)
        sync = _synchronizer(topology, **how)
        gaps = []
        exchange = topology.average

        def watched(buffer, number):
            before = buffer.copy()
            exchange(buffer, number)
            # The centre is now (1-a) c + a w, so c is what it was before this exchange.
            centre = (buffer - RATE * before) / (1 - RATE)
            after = before + RATE * (buffer - before)
            gaps.append((before - centre, after - buffer))
            return trainers

        topology.average = watched
        start = np.ones(SIZE)
        sync.start(start)
        with sync.lock:
            start[:] = replica
        for iteration in range(20_000):
            sync.iteration_done()
            time.sleep(0.001)
            if iteration >= 10 and gaps:
                break
        sync.finish()
        return gaps, sync.state["centre"]

    results, held = _run(trainers, servers, train)
    for gaps, _ in results:
        assert len(gaps) >= 1
        for before, after in gaps:
            np.testing.assert_allclose(after, (1 - RATE) ** 2 * before, rtol=1e-9, atol=1e-12)
            assert (np.abs(after) <= np.abs(before) + 1e-12).all()
    assert sum(server.exchanges for server in held) == servers * sum(len(gaps) for gaps, _ in results)
    # Once all are done every trainer knows the centre as it stands.
    for _, centre in results:
        assert np.array_equal(centre, np.concatenate([server.centre for server in held]))


@pytest.mark.usefixtures("both_transports")
def test_one_trainer_comes_to_its_centre_monotonically():
    def train(topology):
        replica = np.zeros(SIZE)
        sync = _synchronizer(topology, every=1)
        sync.start(replica)
        replica += np.arange(1, SIZE + 1)
        distances = []
        for _ in range(20):
            sync.iteration_done()
            distances.append(replica - sync.state["centre"])
        sync.finish()
        return distances

    (distances,), _ = _run(1, 2, train)
    for number, distance in enumerate(distances, 1):
        np.testing.assert_allclose(distance, (1 - RATE) ** (2 * number) * np.arange(1, SIZE + 1), rtol=1e-9)


@pytest.mark.usefixtures("both_transports")
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("how", [{"every": 4}, {}])
def test_trainers_end_after_unequal_numbers_of_iterations(kind, how):
    steps = [30, 3, 0]

    def train(topology):
        replica = np.full(SIZE, 2, kind)
        sync = _synchronizer(topology, **how)
        sync.start(replica)
        for _ in range(steps[topology.rank]):
            with sync.lock:
                replica += kind(0.125)
            sync.iteration_done()
        figures = sync.finish()
        return figures, sync.state["centre"], replica

    results, servers = _run(3, 2, train)
    centre = np.concatenate([server.centre for server in servers])
    assert centre.dtype == kind and centre.size == SIZE
    for rank, (figures, seen, replica) in enumerate(results):
        assert figures.iterations == steps[rank] and figures.trainers == tuple(steps)
        assert np.array_equal(seen, centre) and (replica >= 2).all()
    if how:
        assert [figures.synchronizations for figures, _, _ in results] == [7, 0, 0]
        assert all(figures.rounds == (7, 0, 0) for figures, _, _ in results)


@pytest.mark.usefixtures("both_transports")
def test_training_between_snapshot_and_merge_is_kept():
    def train(topology):
        replica = np.zeros(SIZE)
        sync = _synchronizer(topology, every=1)
        exchange = topology.average

        def learning(buffer, number):
            replica[:] += 10
            return exchange(buffer, number)

        topology.average = learning
        sync.start(replica)
        sync.iteration_done()
        sync.finish()
        return replica

    (replica,), _ = _run(1, 1, train)
    assert np.array_equal(replica, np.full(SIZE, 10.0))  # the snapshot lay on the centre, so nothing pulls


@pytest.mark.usefixtures("both_transports")
def test_no_trainer_waits_for_another_one():
    """Rank 1 begins once rank 0 has made all its iterations."""
    first_is_done = threading.Event()

    def train(topology):
        sync = _synchronizer(topology, every=1)
        sync.start(np.zeros(SIZE))
        was_done = topology.rank == 0 or first_is_done.wait(10)
        for _ in range(5):
            sync.iteration_done()
        if topology.rank == 0:
            first_is_done.set()
        sync.finish()
        return was_done

    (_, was_done), _ = _run(2, 1, train)
    assert was_done


@pytest.mark.usefixtures("both_transports")
def test_a_resumed_centre_is_what_the_servers_begin_with():
    def train(topology):
        replica, sync = np.zeros(SIZE), _synchronizer(topology, every=1)
        sync.start(replica, {"centre": np.arange(SIZE, dtype=float)})
        sync.finish()
        return sync.state["centre"]

    results, servers = _run(2, 2, train)
    assert all(np.array_equal(centre, np.arange(SIZE)) for centre in results)
    assert np.concatenate([server.centre for server in servers]).tolist() == list(range(SIZE))


@pytest.mark.usefixtures("both_transports")
def test_what_a_trainer_says_once_reaches_each_other_one_once():
    """A request for a snapshot is raised for a single agreement, which the others may come to much later."""

    def train(topology):
        topology.begin(np.zeros(1))

        def say(done=0.0, snapshot=0.0, iterations=0.0):
            facts = np.zeros(FLAGS + 2)
            facts[DONE], facts[SNAPSHOT], facts[FLAGS + topology.rank] = done, snapshot, iterations
            return topology.agree(facts)

        heard = []
        if topology.rank == 1:
            heard = [say(snapshot=1), say(iterations=7)]
        else:
            while not heard or heard[-1][FLAGS + 1] != 7:
                time.sleep(0.01)
                heard.append(say())
            heard.append(say())
        say(done=1, iterations=7 * topology.rank)
        return heard

    (first, other), _ = _run(2, 1, train)
    assert [each[SNAPSHOT] for each in first if each[SNAPSHOT]] == [1] and first[-1][SNAPSHOT] == 0
    assert [each[SNAPSHOT] for each in other] == [1, 0] and other[1][FLAGS + 1] == 7
    assert all(each[STOP] == 0 for each in first)


@pytest.mark.usefixtures("both_transports")
@pytest.mark.parametrize("done", [0, 1])
def test_a_request_for_a_snapshot_is_heard_once(done):
    """Also while the trainer that has asked says nothing more, or is done and asks again whether the others are."""
    asked, heard_all = threading.Event(), threading.Event()

    def train(topology):
        topology.begin(np.zeros(1))

        def say(**flags):
            facts = np.zeros(FLAGS + 2)
            facts[DONE], facts[SNAPSHOT] = flags.get("done", 0), flags.get("snapshot", 0)
            return topology.agree(facts)[SNAPSHOT]

        if topology.rank == 1:
            ask, asks = topology._ask, []

            def counting(facts):
                asks.append(facts.copy())
                known = ask(facts)
                asked.set()
                return known

            topology._ask = counting
            heard = say(done=done, snapshot=1)
            if not done:
                heard_all.wait(10)
                heard += say(done=1)
            return heard, len(asks)
        asked.wait(10)
        heard = [say()]
        time.sleep(0.12 * done)
        heard += [say(), say()]
        heard_all.set()
        say(done=1)
        return heard

    (first, (other, asks)), _ = _run(2, 1, train)
    assert first == [1, 0, 0]
    assert other == 1 and asks >= 2  # its own request


@pytest.mark.usefixtures("both_transports")
def test_a_trainer_that_is_done_hears_of_a_snapshot_that_another_one_asks_for():
    """The request comes between two of its questions whether the others are done."""
    waits = threading.Event()

    def train(topology):
        topology.begin(np.zeros(1))
        facts = np.zeros(FLAGS + 2)
        facts[DONE] = 1
        if topology.rank == 0:
            ask = topology._ask

            def noting(facts):
                known = ask(facts)
                waits.set() if not known[SNAPSHOT] else heard.set()
                return known

            topology._ask = noting
            return topology.agree(facts)[SNAPSHOT]
        waits.wait(10)
        request = np.zeros(FLAGS + 2)
        request[SNAPSHOT] = 1
        topology.agree(request)
        heard.wait(10)
        topology.agree(facts)
        return 0

    heard = threading.Event()
    (first, _), _ = _run(2, 1, train)
    assert first == 1


@pytest.mark.usefixtures("both_transports")
def test_a_stop_asked_of_a_server_reaches_every_trainer():
    roles = assign_roles(4, embedding_servers=1, sync_servers=1)

    def rank(world):
        groups, causes = make_groups(world, roles), []
        asked = "SIGTERM" if world.rank == 3 else ""
        control = Control(groups.control, roles, lambda: asked, causes.append)
        if roles.of(world.rank) is Role.TRAINER:
            while not causes:
                control.look()
                time.sleep(0.01)
            control.leave(stopped_early=world.rank == 0)
            control.look()
            return causes
        serve(lambda patience_s: time.sleep(0.01) or False, control)
        return control.stopped_early

    assert run_ranks(4, rank) == [["SIGTERM at rank 3 (synchronization server)"]] * 2 + [True, True]


@pytest.mark.usefixtures("both_transports")
def test_trainers_and_servers_go_on_without_a_trainer_that_dies():
    roles, losses = assign_roles(5, sync_servers=2), []

    def rank(world):
        groups = make_groups(world, roles)
        control = Control(groups.control, roles, lambda: "", lambda cause: None, losses.append)
        for group in (groups.control, groups.sync):
            group.tolerate({1, 2})
        if roles.of(world.rank) is Role.SYNC_SERVER:
            server = CentreServer(groups.sync, 3, RATE)
            serve(server.step, control)
            return server.centre
        replica, sync = np.zeros(SIZE), _synchronizer(Servers(groups.sync, 3), every=1)
        sync.start(replica)
        for number in range(20):
            if world.rank == 1 and number == 5:
                die(groups.sync)
                die(groups.control)
                return None
            with sync.lock:
                replica += 1
            sync.iteration_done()
        figures = sync.finish()
        control.leave()
        return figures, sync.state["centre"]

    first, dead, last, *centre = run_ranks(5, rank)
    assert dead is None and sorted(losses) == [1, 1]  # each server noticed it
    for figures, seen in (first, last):
        assert figures.iterations == 20 and np.array_equal(seen, np.concatenate(centre))
    assert first[0].synchronizations == last[0].synchronizations == 20


@pytest.mark.usefixtures("both_transports")
def test_servers_end_with_trainers_that_fail():
    roles = assign_roles(3, sync_servers=1)

    def rank(world):
        groups = make_groups(world, roles)
        control = Control(groups.control, roles, lambda: "", lambda cause: None)
        if roles.of(world.rank) is Role.TRAINER:
            control.leave(failed=True)
            return None
        server = CentreServer(groups.sync, 2, RATE)
        with pytest.raises(PeerFailure, match="trainers have failed"):
            serve(server.step, control)
        return server.centre.size

    assert run_ranks(3, rank)[2] == 0
