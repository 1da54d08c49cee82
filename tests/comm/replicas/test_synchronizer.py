"""Replicas in the foreground and in the background, with threads as ranks."""

import threading
import time

import numpy as np
import pytest

from mgcaffe.comm.planning.cost import AffineCost
from mgcaffe.comm.replicas.rules import BlockMomentum, ElasticAveraging, ModelAveraging
from mgcaffe.comm.replicas.synchronizer import ParameterSynchronizer
from mgcaffe.comm.replicas.topology import AllTrainers, Groups
from mgcaffe.comm.transport.communicator import SingleCommunicator
from mgcaffe.comm.transport.threaded import run_ranks
from mgcaffe.errors import CommError

SIZE = 7


def _gradient(weights, batch):
    """That of a least-squares loss on one record."""
    x, y = batch[:-1], batch[-1]
    return (weights @ x - y) * x


def _trained(size, rule, *, steps, topology=AllTrainers, **how):
    """Train least squares with plain SGD on every rank; return the weights after each step, by rank."""
    data = np.random.default_rng(5).standard_normal((size, max(steps), SIZE + 1))

    def rank(communicator):
        weights = np.ones(SIZE)
        sync = ParameterSynchronizer(rule(), topology(communicator), **how)
        sync.start(weights)
        seen = []
        for step in range(steps[communicator.rank]):
            change = 0.05 * _gradient(weights, data[communicator.rank, step])
            with sync.lock:
                weights -= change
            sync.iteration_done()
            seen.append(weights.copy())
        return seen, weights, sync.finish()

    return run_ranks(size, rank), data


