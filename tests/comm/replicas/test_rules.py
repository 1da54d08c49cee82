"""What the rules conserve and how they contract, as the papers' formulas say it exactly."""

import numpy as np
import pytest

from mgcaffe.comm.replicas.rules import BlockMomentum, ElasticAveraging, ModelAveraging
from mgcaffe.errors import CommError

TRAINERS, SIZE, ROUNDS = 4, 11, 6


def _replicas():
    random = np.random.default_rng(3)
    return [random.standard_normal(SIZE) for _ in range(TRAINERS)]


def _round(rules, replicas, progress=None):
    """Run one round of all trainers; `progress` is what they learn between snapshot and merge."""
    snapshots = [replica.copy() for replica in replicas]
    offers = [rule.offer(snapshot) for rule, snapshot in zip(rules, snapshots, strict=True)]
    mean = np.mean(offers, axis=0)
    for number, (rule, replica) in enumerate(zip(rules, replicas, strict=True)):
        offers[number][:] = mean
        rule.receive(offers[number], len(rules))
        if progress is not None:
            replica += progress[number]
        rule.merge(replica, snapshots[number])


def _begun(make, start=None):
    rules = [make() for _ in range(TRAINERS)]
    for rule in rules:
        rule.begin(np.zeros(SIZE) if start is None else start)
    return rules


@pytest.mark.parametrize("rate", [0.2, 0.75, 1.0])
@pytest.mark.parametrize("interpolates", [False, True])
def test_averaging_keeps_the_mean_and_shrinks_each_deviation_by_the_rate(rate, interpolates):
    replicas = _replicas()
    mean = np.mean(replicas, axis=0)
    deviations = [replica - mean for replica in replicas]
    rules = _begun(lambda: ModelAveraging(rate, interpolates=interpolates))
    for number in range(1, ROUNDS + 1):
        _round(rules, replicas)
        for replica, deviation in zip(replicas, deviations, strict=True):
            np.testing.assert_allclose(replica, mean + (1 - rate) ** number * deviation, rtol=0, atol=1e-14)


def test_interpolation_at_a_rate_of_1_makes_replicas_equal_to_the_bit():
    replicas = [np.full(SIZE, value) for value in (1e16, -1e16, 1.0, 2.0)]
    _round(_begun(lambda: ModelAveraging(1, interpolates=True)), replicas)
    np.testing.assert_array_equal(replicas, 0.75)


def test_progress_since_the_snapshot_stays_whole_by_increment_and_shrinks_by_interpolation():
    progress = _replicas()
    for interpolates, kept in ((False, 1.0), (True, 0.25)):
        replicas = [np.zeros(SIZE) for _ in range(TRAINERS)]
        _round(_begun(lambda i=interpolates: ModelAveraging(0.75, interpolates=i)), replicas, progress)
        np.testing.assert_allclose(replicas, kept * np.array(progress), rtol=1e-14)


