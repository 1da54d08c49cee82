"""The formulas for replicas kept together, against independent ones, and the limits that they must have."""

import math

import pytest

from mgcaffe.comm.planning.networks import parse_network
from mgcaffe.comm.replicas.prediction import has_formula, predict, slowest
from mgcaffe.comm.replicas.workload import BACKGROUND, FOREGROUND, Exchange, Training
from mgcaffe.errors import CommError

TRAINING = Training(0.02, 200)
# A round takes 60 ms, whatever the number of trainers.
FIXED = Exchange(1_200_000, parse_network("affine:a=0.06,b=0"))
# Two servers at 25 Gbit/s.
SERVED = Exchange(10_000_000, parse_network("affine:a=1,b=0"), servers=2, bandwidth=25e9 / 8)


def speed(sync, trainers=2, training=TRAINING, exchange=FIXED, **more):
    return predict(sync, trainers, training, exchange, **more).examples_per_s


@pytest.mark.parametrize("every", [1, 5, 30, 100])
def test_the_foreground_takes_an_iteration_and_its_share_of_a_round(every):
    found = predict("ma", 8, TRAINING, FIXED, every=every)
    assert found.examples_per_s == pytest.approx(8 * 200 / (0.02 + 0.06 / every))
    assert found.gap == every
    assert found.bytes_per_s == pytest.approx(1_200_000 / (0.02 * every + 0.06))


@pytest.mark.parametrize("sync", BACKGROUND)
def test_the_background_costs_training_nothing_and_has_a_gap_instead(sync):
    found = predict(sync, 8, TRAINING, FIXED)
    assert found.examples_per_s == speed("none", 8)
    assert found.gap == pytest.approx(0.06 / 0.02)
    assert found.bytes_per_s == pytest.approx(1_200_000 / 0.06)
    apart = predict(sync, 8, TRAINING, FIXED, interval_s=0.2)
    assert apart.gap == pytest.approx(10)


def test_the_shadow_threads_processor_time_is_taken_from_the_workers():
    exchange = Exchange(1_200_000, parse_network("affine:a=0.06,b=0"), processor_s=0.015)
    assert speed("shadow_ma", exchange=exchange) == pytest.approx((1 - 0.015 / 0.075) * speed("none"))
    four = Training(0.02, 200, threads=4)
    assert speed("shadow_ma", training=four, exchange=exchange) == pytest.approx(
        (1 - 0.015 / 0.075 / 4) * 4 * speed("none")
    )
    # A thread that computes all the time has the share of one of two on one core.
    busy = Exchange(1_200_000, parse_network("affine:a=0,b=0"), processor_s=0.015)
    assert speed("shadow_ma", exchange=busy) == pytest.approx(speed("none") / 2)


def test_servers_saturate_at_their_links():
    """p W / (2 M n) rounds of each trainer a second at most: no more examples from some number of trainers on."""
    limit = 2 * (25e9 / 8) / (2 * 10_000_000)
    few, many, more = (predict("easgd", n, TRAINING, SERVED, every=5) for n in (8, 100, 500))
    assert few.examples_per_s == pytest.approx(8 * 200 * 5 / (5 * 0.02 + 2e7 * 8 / 25e9))
    for found in (many, more):
        assert found.examples_per_s == pytest.approx(200 * 5 * limit)
        assert found.server_bytes_per_s == pytest.approx(25e9 / 8)
    background = predict("shadow_easgd", 500, TRAINING, SERVED)
    assert background.examples_per_s == speed("none", 500)
    assert background.gap == pytest.approx(500 / limit / 0.02)
    assert background.server_bytes_per_s == pytest.approx(25e9 / 8)
    # One server has half the limit.
    one = Exchange(10_000_000, SERVED.network, servers=1, bandwidth=25e9 / 8)
    assert speed("easgd", 500, exchange=one, every=5) == pytest.approx(100 * 5 * limit)


def test_without_servers_the_trainers_hold_the_centre_of_easgd():
    assert predict("easgd", 4, TRAINING, FIXED, every=5).examples_per_s == speed("ma", 4, every=5)


