import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgcaffe.comm.planning.cost import AffineCost, AllReduceCost, cost_from_json, line_error
from mgcaffe.errors import CommError


def test_an_affine_cost_is_a_line_with_nothing_for_nothing():
    cost = AffineCost(4, 0.5)
    assert (cost(0), cost(2)) == (0.0, 5.0)
    assert cost.many(numpy.array([0.0, 2.0])).tolist() == [0.0, 5.0]
    assert cost.affine() == (4.0, 0.5, 1.0)


def test_a_negative_line_is_refused():
    with pytest.raises(CommError, match="at least 0"):
        AffineCost(-1, 1)


def test_a_curve_interpolates_extends_and_starts_flat():
    cost = AllReduceCost([(4096, 30.0), (1024, 10.0), (2048, 20.0)])
    assert cost(0) == 0.0
    assert cost(1) == cost(1024) == 10.0
    assert cost(1536) == 15.0
    assert cost(8192) == pytest.approx(30.0 + 10.0 / 2048 * 4096)
    assert cost.many(numpy.array([0.0, 1536.0])).tolist() == [0.0, 15.0]


def test_a_single_point_extends_in_proportion():
    assert AllReduceCost([(1000, 2.0)])(3000) == pytest.approx(6.0)


def test_two_close_last_points_do_not_set_the_slope():
    cost = AllReduceCost([(1024, 1.0), (2048, 2.0), (2050, 2.5)])
    assert cost(4098) == pytest.approx(2.5 + 1.5 / 1026 * 2048)


def test_noise_is_taken_out_downwards():
    cost = AllReduceCost([(1024, 5.0), (2048, 3.0), (4096, 4.0), (4096, 9.0)])
    assert cost.points == [(1024, 3.0), (2048, 3.0), (4096, 4.0)]


@given(
    st.lists(st.tuples(st.integers(1, 10**9), st.floats(1e-6, 10)), min_size=1, max_size=20),
    st.lists(st.floats(0, 2e9), min_size=2, max_size=10),
)
def test_every_curve_is_non_decreasing(points, sizes):
    seconds = AllReduceCost(points).many(numpy.sort(numpy.array(sizes)))
    assert (numpy.diff(seconds) >= -1e-12).all()


def test_the_fit_finds_an_exact_line():
    a, b, r2 = AllReduceCost([(2.0**k, 9e-4 + 7e-10 * 2.0**k) for k in range(10, 28)]).affine()
    assert (a, b, r2) == pytest.approx((9e-4, 7e-10, 1.0))


def test_the_fit_is_never_negative():
    a, b, _ = AllReduceCost([(1024, 1e-9), (2048, 1.0), (4096, 10.0)]).affine()
    assert a >= 0 and b >= 0
    a, b, _ = AllReduceCost([(1024, 2.0), (2048, 2.0)]).affine()
    assert (a, 2048 * b) == pytest.approx((2.0, 0.0), abs=1e-3)
    a, b, _ = AllReduceCost([(1024, 3.0)]).affine()
    assert a + 1024 * b == pytest.approx(3.0)


def test_a_step_in_the_curve_does_not_hide_the_start_up_of_most_sizes():
    points = [(1024.0, 5e-5), (2048.0, 5e-5)] + [(2.0**k, 6e-4 + 1e-9 * 2.0**k) for k in range(12, 24)]
    a, b, r2 = AllReduceCost(points).affine()
    assert 2e-4 < a < 6e-4 and b == pytest.approx(1e-9, rel=0.5)
    sizes, seconds = numpy.array(points).T
    assert r2 == pytest.approx(1 - ((seconds - a - b * sizes) ** 2).mean() / seconds.var())


@pytest.mark.parametrize("cost", [AffineCost(1e-3, 2e-9), AllReduceCost([(1024, 1e-5), (4096, 2e-5)])])
def test_json_gives_the_same_cost_back(cost):
    import json

    assert cost_from_json(cost.to_json()) == cost
    assert cost_from_json(json.dumps(cost.to_json())) == cost


@pytest.mark.parametrize("value", ["", "[]", "{}", '{"kind": "cubic"}', '{"kind": "curve", "points": [[1]]}'])
def test_what_is_no_cost_is_an_error(value):
    with pytest.raises(CommError):
        cost_from_json(value)


@pytest.mark.parametrize("points", [[], [(0, 1.0)], [(1, 0.0)], [(1, float("nan"))]])
def test_points_that_make_no_sense_are_errors(points):
    with pytest.raises(CommError):
        AllReduceCost(points)


def test_how_far_the_line_is_off_is_reported():
    exact = AllReduceCost([(size, 1e-4 + 1e-9 * size) for size in (1024, 4096, 65536)])
    assert line_error(exact)[:2] == pytest.approx((0, 0), abs=1e-3)
    jumpy = AllReduceCost([(1024, 1e-4), (8192, 1e-4), (12288, 4e-4), (1 << 20, 2e-3)])
    mean, worst, where = line_error(jumpy)
    assert 0 < mean < worst and where in (8192, 12288)
