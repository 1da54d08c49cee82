"""The schedules against known answers, the authors' measured trace, and (optimal) all contiguous merges."""

import csv

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgcaffe.comm.planning.cost import AffineCost, AllReduceCost
from mgcaffe.comm.planning.plan import Segment, ready_times
from mgcaffe.comm.planning.schedules import SCHEDULES, make_plan
from mgcaffe.errors import CommError
from tests.support.counted_lines import counted_lines
from tests.support.paths import GOLDEN

pytestmark = pytest.mark.slow

TRACES = GOLDEN / "traces"


def ranges(plan):
    return [(group.first_segment, group.last_segment) for group in plan.groups]


def plan(schedule, sizes, backward_times, cost, **options):
    return make_plan(schedule, sizes, ready_times(backward_times), cost, element_bytes=1, **options)


@pytest.mark.parametrize(
    ("schedule", "end", "merged"),
    [
        ("single", 17, [(0, 2)]),
        ("wfbp", 18, [(2, 2), (1, 1), (0, 0)]),
        ("mgwfbp", 17, [(1, 2), (0, 0)]),
        ("optimal", 14, [(2, 2), (0, 1)]),
    ],
)
def test_the_counter_example_to_the_papers_rule(schedule, end, merged):
    made = plan(schedule, [1, 1, 3], [4, 3, 1], AffineCost(4, 1))
    assert made.end == end and ranges(made) == merged


def test_the_papers_rule_merges_only_for_less_than_one_start_up():
    made = plan("mgwfbp", [1, 1], [4, 1], AffineCost(4, 1))
    assert ranges(made) == [(1, 1), (0, 0)]
    made = plan("mgwfbp", [1, 1], [3.999, 1], AffineCost(4, 1))
    assert ranges(made) == [(0, 1)]


def papers_rule(sizes, backward_times, a, b):
    """mgwfbp.md 1.3, word for word: all start times computed anew after every merge."""
    count = len(sizes)
    sizes = list(sizes)
    ready = ready_times(backward_times)
    seconds = [a + b * size for size in sizes]

    def starts():
        start = [0.0] * count
        for layer in reversed(range(count)):
            free = start[layer + 1] + seconds[layer + 1] if layer + 1 < count else 0.0
            start[layer] = max(free, ready[layer])
        return start

    start = starts()
    merged = set()
    for layer in range(count - 1, 0, -1):
        if ready[layer - 1] - start[layer] < a:
            seconds[layer] = 0
            sizes[layer - 1] += sizes[layer]
            sizes[layer] = 0
            seconds[layer - 1] = a + b * sizes[layer - 1]
            start = starts()
            merged.add(layer)
    result, last = [], count - 1
    for layer in reversed(range(count)):
        if layer not in merged:
            result.append((layer, last))
            last = layer - 1
    return result


numbers = st.integers(0, 20).map(lambda value: value / 4)


@given(st.lists(st.tuples(st.integers(1, 9), numbers), min_size=1, max_size=14), numbers, numbers)
def test_mgwfbp_is_the_papers_rule(layers, a, b):
    sizes, times = zip(*layers, strict=True)
    assert ranges(plan("mgwfbp", sizes, times, AffineCost(a, b))) == papers_rule(sizes, times, a, b)


def all_merges(sizes, ready, cost):
    """Return (end, groups) of every contiguous merge."""
    count = len(sizes)
    sums = numpy.concatenate([[0], numpy.cumsum(sizes)])
    table = [[cost(sums[last + 1] - sums[first]) for last in range(count)] for first in range(count)]
    partial = [(0.0, 0, count)]
    merges = []
    while partial:
        end, groups, above = partial.pop()
        for first in range(above):
            made = (max(end, ready[first]) + table[first][above - 1], groups + 1)
            if first == 0:
                merges.append(made)
            else:
                partial.append((*made, first))
    return merges


def test_all_merges_are_all_merges():
    assert len(all_merges([1] * 7, [0.0] * 7, AffineCost(1, 1))) == 2**6


costs = st.one_of(
    st.builds(AffineCost, numbers, numbers),
    st.lists(st.tuples(st.integers(1, 60), st.floats(0.01, 20)), min_size=1, max_size=12).map(AllReduceCost),
    st.lists(st.integers(0, 6), min_size=30, max_size=30).map(
        lambda steps: AllReduceCost(list(enumerate((numpy.cumsum(steps) + 1.0).tolist(), start=1)))
    ),
)


@settings(max_examples=250)
@given(st.lists(st.tuples(st.integers(1, 9), numbers), min_size=1, max_size=12), costs)
def test_optimal_ends_first_and_then_has_the_fewest_groups(layers, cost):
    sizes, times = zip(*layers, strict=True)
    merges = all_merges(sizes, ready_times(times), cost)
    best = min(end for end, _ in merges)
    made = plan("optimal", sizes, times, cost)
    assert made.end == pytest.approx(best, rel=1e-9, abs=2e-9)
    assert len(made.groups) == min(groups for end, groups in merges if end <= best + 1e-9 * max(1, best))


