"""The simulation by events, against the formulas where there are some, and between bounds where there are none."""

import pytest

from mgcaffe.comm.planning.networks import parse_network
from mgcaffe.comm.replicas.event_simulation import simulate_events
from mgcaffe.comm.replicas.prediction import has_formula, predict
from mgcaffe.comm.replicas.workload import BACKGROUND, FOREGROUND, SYNCS, Exchange, Training

RING = parse_network("ring:alpha=1e-3,beta=3.2e-10")
EXCHANGE = Exchange(10_000_000, RING, processor_s=0.002, servers=2, bandwidth=25e9 / 8, latency_s=1e-3)
COLLECTIVE = Exchange(10_000_000, RING)


@pytest.mark.parametrize("sync", SYNCS)
@pytest.mark.parametrize("trainers", [1, 2, 12, 100])
def test_equal_trainers_do_as_the_formula_says(sync, trainers):
    training = Training(0.02, 200, threads=3)
    for every in (1, 30):
        found = simulate_events(sync, trainers, training, EXCHANGE, every=every, events=4000)
        expected = predict(sync, trainers, training, EXCHANGE, every=every)
        assert found.examples_per_s == pytest.approx(expected.examples_per_s, rel=2e-3)
        assert found.gap == pytest.approx(expected.gap) and found.round_s == pytest.approx(expected.round_s)
        assert found.bytes_per_s == pytest.approx(expected.bytes_per_s, rel=2e-3)
        assert found.server_bytes_per_s == pytest.approx(expected.server_bytes_per_s, rel=2e-3)


@pytest.mark.parametrize(
    ("sync", "every", "spread", "straggler_s"),
    [
        ("ma", 1, 1.0, 0.0),
        ("ma", 1, 0.3, 0.02),
        ("bmuf", 5, 0.3, 0.0),
        ("bmuf", 5, 1.0, 0.02),
        ("shadow_ma", None, 0.3, 0.02),
    ],
)
def test_trainers_that_differ_do_as_the_expected_maximum_says(sync, every, spread, straggler_s):
    training = Training(0.02, 200, spread=spread, straggler_s=straggler_s)
    for trainers in (2, 16):
        found = simulate_events(sync, trainers, training, COLLECTIVE, every=every, events=40_000)
        expected = predict(sync, trainers, training, COLLECTIVE, every=every)
        # Some thousand rounds are drawn, so their mean is off by about a hundredth of the deviation of one.
        assert found.examples_per_s == pytest.approx(expected.examples_per_s, rel=0.015)


def test_a_least_interval_is_kept():
    found = simulate_events("shadow_ma", 4, Training(0.02, 200), COLLECTIVE, interval_s=0.5, events=400)
    assert found.round_s == pytest.approx(0.5)
    assert found.gap == pytest.approx(0.5 / 0.02)


def test_groups_wait_for_fewer_than_all_but_not_for_their_own_group_alone():
    """Who waits for a group member that has waited in another group waits for that group too."""
    training = Training(0.02, 200, spread=0.5)
    free = parse_network("affine:a=1e-6,b=0")
    exchange = Exchange(1, free)
    assert not has_formula("ds_sync", 16, training, exchange)
    found = simulate_events("ds_sync", 16, training, exchange, every=1).examples_per_s
    pair, everybody = (predict("ma", n, training, exchange, every=1).examples_per_s / n for n in (2, 16))
    assert 1.02 * 16 * everybody < found < 0.98 * 16 * pair
    # One that is always slower is waited for by everybody in the end.
    slow = Training(0.02, 200, straggler_s=0.02)
    assert simulate_events("ds_sync", 16, slow, exchange, every=1).examples_per_s == pytest.approx(
        predict("ma", 16, slow, exchange, every=1).examples_per_s, rel=0.02
    )


def test_with_servers_a_straggler_holds_up_nobody_in_the_foreground_either():
    slow = Training(0.02, 200, straggler_s=0.02)
    found = simulate_events("easgd", 4, slow, EXCHANGE, every=5)
    with_servers = 5 * 200 / (5 * 0.02 + found.round_s)
    assert found.examples_per_s == pytest.approx(3 * with_servers + 5 * 200 / (5 * 0.04 + found.round_s), rel=0.01)
    assert found.is_simulated and found.gap == pytest.approx(5)


def test_with_servers_chance_costs_most_where_the_servers_are_nearly_saturated():
    def loss(trainers):
        plain, varied = Training(0.02, 200), Training(0.02, 200, spread=1.0)
        expected = predict("easgd", trainers, plain, EXCHANGE, every=5).examples_per_s
        return 1 - simulate_events("easgd", trainers, varied, EXCHANGE, every=5).examples_per_s / expected

    knee = round((5 * 0.02 + 0.0094) / 0.0032)
    assert loss(knee) > 0.03
    assert loss(2) < 0.01 and loss(10 * knee) < 0.01


def test_the_same_seed_gives_the_same_figures():
    training = Training(0.02, 200, spread=0.5)
    one, same, other = (
        simulate_events("easgd", 8, training, EXCHANGE, every=5, events=800, seed=seed) for seed in (1, 1, 2)
    )
    assert one == same != other


def test_every_sync_is_one_of_three_kinds():
    assert set(SYNCS) == {"none", *FOREGROUND, *BACKGROUND}
