"""Reports on several buffers as one."""

from mgcaffe.comm import CommReport, Plan
from mgcaffe.comm.exchange.comm_report import GroupTimes
from mgcaffe.comm.planning.plan import Group
from mgcaffe.pytorch.recording.communication import join_reports


def report(began, segments, schedule):
    """Return a report on a group for each segment."""
    groups = tuple(Group(each, each, each, 1, 4, 0.0, 0.0, 0.0) for each in reversed(range(segments)))
    times = [GroupTimes(4, 1.0 + each, 1.5 + each, 2.0 + each, each) for each in range(segments)]
    plan = Plan(schedule, segments, groups, 3.0)
    return CommReport(2.0, 0.5, 1.5, times, began, 3.0, [(3.0, 3.5, segments - 1)], plan)


def test_buffers_stand_one_behind_the_other():
    joined = join_reports([report(10.0, 2, "wfbp"), report(10.25, 1, "single")], [2, 1])
    assert joined.plan.schedule == "wfbp + single" and joined.plan.layers == 3
    assert [(each.first_segment, each.offset) for each in joined.plan.groups] == [(1, 1), (0, 0), (2, 2)]
    assert [(each.group, each.ready) for each in joined.groups] == [(0, 1.0), (2, 1.25), (1, 2.0)]
    assert joined.waits == [(3.0, 3.5, 1), (3.25, 3.75, 2)]
    assert (joined.total_s, joined.exposed_s, joined.began, joined.backward_end) == (4.0, 1.0, 10.0, 3.25)


def test_one_buffer_is_left_as_it_is():
    only = report(1.0, 2, "wfbp")
    assert join_reports([only], [2]) is only
    alone = CommReport()
    assert join_reports([alone, alone], [1, 1]) is alone
