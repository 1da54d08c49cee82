import threading
import time
from dataclasses import replace

import numpy
import pytest

from mgcaffe.comm.exchange.merged_all_reduce import MergedAllReduce
from mgcaffe.comm.planning.cost import AffineCost
from mgcaffe.comm.planning.plan import Segment, ready_times
from mgcaffe.comm.planning.schedules import SCHEDULES, make_plan
from mgcaffe.comm.transport.communicator import SingleCommunicator
from mgcaffe.comm.transport.threaded import run_ranks
from mgcaffe.errors import CommError, RankDisagreement
from tests.support.communicators import Broken

pytestmark = pytest.mark.usefixtures("both_transports")

SEGMENTS = [Segment("conv1", 0, 4), Segment("relu", 4, 0), Segment("conv2", 4, 3), Segment("fc", 7, 5)]


def plan_of(schedule):
    return make_plan(
        schedule, SEGMENTS, ready_times([1, 1, 1, 1]), AffineCost(1.5, 0.1), element_bytes=4, bucket_bytes=20
    )


def started(schedule="wfbp", ranks=None):
    sync = MergedAllReduce(ranks or SingleCommunicator(), plan_of(schedule))
    sync.start(numpy.zeros(12, numpy.float32), SEGMENTS)
    return sync


def test_every_schedule_gives_the_same_bits():
    def work(ranks):
        results = set()
        for schedule in SCHEDULES:
            flat = numpy.random.default_rng(ranks.rank).normal(size=12).astype(numpy.float32)
            sync = MergedAllReduce(ranks, plan_of(schedule))
            sync.start(flat, SEGMENTS)
            for _ in range(2):
                sync.begin_iteration()
                for index in (3, 2, 1, 0):
                    sync.gradients_ready(index)
                report = sync.wait()
                assert len(report.groups) == len(plan_of(schedule).groups)
            sync.close()
            results.add(flat.tobytes())
        return results

    results = run_ranks(2, work)
    assert results[0] == results[1] and len(results[0]) == 1


def test_a_group_starts_as_soon_as_its_lowest_layer_is_ready():
    sync = started("threshold")
    submitted = []
    sync._reducer.submit = lambda *group: submitted.append(group)
    sync.begin_iteration()
    sync.gradients_ready(3)
    assert submitted == [(0, 7, 5)]
    sync.gradients_ready(2)
    sync.gradients_ready(1)
    assert len(submitted) == 1
    sync.gradients_ready(0)
    assert submitted == [(0, 7, 5), (1, 0, 7)]
    sync.close()


@pytest.mark.parametrize("tells", [True, False])
def test_a_plan_that_is_held_starts_nothing_before_the_backward_pass_has_ended(tells):
    sync = started("threshold")
    sync.set_plan(plan_of("threshold"), afterwards=True)
    submitted, submit = [], sync._reducer.submit
    sync._reducer.submit = lambda *group: submitted.append(group) or submit(*group)
    sync.begin_iteration()
    for index in (3, 2, 1, 0):
        sync.gradients_ready(index)
    assert not submitted
    if tells:
        sync.backward_done()
        assert submitted == [(0, 7, 5), (1, 0, 7)]
    report = sync.wait()
    assert submitted == [(0, 7, 5), (1, 0, 7)]
    assert all(group.start >= report.backward_end for group in report.groups)
    sync.set_plan(plan_of("threshold"))
    sync.begin_iteration()
    sync.gradients_ready(3)
    assert len(submitted) == 3
    for index in (2, 1, 0):
        sync.gradients_ready(index)
    sync.wait()
    sync.close()


class Link(SingleCommunicator):
    """Takes 3 seconds for an all-reduce, on its own clock; but for the first ones, only once it is waited for."""

    def __init__(self, beside: int) -> None:
        super().__init__()
        self.now = 100.0
        self.left = beside
        self.waited_for = threading.Event()

    def allreduce(self, buffer, op="sum") -> None:
        if self.left <= 0:
            assert self.waited_for.wait(10)
        self.left -= 1
        self.now += 3.0

    def set_busy_polling(self, enabled: bool) -> None:
        if enabled:
            self.waited_for.set()

    def duplicate(self, waiting=None):
        return self