def test_groups_average_among_fewer():
    ring = parse_network("ring:alpha=1e-3,beta=1e-9")
    exchange = Exchange(1_000_000, ring)
    pairs = predict("ds_sync", 8, TRAINING, exchange, every=1)
    assert pairs.round_s == pytest.approx(ring.cost(2)(1_000_000))
    assert pairs.examples_per_s > speed("ma", 8, exchange=exchange, every=1)
    grid = Exchange(1_000_000, ring, groups="grid")
    assert predict("ds_sync", 16, TRAINING, grid, every=1).round_s == pytest.approx(ring.cost(4)(1_000_000))
    twelve = predict("ds_sync", 12, TRAINING, exchange, every=1)
    assert twelve.round_s == pytest.approx((2 * ring.cost(2)(1_000_000) + ring.cost(3)(1_000_000)) / 3)
    with pytest.raises(CommError, match="12 ranks make no square grid"):
        predict("ds_sync", 12, TRAINING, grid, every=1)


@pytest.mark.parametrize("trainers", [2, 5, 50])
def test_the_slowest_of_exponential_times_is_their_harmonic_sum(trainers):
    harmonic = sum(1 / number for number in range(1, trainers + 1))
    assert slowest(trainers, 1, Training(0.02, 1, spread=1.0)) == pytest.approx(0.02 * harmonic, rel=1e-4)


def test_the_slowest_of_many_iterations_is_that_of_normal_times():
    """Sums of many times are nearly normal; the larger of two is 1 / sqrt(pi) deviations above the mean."""
    found = slowest(2, 100, Training(0.02, 1, spread=0.1))
    assert found == pytest.approx(2 + 0.02 * 0.1 * math.sqrt(100 / math.pi), rel=1e-5)


def test_one_straggler_holds_up_the_foreground_alone():
    slow = Training(0.02, 200, straggler_s=0.02)
    assert slowest(8, 5, slow) == pytest.approx(5 * 0.04)
    assert speed("ma", 8, slow, every=5) == pytest.approx(8 * 200 * 5 / (5 * 0.04 + 0.06))
    for sync in ("none", *BACKGROUND):
        assert speed(sync, 8, slow) == pytest.approx(200 * (7 / 0.02 + 1 / 0.04))
    # With a spread too: never before the straggler, nor before the slowest of the others.
    both = slowest(8, 5, Training(0.02, 200, spread=0.5, straggler_s=0.02))
    assert both > max(5 * 0.04, slowest(8, 5, Training(0.02, 200, spread=0.5)))
    assert slowest(1, 5, Training(0.02, 200, spread=0.5, straggler_s=0.02)) == pytest.approx(0.2, rel=1e-4)


def test_one_trainer_has_nobody_to_synchronize_with_but_servers():
    for sync in (*FOREGROUND, *BACKGROUND):
        found = predict(sync, 1, TRAINING, FIXED, every=5)
        assert found.examples_per_s == 200 / 0.02 and found.gap is None and found.bytes_per_s == 0
    assert predict("easgd", 1, TRAINING, SERVED, every=5).gap == 5


def test_where_there_is_no_formula():
    varied = Training(0.02, 200, spread=0.1)
    assert not has_formula("easgd", 4, varied, SERVED)
    assert not has_formula("ds_sync", 4, varied, FIXED)
    assert has_formula("ds_sync", 3, varied, FIXED)  # three are one group
    assert has_formula("ma", 4, varied, SERVED) and has_formula("shadow_easgd", 4, varied, SERVED)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Training(0.0, 200), "describes no training"),
        (lambda: Training(0.02, 200, spread=1.5), "cannot spread by 1.5"),
        (lambda: Exchange(0, FIXED.network), "describes no exchange"),
        (lambda: Exchange(10, FIXED.network, servers=2), "bandwidth of the links of the synchronization servers"),
        (lambda: Exchange(10, FIXED.network, bandwidth=0.0), "a link of 0 bytes/s"),
        (lambda: speed("shadow_ma", exchange=Exchange(10, parse_network("affine:a=0,b=0"))), "takes no time"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(CommError, match=message):
        make()