@pytest.mark.usefixtures("both_transports")
@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("rule", [ModelAveraging, lambda: BlockMomentum(momentum=0)])
def test_averaging_after_every_iteration_is_synchronous_sgd(size, rule):
    results, data = _trained(size, rule, steps=[50] * size, every=1)
    weights = np.ones(SIZE)
    for step in range(50):
        weights -= 0.05 * np.mean([_gradient(weights, data[rank, step]) for rank in range(size)], axis=0)
        for seen, _, _ in results:
            np.testing.assert_allclose(seen[step], weights, rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("both_transports")
def test_every_third_iteration_is_a_round_and_the_gap_is_three():
    results, _ = _trained(2, ModelAveraging, steps=[12, 12], every=3)
    for seen, _, figures in results:
        assert (figures.iterations, figures.synchronizations, figures.gap) == (12, 4, 3)
        assert figures.bytes == 4 * SIZE * 8 and figures.seconds > 0
        assert figures.trainers == (12, 12) and figures.rounds == (4, 4)
        assert len(seen) == 12
    assert all(
        (one == two).all() == (step % 3 == 2)
        for step, (one, two) in enumerate(zip(results[0][0], results[1][0], strict=True))
    )


@pytest.mark.usefixtures("both_transports")
@pytest.mark.parametrize("steps", [[1] * 4, [4, 1, 0, 2, 3, 4, 0, 1]])
def test_in_groups_replicas_agree_after_each_period(steps):
    size = len(steps)
    results, _ = _trained(size, ModelAveraging, steps=steps, topology=lambda c: Groups(c, "hypercube"), every=1)
    ends = [weights for _, weights, _ in results]
    np.testing.assert_allclose(ends, [ends[0]] * size, rtol=1e-15)
    # Without those that serve the others and end the period.
    assert [figures.synchronizations for _, _, figures in results] == steps


@pytest.mark.usefixtures("both_transports")
@pytest.mark.parametrize("rule", [ModelAveraging, lambda: ModelAveraging(0.5), lambda: BlockMomentum(0.5, momentum=0)])
@pytest.mark.parametrize("how", [{"every": 4}, {}, {"interval_s": 0.002}])
def test_by_increment_nothing_that_any_trainer_learns_is_lost(rule, how):
    """The mean of all replicas is the start plus the mean of what all have learned, whatever the pace."""
    steps = [30, 3, 0, 17]

    def rank(communicator):
        random = np.random.default_rng(communicator.rank)
        weights, learned = np.ones(SIZE), np.zeros(SIZE)
        sync = ParameterSynchronizer(rule(), AllTrainers(communicator), **how)
        sync.start(weights)
        for _ in range(steps[communicator.rank]):
            change = random.integers(-100, 100, SIZE) / 8
            with sync.lock:
                weights += change
            learned += change
            sync.iteration_done()
        figures = sync.finish()
        return weights, learned, figures

    results = run_ranks(4, rank)
    mean = np.mean([weights for weights, _, _ in results], axis=0)
    np.testing.assert_allclose(mean, 1 + np.mean([learned for _, learned, _ in results], axis=0), rtol=1e-9, atol=1e-9)
    assert [figures.iterations for _, _, figures in results] == steps
    if "every" in how:  # rounds that were served for others afterwards do not count
        assert [figures.synchronizations for _, _, figures in results] == [count // how["every"] for count in steps]


@pytest.mark.usefixtures("both_transports")
def test_background_elastic_averaging_conserves_replicas_and_centre():
    def rank(communicator):
        rule, weights = ElasticAveraging(0.2), np.zeros(SIZE)
        sync = ParameterSynchronizer(rule, AllTrainers(communicator))
        sync.start(weights)
        for _ in range(20):
            with sync.lock:
                weights += communicator.rank + 1
            sync.iteration_done()
        sync.finish()
        return weights, rule.state["centre"]

    results = run_ranks(3, rank)
    total = np.sum([weights for weights, _ in results], axis=0) + results[0][1]
    np.testing.assert_allclose(total, 20 * (1 + 2 + 3), rtol=1e-12)


class _Stuck(AllTrainers):
    """A round that ends when the test says so."""

    def __init__(self):
        super().__init__(SingleCommunicator())
        self.entered, self.released = threading.Event(), threading.Event()

    def average(self, buffer, round_number):
        self.entered.set()
        assert self.released.wait(10)
        return super().average(buffer, round_number)


def test_training_goes_on_while_a_round_is_stuck():
    topology, weights = _Stuck(), np.zeros(SIZE)
    sync = ParameterSynchronizer(ModelAveraging(), topology)
    sync.start(weights)
    assert topology.entered.wait(10)
    for _ in range(1000):
        with sync.lock:
            weights += 1
        sync.iteration_done()
    assert sync.figures.iterations == 1000 and sync.figures.synchronizations == 0
    assert sync.figures.gap == float("inf")
    topology.released.set()
    sync.finish()
    assert (weights == 1000).all()


def test_background_rounds_follow_each_other_no_sooner_than_the_interval_says():
    now, rounds = [0.0], threading.Semaphore(0)
    topology = AllTrainers(SingleCommunicator())
    sync = ParameterSynchronizer(ModelAveraging(), topology, interval_s=0.01, clock=lambda: now[0])
    sync.on_round = lambda *_: rounds.release()
    sync.start(np.zeros(SIZE))
    for _ in range(3):
        assert rounds.acquire(timeout=10)
        assert not rounds.acquire(timeout=0.05)
        now[0] += 0.01
    sync.finish()


@pytest.mark.usefixtures("both_transports")
def test_the_distance_is_that_from_the_mean_relative_to_its_length():
    def rank(communicator):
        weights = np.zeros(SIZE)
        sync = ParameterSynchronizer(ModelAveraging(), AllTrainers(communicator), every=1)
        sync.start(weights)
        weights += 1 + 4 * communicator.rank
        sync.iteration_done()
        return sync.finish()

    for figures in run_ranks(2, rank):
        assert figures.distance == pytest.approx(2 / 3) and figures.distances == pytest.approx((2 / 3, 2 / 3))


@pytest.mark.parametrize("how", [{"every": 1}, {}])
def test_an_error_in_a_round_reaches_the_training_thread(how):
    class Failing(AllTrainers):
        def average(self, buffer, round_number):
            raise CommError("the link is gone")

    sync = ParameterSynchronizer(ModelAveraging(), Failing(SingleCommunicator()), **how)
    sync.start(np.zeros(SIZE))
    with pytest.raises(CommError, match="the link is gone"):
        for _ in range(100_000):
            sync.iteration_done()
        sync.finish()


@pytest.mark.parametrize("how", [{"every": 1}, {}])
def test_after_an_error_nothing_more_is_averaged_and_every_call_raises_it(how):
    class Failing(AllTrainers):
        rounds_run = 0

        def average(self, buffer, round_number):
            self.rounds_run += 1
            raise CommError("the link is gone")

    topology = Failing(SingleCommunicator())
    sync = ParameterSynchronizer(ModelAveraging(), topology, **how)
    sync.start(np.zeros(SIZE))
    with pytest.raises(CommError, match="the link is gone"):
        for _ in range(100_000):
            sync.iteration_done()
        sync.finish()
    for call in (sync.iteration_done, sync.finish, sync.finish):
        with pytest.raises(CommError, match="the link is gone"):
            call()
    assert topology.rounds_run == 1


def test_the_emulated_link_takes_its_time_whatever_the_wait_for_others_and_the_clock():
    class Late(AllTrainers):
        def agree(self, facts):
            time.sleep(0.06)
            self.agreed = time.perf_counter()
            return super().agree(facts)

    class Noting(ModelAveraging):
        def receive(self, mean, trainers):
            self.received = time.perf_counter()

    topology, rule = Late(SingleCommunicator()), Noting()
    sync = ParameterSynchronizer(rule, topology, every=1, link=AffineCost(0.05, 0.0), clock=lambda: 0.0)
    sync.start(np.zeros(SIZE))
    sync.iteration_done()
    assert rule.received - topology.agreed >= 0.05
    sync.finish()


@pytest.mark.usefixtures("both_transports")
def test_elastic_averaging_in_groups_is_refused():
    def rank(communicator):
        with pytest.raises(CommError, match=r"one centre .* groups"):
            ParameterSynchronizer(ElasticAveraging(0.2), Groups(communicator), every=1)
        ParameterSynchronizer(ElasticAveraging(0.2), AllTrainers(communicator), every=1)

    run_ranks(4, rank)


@pytest.mark.usefixtures("both_transports")
@pytest.mark.parametrize("how", [{"every": 2}, {}])
def test_one_trainer_is_left_as_it_is(how):
    results, data = _trained(1, ModelAveraging, steps=[9], **how)
    weights = np.ones(SIZE)
    for step in range(9):
        weights -= 0.05 * _gradient(weights, data[0, step])
    np.testing.assert_allclose(results[0][1], weights, rtol=1e-12)


@pytest.mark.parametrize(("how", "said"), [({"every": 0}, "every 0 iterations"), ({"interval_s": -1.0}, "-1 s")])
def test_paces_that_cannot_be_are_refused(how, said):
    with pytest.raises(CommError, match=said):
        ParameterSynchronizer(ModelAveraging(), AllTrainers(SingleCommunicator()), **how)


@pytest.mark.usefixtures("both_transports")
@pytest.mark.parametrize("every", [2, None])
def test_rounds_are_handed_on_and_training_waits_for_those_in_the_foreground_alone(every):
    def rank(communicator):
        weights, seen = np.ones(SIZE), []
        sync = ParameterSynchronizer(ModelAveraging(), AllTrainers(communicator), every=every)
        sync.on_round = lambda began, ended, figures: seen.append((began, ended, figures))
        sync.start(weights)
        for iteration in range(20_000):
            if iteration >= 6 and (every or seen):
                break
            sync.iteration_done()
            time.sleep(1e-3)
        return seen, sync.finish()

    for seen, figures in run_ranks(2, rank):
        assert [each.synchronizations for _, _, each in seen] == list(range(1, figures.synchronizations + 1))
        assert all(began < ended for began, ended, _ in seen)
        if every:
            assert [each.iterations for _, _, each in seen] == [2, 4, 6]
            assert figures.exposed_s == figures.seconds > 0
        else:
            assert figures.exposed_s == 0 < figures.seconds