def test_the_report_tells_hidden_from_exposed():
    link = Link(beside=1)
    sync = MergedAllReduce(link, plan_of("wfbp"), clock=lambda: link.now)
    sync.start(numpy.zeros(12, numpy.float32), SEGMENTS)
    sync.begin_iteration()
    sync.gradients_ready(3)
    while link.now < 103:  # the first group is reduced beside the backward pass
        time.sleep(0.001)
    for index in (2, 1, 0):
        sync.gradients_ready(index)
    report = sync.wait()
    sync.close()
    assert (report.total_s, report.exposed_s, report.hidden_s) == (9.0, 6.0, 3.0)
    assert (report.began, report.backward_end) == (100.0, 3.0)
    assert [(g.bytes, g.ready, g.start, g.end, g.group) for g in report.groups] == [
        (20, 0.0, 0.0, 3.0, 0),
        (12, 3.0, 3.0, 6.0, 1),
        (16, 3.0, 6.0, 9.0, 2),
    ]


class Starting(SingleCommunicator):
    """Its all-reduces go on by themselves once they are started."""

    def start_allreduce(self, buffer, op="sum"):
        return lambda: None

    def duplicate(self, waiting=None):
        return self


@pytest.mark.parametrize(("ranks", "one_by_one"), [(Starting(), False), (SingleCommunicator(), True)])
def test_groups_travel_one_by_one_where_that_is_asked_for_or_sums_do_not_go_on_by_themselves(ranks, one_by_one):
    sync = started("wfbp", ranks)
    reports = []
    for asked_for in (False, True, False):
        sync.set_plan(plan_of("wfbp"), one_by_one=asked_for)
        backward(sync)
        reports.append(sync.wait().one_by_one)
    assert reports == [one_by_one, True, one_by_one]
    sync.close()


def test_after_the_end_nothing_more_is_reduced():
    sync = started()
    sync.close()
    sync.begin_iteration()
    with pytest.raises(CommError, match="after it was closed"):
        sync.gradients_ready(3)


def test_a_layer_out_of_order_is_named():
    sync = started()
    sync.begin_iteration()
    sync.gradients_ready(3)
    with pytest.raises(CommError, match=r"layer 'conv1' came out of order; next is layer 'conv2', number 2 of 4"):
        sync.gradients_ready(0)
    with pytest.raises(CommError, match="layer 'fc' came out of order"):
        sync.gradients_ready(3)
    with pytest.raises(CommError, match="layer 9"):
        sync.gradients_ready(9)
    sync.close()


def test_a_missing_layer_is_named():
    sync = started()
    sync.begin_iteration()
    for index in (3, 2, 1):
        sync.gradients_ready(index)
    with pytest.raises(CommError, match="too early; next is layer 'conv1'"):
        sync.wait()
    sync.close()


def test_calls_outside_an_iteration_are_errors():
    with pytest.raises(CommError, match="before start"):
        MergedAllReduce(SingleCommunicator(), plan_of("wfbp")).begin_iteration()
    sync = MergedAllReduce(SingleCommunicator())
    sync.start(numpy.zeros(12, numpy.float32), SEGMENTS)
    with pytest.raises(CommError, match="without a plan"):
        sync.begin_iteration()
    sync.set_plan(plan_of("single"))
    for call in (lambda: sync.gradients_ready(3), sync.wait):
        with pytest.raises(CommError, match="no iteration has begun"):
            call()
    sync.begin_iteration()
    with pytest.raises(CommError, match="before the gradients of the last"):
        sync.begin_iteration()
    with pytest.raises(CommError, match="within an iteration"):
        sync.set_plan(plan_of("wfbp"))
    for index in (3, 2, 1, 0):
        sync.gradients_ready(index)
    with pytest.raises(CommError, match="all layers have come"):
        sync.gradients_ready(-1)
    sync.wait()
    sync.set_plan(plan_of("wfbp"))
    assert sync.plan == plan_of("wfbp")
    sync.close()
    sync.close()


def test_ranks_with_different_plans_are_reported():
    def work(ranks):
        sync = MergedAllReduce(ranks, plan_of("wfbp" if ranks.rank == 1 else "single"))
        with pytest.raises(RankDisagreement, match=r"ranks 0,2: .*; rank 1: "):
            sync.start(numpy.zeros(12, numpy.float32), SEGMENTS)
        sync.close()

    run_ranks(3, work)


def test_segments_must_fit_the_buffer():
    with pytest.raises(CommError, match="'fc' ends at element 12 of a gradient buffer of 11"):
        MergedAllReduce(SingleCommunicator()).start(numpy.zeros(11), SEGMENTS)
    with pytest.raises(CommError, match="'b' overlaps"):
        MergedAllReduce(SingleCommunicator()).start(numpy.zeros(9), [Segment("a", 0, 5), Segment("b", 4, 5)])


