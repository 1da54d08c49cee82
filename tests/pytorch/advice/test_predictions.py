"""Predictions from measurements that are made up: by hand, and against the planner's own."""

import pytest

from mgcaffe.comm import AffineCost
from mgcaffe.comm.planning.prediction import Channel
from mgcaffe.comm.planning.timings import Timings
from mgcaffe.comm.tuning.decision import Decision
from mgcaffe.pytorch.advice.bucket_rules import BucketRules, Gradient
from mgcaffe.pytorch.advice.measurement import Measurement
from mgcaffe.pytorch.advice.predictions import Predictor

MIB = 2**20


def predictor(sizes, times, *, a=0.0, b=0.0, slowdown=0.0, forward=1.0, tail=0.0):
    """Return one for parameters p0, p1 ..., whose gradients come from the last to the first."""
    cost = AffineCost(a, b)
    timings = Timings(times, tail)
    decision = Decision(None, timings, None, [Channel(False, cost, cost, slowdown)])
    names = [f"p{number}" for number in range(len(sizes))]
    ready, elapsed = [], 0.0
    for seconds in reversed(times):
        elapsed += seconds
        ready.append(elapsed)
    measured = Measurement(tuple(reversed(names)), tuple(ready), forward, decision, ())
    return Predictor(measured, names, [Gradient(size, "float32") for size in sizes], sizes)


def test_buckets_wait_for_their_last_gradient_and_for_the_bucket_before():
    found = predictor([MIB] * 4, [1.0] * 4, a=1.5, tail=0.25).buckets(BucketRules.capped(2, True))
    # Ready after 2 and 4 s, reduced from 2 to 3.5 and from 4 to 5.5; the backward pass ends after 4.25.
    assert found.sizes == (2 * MIB, 2 * MIB)
    assert (found.backward_s, found.exposed_s, found.iteration_s) == pytest.approx((4.25, 1.25, 6.5))


def test_what_communication_adds_to_the_backward_pass_counts():
    found = predictor([MIB] * 2, [1.0] * 2, a=1.0, slowdown=0.5).buckets(BucketRules.capped(1, True))
    # The second layer takes 1.5 s: half a second of work beside 1 s of communication, then the rest alone.
    assert found.backward_s == pytest.approx(2.5)


def test_small_buckets_are_best_without_a_start_up_cost_and_large_ones_with_it():
    caps = predictor([MIB] * 32, [0.01] * 32, b=0.01 / MIB).caps(True)
    assert len(min(caps, key=lambda each: each.iteration_s).sizes) == 32
    caps = predictor([MIB] * 32, [0.01] * 32, a=1.0).caps(True)
    assert len(min(caps, key=lambda each: each.iteration_s).sizes) == 1
    assert len({each.sizes for each in caps}) == len(caps) > 5


def test_planned_groups_are_never_behind_equal_buckets():
    found = predictor([MIB, 8 * MIB, 100, 100, 30 * MIB, 100], [0.02] * 6, a=0.01, b=1e-9)
    buckets = min(each.iteration_s for each in found.caps(True))
    assert found.merged("optimal").iteration_s <= buckets * (1 + 1e-9)
    assert found.auto().iteration_s <= found.merged("mgwfbp").iteration_s
    assert found.auto().name.startswith("auto (")


def test_a_gradient_out_of_order_holds_up_the_buckets_behind_it():
    found = predictor([MIB] * 3, [1.0] * 3).buckets(BucketRules((MIB,), False, "made once"))
    assert found.sizes == (MIB,) * 3
    late = predictor([MIB] * 3, [1.0] * 3, a=0.5)
    # Buckets made once go from the last parameter down, as gradients come here.
    assert late.buckets(BucketRules((MIB,), False, "made once")).iteration_s == pytest.approx(1 + 3 + 0.5)
