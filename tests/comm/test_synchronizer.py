import time

import numpy
import pytest

from mgcaffe.comm.communicator import SingleCommunicator
from mgcaffe.comm.cost import AffineCost
from mgcaffe.comm.plan import Segment, ready_times
from mgcaffe.comm.planners import SCHEDULES, make_plan
from mgcaffe.comm.synchronizer import CommReport, MergedAllReduce, NoSynchronizer
from mgcaffe.comm.threaded import run_ranks
from mgcaffe.errors import CommError, RankDisagreement

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


def test_the_report_tells_hidden_from_exposed():
    class Link(SingleCommunicator):
        """Takes 3 seconds for an all-reduce, on the test's clock."""

        def allreduce(self, buffer, op="sum") -> None:
            now[0] += 3.0

        def duplicate(self, waiting=None):
            return self

    now = [100.0]
    sync = MergedAllReduce(Link(), plan_of("wfbp"), clock=lambda: now[0])
    sync.start(numpy.zeros(12, numpy.float32), SEGMENTS)
    sync.begin_iteration()
    sync.gradients_ready(3)
    while now[0] < 103:  # the first group is reduced beside the backward pass
        time.sleep(0.001)
    sync._reducer.submit, submit = (lambda *group: held.append(group)), sync._reducer.submit
    held = []
    for index in (2, 1, 0):
        sync.gradients_ready(index)
    wait = sync._reducer.wait

    def submit_and_wait():
        for group in held:
            submit(*group)
        return wait()

    sync._reducer.wait = submit_and_wait
    report = sync.wait()
    sync.close()
    assert (report.total_s, report.exposed_s, report.hidden_s) == (9.0, 6.0, 3.0)
    assert [(g.bytes, g.ready, g.start, g.end) for g in report.groups] == [
        (20, 0.0, 0.0, 3.0),
        (12, 3.0, 3.0, 6.0),
        (16, 3.0, 6.0, 9.0),
    ]


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


def test_ranks_with_different_plans_are_told():
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
    class Broken(SingleCommunicator):
        def allreduce(self, buffer, op="sum") -> None:
            raise CommError("the wire broke")

        def duplicate(self, waiting=None):
            return self

    sync = started(ranks=Broken())
    sync.begin_iteration()
    for index in (3, 2, 1, 0):
        sync.gradients_ready(index)
    with pytest.raises(CommError, match="the wire broke"):
        sync.wait()
    sync.close()


def test_one_rank_synchronizes_nothing():
    sync = NoSynchronizer()
    sync.start(numpy.zeros(1), SEGMENTS)
    sync.begin_iteration()
    sync.gradients_ready(17)
    sync.set_plan(plan_of("single"))
    assert sync.wait() == CommReport(0.0, 0.0, 0.0, [])
    sync.close()