@pytest.mark.parametrize("rate", [0.5, 1.0])
@pytest.mark.parametrize("kept", [0.9, 0.0, -0.5])
def test_by_increment_beside_training_that_keeps_a_share_of_deviations_the_rate_is_taken_off_that_share(kept, rate):
    """With a rate of 1, what training has levelled out already (0) comes back with the other sign, for ever."""
    replicas = _replicas()
    mean = np.mean(replicas, axis=0)
    deviations = [replica - mean for replica in replicas]
    rules = _begun(lambda: ModelAveraging(rate))
    for number in range(1, ROUNDS + 1):
        _round(rules, replicas, [(kept - 1) * replica for replica in replicas])  # towards 0
        for replica, deviation in zip(replicas, deviations, strict=True):
            expected = kept**number * mean + (kept - rate) ** number * deviation
            np.testing.assert_allclose(replica, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("rate", [0.1, 0.25])
def test_elastic_averaging_conserves_the_sum_of_replicas_and_centre(rate):
    replicas, start = _replicas(), np.full(SIZE, 0.5)
    rules = _begun(lambda: ElasticAveraging(rate), start)
    total = np.sum(replicas, axis=0) + start
    gaps = []
    for _ in range(ROUNDS):
        _round(rules, replicas)
        (centre,) = rules[0].state.values()
        np.testing.assert_allclose(np.sum(replicas, axis=0) + centre, total, rtol=1e-13)
        assert all((rule.state["centre"] == centre).all() for rule in rules)
        gaps.append(max(np.abs(replica - centre).max() for replica in replicas))
    assert gaps == sorted(gaps, reverse=True)


def test_elastic_averaging_is_its_formula():
    replicas, rate = _replicas(), 0.2
    before, centre = np.array(replicas), np.zeros(SIZE)
    progress = _replicas()[::-1]
    rules = _begun(lambda: ElasticAveraging(rate))
    _round(rules, replicas, progress)
    differences = rate * (before - centre)
    np.testing.assert_allclose(replicas, before + progress - differences, rtol=1e-14)
    np.testing.assert_allclose(rules[2].state["centre"], centre + differences.sum(0), rtol=1e-14)


@pytest.mark.parametrize("rate", [0.5, 1.0])
def test_block_momentum_of_0_at_learning_rate_1_is_averaging(rate):
    one, two = _replicas(), _replicas()
    start = np.mean(one, axis=0)
    averaging = _begun(lambda: ModelAveraging(rate), start)
    block = _begun(lambda: BlockMomentum(rate, momentum=0, learning_rate=1), start)
    random = np.random.default_rng(9)
    for _ in range(ROUNDS):
        progress = random.standard_normal((TRAINERS, SIZE))
        _round(averaging, one, progress)
        _round(block, two, progress)
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-13)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("rate", [0.25, 1.0])
def test_the_rate_damps_what_separates_replicas_and_not_block_momentum(rate, nesterov):
    replicas, start = _replicas(), np.zeros(SIZE)
    rules = _begun(lambda: BlockMomentum(rate, momentum=0.5, nesterov=nesterov), start)
    random = np.random.default_rng(3)
    for _ in range(ROUNDS):
        progress, before = random.standard_normal((TRAINERS, SIZE)), np.array(replicas)
        _round(rules, replicas, progress)
        # All statistics of the replicas' mean are the model's; a share 1 - a of each deviation is left.
        mean, deviations = before.mean(0), before - before.mean(0)
        np.testing.assert_allclose(replicas, rules[0].target + (1 - rate) * deviations + progress, atol=1e-12)
    assert not np.allclose(rules[0].target, mean)


@pytest.mark.parametrize("nesterov", [False, True])
def test_block_momentum_is_its_formula(nesterov):
    mu, eta = 0.875, 0.8
    replicas, start = _replicas(), np.full(SIZE, 0.25)
    rules = _begun(lambda: BlockMomentum(1.0, momentum=mu, learning_rate=eta, nesterov=nesterov), start)
    model, velocity = start.copy(), np.zeros(SIZE)
    for _ in range(ROUNDS):
        velocity = mu * velocity + eta * (np.mean(replicas, axis=0) - model)
        model = model + velocity
        _round(rules, replicas)
        ahead = model + mu * velocity if nesterov else model
        np.testing.assert_allclose(replicas, [ahead] * TRAINERS, rtol=1e-12)
        np.testing.assert_allclose(rules[1].state["model"], model, rtol=1e-12)
        np.testing.assert_allclose(rules[1].state["velocity"], velocity, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ModelAveraging(0), "alpha 0 is not above 0 and at most 1"),
        (lambda: ElasticAveraging(1.5), "alpha 1.5 is not"),
        (lambda: ModelAveraging(float("nan")), "alpha nan is not"),
        (lambda: BlockMomentum(momentum=1), "block momentum 1 is not from 0 to below 1"),
        (lambda: BlockMomentum(momentum=-0.1), "block momentum -0.1 is not from 0"),
        (lambda: BlockMomentum(learning_rate=0), "block learning rate 0 is not above 0"),
        (lambda: BlockMomentum(learning_rate=float("inf")), "block learning rate inf is not above 0 and finite"),
    ],
)
def test_values_out_of_range_are_refused(make, said):
    with pytest.raises(CommError, match=said):
        make()
