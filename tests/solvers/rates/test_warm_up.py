"""The warm-ups of Intel's and NVIDIA's forks against their formulas."""

import pytest

from mgcaffe.errors import SolverError
from mgcaffe.prototxt import SolverParameter, parse_solver
from mgcaffe.solvers.rates.warm_up import WarmUp, check_warm_up


def warm_up_of(**fields):
    return WarmUp.of(SolverParameter(base_lr=0.5, **fields))


def test_intels_rises_in_a_line():
    warm_up = warm_up_of(warmup_iter=5, warmup_start_lr=0.125)
    expected = [(i * 0.5 + (5 - i) * 0.125) / 5 for i in range(5)]
    assert [warm_up.schedule(i) for i in range(5)] == pytest.approx(expected, rel=1e-12)
    assert warm_up.iterations == 5


def test_nvidias_rises_with_the_square():
    warm_up = warm_up_of(rampup_interval=4, rampup_lr=0.125)
    assert [warm_up.schedule(i) for i in range(4)] == [0.125 + 0.375 * (i / 4) ** 2 for i in range(4)]
    assert warm_up.iterations == 4
    assert warm_up_of(rampup_interval=4).schedule(0) == 0
    assert warm_up_of().iterations == 0


def test_momentum_grows_as_intels_rate_does():
    warm_up = warm_up_of(warmup_iter=4, warmup_start_lr=0.25)
    rates = [0.25, 0.3125, 0.375, 0.4375]
    expected = [1, *(rates[i] / rates[i - 1] for i in (1, 2, 3)), 1, 1]
    assert [warm_up.momentum_factor(i) for i in range(6)] == pytest.approx(expected, rel=1e-12)


def test_momentum_stays_where_the_rate_before_was_zero_and_without_intels_warm_up():
    warm_up = warm_up_of(warmup_iter=4)
    assert [warm_up.momentum_factor(i) for i in range(4)] == [1, 1, 2, 1.5]
    assert warm_up_of(rampup_interval=4, rampup_lr=0.1).momentum_factor(2) == 1
    assert warm_up_of().momentum_factor(2) == 1


@pytest.mark.parametrize("field", ["warmup_iter", "warmup_start_lr", "rampup_interval", "rampup_lr"])
def test_negative_fields_are_refused_with_their_place(field):
    source = parse_solver(f"base_lr: 1\n{field}: -2", file="s.prototxt")
    with pytest.raises(SolverError, match=rf"s\.prototxt:2:1: {field} is -2 and must not be negative"):
        check_warm_up(source.param, source)


def test_two_warm_ups_are_refused():
    source = parse_solver("base_lr: 1\nwarmup_iter: 3\nrampup_interval: 4", file="s.prototxt")
    with pytest.raises(SolverError, match=r"s\.prototxt:3:1: warmup_iter and rampup_interval are both given"):
        check_warm_up(source.param, source)
