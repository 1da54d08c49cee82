"""The schedules alone: what they give at their boundaries, and how they are composed."""

import math

import pytest

from mgcaffe.solvers.rates.rate_schedules import (
    clip,
    exp,
    fixed,
    inv,
    join,
    linear,
    multifixed,
    multistep,
    poly,
    quadratic,
    sigmoid,
    step,
)


@pytest.mark.parametrize("iteration", [0, 1, 9, 10, 11, 25])
def test_each_gives_its_formula(iteration):
    i = iteration
    assert fixed(0.5)(i) == 0.5
    assert step(0.5, 0.25, 10)(i) == pytest.approx(0.5 / 4 ** [0, 1, 2][i // 10], rel=1e-12)
    assert exp(0.5, 0.25)(i) == pytest.approx(0.5 / 4**i, rel=1e-12)
    assert inv(0.5, 2, 0.5)(i) == pytest.approx(0.5 / math.sqrt(1 + 2 * i), rel=1e-12)
    assert multistep(0.5, 0.25, [10, 11])(i) == pytest.approx(0.5 / 4 ** ((i >= 10) + (i >= 11)), rel=1e-12)
    assert poly(0.5, 0.1, 2, 10)(i) == pytest.approx(0.1 + 0.4 * max(0, 10 - i) ** 2 / 100, rel=1e-12)
    assert sigmoid(0.5, -0.5, 10)(i) == pytest.approx(0.25 * (1 - math.tanh((i - 10) / 4)), rel=1e-12)
    assert multifixed([3, 2, 1], [1, 10, 11])(i) == (3 if i <= 1 else 2 if i <= 10 else 1)


def test_ramps_end_where_they_are_to_end():
    assert [linear(1, 3, 4)(i) for i in range(6)] == [1, 1.5, 2, 2.5, 3, 3]
    assert [quadratic(1, 3, 4)(i) for i in range(6)] == [1, 1.125, 1.5, 2.125, 3, 3]


def test_a_joined_schedule_hands_over_at_its_boundary_and_both_count_from_zero():
    joined = join(linear(0, 8, 4), lambda iteration: 100 + iteration, at=3)
    assert [joined(i) for i in range(5)] == [0, 2, 4, 103, 104]
    never = join(linear(0, 8, 0), fixed(1), at=0)
    assert never(0) == 1


def test_a_clipped_schedule_stays_at_its_minimum():
    assert [clip(step(8, 0.5, 1), 1.5)(i) for i in range(5)] == [8, 4, 2, 1.5, 1.5]


def test_the_example_of_the_module_holds():
    schedule = clip(join(linear(0.01, 0.1, 5), step(0.1, gamma=0.5, stepsize=10), at=5), minimum=0.04)
    assert [schedule(i) for i in (0, 4, 5, 9, 10, 30)] == pytest.approx([0.04, 0.082, 0.1, 0.1, 0.05, 0.04], rel=1e-12)