def test_an_error_of_the_reducer_surfaces_in_wait():
    sync = started(ranks=Broken())
    sync.begin_iteration()
    for index in (3, 2, 1, 0):
        sync.gradients_ready(index)
    with pytest.raises(CommError, match="the link broke"):
        sync.wait()
    sync.close()


def backward(sync):
    sync.begin_iteration()
    for index in (3, 2, 1, 0):
        sync.gradients_ready(index)


def test_groups_are_given_away_as_they_come():
    first_was_given = threading.Event()

    class Held(SingleCommunicator):
        """Reduces the last group only once the first was given away."""

        calls = 0

        def allreduce(self, buffer, op="sum") -> None:
            self.calls += 1
            assert self.calls < 3 or first_was_given.wait(10)

        def duplicate(self, waiting=None):
            return self

    sync = started("wfbp", Held())
    backward(sync)
    given = []

    def on_group(offset, count):
        given.append((offset, count))
        first_was_given.set()

    report = sync.wait(on_group)
    sync.close()
    assert given == [(7, 5), (4, 3), (0, 4)]
    assert len(report.groups) == 3
    assert report.plan == plan_of("wfbp")


def test_what_the_computing_thread_does_with_a_group_is_no_waiting():
    link = Link(beside=3)
    sync = MergedAllReduce(link, plan_of("wfbp"), clock=lambda: link.now)
    sync.start(numpy.zeros(12, numpy.float32), SEGMENTS)
    backward(sync)
    while not sync._iteration._sent[-1].is_done:
        time.sleep(0.001)
    report = sync.wait(lambda offset, count: setattr(link, "now", link.now + 50))
    sync.close()
    assert link.now == 100 + 3 * 3 + 3 * 50
    assert report.exposed_s == 0 and report.hidden_s == 9 and report.waits == []


def test_deferred_groups_are_given_away_when_a_layer_needs_them():
    sync = started("wfbp")
    backward(sync)
    given = []
    sync.defer(lambda offset, count: given.append(offset))
    assert given == []
    sync.wait_for_segment(2)
    assert given == [7, 4]  # with the group sent before it
    sync.wait_for_segment(3)
    sync.wait_for_segment(1)  # a layer without elements
    assert given == [7, 4]
    report = sync.finish()
    assert given == [7, 4, 0] and len(report.groups) == 3
    assert sync.finish() is None
    backward(sync)
    assert len(sync.wait().groups) == 3
    sync.close()


def test_another_plan_ends_what_is_deferred_and_its_report_is_kept():
    sync = started("wfbp")
    backward(sync)
    given = []
    sync.defer(lambda offset, count: given.append(offset))
    sync.set_plan(plan_of("single"))
    assert given == [7, 4, 0]
    assert len(sync.finish().groups) == 3
    sync.close()


def test_deferring_twice_or_beginning_in_between_is_an_error():
    sync = started("wfbp")
    backward(sync)
    sync.defer(lambda offset, count: None)
    with pytest.raises(CommError, match="too early"):
        sync.wait()
    with pytest.raises(CommError, match="before the gradients of the last"):
        sync.begin_iteration()
    sync.finish()
    sync.close()


def test_groups_are_sent_in_the_plans_order():
    plan = make_plan("wfbp", SEGMENTS, ready_times([1, 1, 1, 1]), AffineCost(3.5, 0.03), element_bytes=4)
    assert list(plan.order) == [0, 1, 2]
    late = replace(plan, overlaps_forward=True, sending=(0, 2, 1))
    assert list(late.order) == [0, 2, 1] and late.hash != plan.hash
    sync = MergedAllReduce(SingleCommunicator(), late)
    sync.start(numpy.zeros(12, numpy.float32), SEGMENTS)
    backward(sync)
    given = []
    report = sync.wait(lambda offset, count: given.append(offset))
    assert given == [7, 0, 4]
    assert [group.group for group in report.groups] == [0, 2, 1]
    sync.close()


def test_while_the_ranks_exchange_something_else_the_reducer_polls_busily_and_they_do_not():
    link = Link(beside=2)
    enabled = []
    reducer_channel = link
    main = SingleCommunicator()
    main.duplicate = lambda waiting=None: reducer_channel
    main.set_busy_polling = enabled.append
    sync = MergedAllReduce(main, plan_of("wfbp"))
    sync.start(numpy.zeros(12, numpy.float32), SEGMENTS)
    backward(sync)
    while link.left > 0:
        time.sleep(0.001)
    assert not link.waited_for.is_set()
    sync.backward_done()
    assert link.waited_for.is_set() and enabled == [False]
    sync.wait()
    assert enabled == [False, True]
    sync.close()