def test_parts_that_end_later_but_in_time_save_groups():
    # {3}, {2, 1} ends before {3, 2, 1}, which a single lexicographic pass therefore never looks at again.
    made = plan("optimal", [1, 1, 1, 1], [100, 1, 10, 1], AffineCost(1, 0.1))
    assert ranges(made) == [(1, 3), (0, 0)]
    assert made.end == pytest.approx(113.1)


@given(st.lists(st.tuples(st.integers(1, 9), numbers), min_size=1, max_size=30), costs)
def test_optimal_is_never_behind_another_schedule(layers, cost):
    sizes, times = zip(*layers, strict=True)
    best = plan("optimal", sizes, times, cost).end
    for schedule in SCHEDULES:
        assert best <= plan(schedule, sizes, times, cost, bucket_bytes=10).end * (1 + 1e-9) + 1e-9


def jumpy(generator):
    """A measured network whose protocol changes at many sizes: stairs of up to three times as much."""
    sizes = numpy.unique(numpy.geomspace(1024, 1e8, 60).astype(int))
    stairs = numpy.cumprod(numpy.where(generator.random(len(sizes)) < 0.2, generator.uniform(1, 3, len(sizes)), 1))
    return AllReduceCost(list(zip(sizes.tolist(), ((1e-4 + 7e-10 * sizes) * stairs).tolist(), strict=True)))


@pytest.mark.parametrize("kind", ["affine", "jumpy"])
@pytest.mark.parametrize("seconds_a_layer", [1e-5, 1e-4, 1e-3, 1e-2])
def test_a_thousand_layers_are_planned_by_a_few_operations_on_arrays_a_layer(seconds_a_layer, kind):
    generator = numpy.random.default_rng(0)
    sizes = (generator.lognormal(10, 2, 1000).astype(int) + 1).tolist()
    times = generator.exponential(seconds_a_layer, 1000).tolist()
    cost = AffineCost(9e-4, 7e-10) if kind == "affine" else jumpy(generator)
    assert counted_lines(lambda: plan("optimal", sizes, times, cost)) < 100 * 1000  # 25 to 56 a layer


def test_threshold_closes_a_bucket_when_it_is_full():
    made = plan("threshold", [5, 5, 5, 5, 5], [1] * 5, AffineCost(1, 1), bucket_bytes=10)
    assert ranges(made) == [(3, 4), (1, 2), (0, 0)]


def test_layers_without_elements_take_no_part_and_delay_nothing():
    cost = AffineCost(0.25, 1)
    for schedule in SCHEDULES:
        made = plan(schedule, [0, 3, 0, 2, 0], [1, 1, 1, 1, 1], cost, bucket_bytes=1)
        assert made.layers == 5 and {group.bytes for group in made.groups} <= {2, 3, 5}
        made.check([Segment("", 0, 0), Segment("", 0, 3), Segment("", 3, 0), Segment("", 3, 2), Segment("", 5, 0)])
    assert ranges(plan("wfbp", [0, 3, 0, 2, 0], [1] * 5, cost)) == [(3, 3), (1, 1)]
    assert plan("optimal", [0, 0], [1, 1], cost).groups == ()
    assert plan("optimal", [], [], cost).groups == ()


def test_gaps_between_layers_belong_to_a_merged_slice():
    segments = [Segment("a", 0, 3), Segment("b", 16, 5)]
    (group,) = make_plan("single", segments, [2, 1], AffineCost(1, 1), element_bytes=4).groups
    assert (group.offset, group.count, group.bytes) == (0, 21, 84)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("optimum", [1], [1.0]), "did you mean 'optimal'"),
        (("single", [1, 1], [1.0]), "2 layers, but 1 ready times"),
        (("single", [1, -1], [2.0, 1.0]), "negative"),
        (("single", [1, 1], [1.0, 2.0]), "layer 0 is said to be ready at 1.0 s, before"),
        (("single", [1], [float("nan")]), "cannot be ready at nan"),
    ],
)
def test_what_is_no_backward_pass_is_an_error(arguments, words):
    with pytest.raises(CommError) as caught:
        make_plan(*arguments, AffineCost(1, 1), element_bytes=4)
    assert words in str(caught.value)


def test_one_line_misses_a_real_network():
    with (TRACES / "osu_allreduce_10gbe.csv").open() as file:
        rows = [row for row in csv.DictReader(line for line in file if not line.startswith("#"))]
    points = [
        (float(row["bytes"]), float(row["latency_us"]) * 1e-6)
        for row in rows
        if row["nodes"] == "8" and int(row["bytes"]) >= 1024
    ]
    curve = AllReduceCost(points)
    a, b, _ = curve.affine()
    assert curve(12288) > 3.5 * curve(8192)
    errors = [abs(a + b * size - seconds) / seconds for size, seconds in points]
    assert max(errors) > 0.5
