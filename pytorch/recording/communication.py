"""What a wrapped module communicates, pass after pass, in the form in which timelines take it.

A module has several lists of segments: one for each buffer of `MergedGradientParallel`, or each time that
DistributedDataParallel makes its buckets anew. Here they stand one behind the other in a single list, to which plans
and reports refer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from mgcaffe.comm import CommReport, Plan
from mgcaffe.comm.exchange.comm_report import GroupTimes
from mgcaffe.comm.planning.plan import Group
from mgcaffe.pytorch.merged_gradient_parallel import MergedGradientParallel


class Communication(Protocol):
    """Tells what a module has communicated."""

    @property
    def segments(self) -> Sequence[str]:
        """The names of the parameters that plans and reports refer to."""

    @property
    def is_settled(self) -> bool:
        """Whether the groups are those of the passes to come."""

    def take_reports(self) -> list[CommReport]:
        """Return the reports on the backward passes that have ended since this was called before."""


class MergedCommunication:
    """The communication of a `MergedGradientParallel`.

    Args:
        model: the module.
        ranks: how many there are.
    """

    def __init__(self, model: MergedGradientParallel, ranks: int) -> None:
        self._model = model
        self._ranks = ranks
        self._taken: list[CommReport] = model.reports

    @property
    def segments(self) -> list[str]:
        """The names of the parameters of all buffers."""
        return [segment.name for segments in self._model.segments for segment in segments]

    @property
    def is_settled(self) -> bool:
        """Whether the plan was found."""
        return self._ranks == 1 or self._model.plan is not None

    def take_reports(self) -> list[CommReport]:
        """Return the report on the last backward pass, unless it has been returned."""
        reports = self._model.reports
        if reports is self._taken or not reports:
            return []
        self._taken = reports
        return [join_reports(reports, [len(segments) for segments in self._model.segments])]


def join_reports(reports: Sequence[CommReport], counts: Sequence[int]) -> CommReport:
    """Return one report on the buffers of a pass.

    Args:
        reports: of each buffer.
        counts: how many segments each has.
    """
    if len(reports) == 1 or any(report.plan is None for report in reports):
        return reports[0]
    began = min(report.began for report in reports)
    groups: list[Group] = []
    times: list[GroupTimes] = []
    waits: list[tuple[float, float, int]] = []
    segments = offset = 0
    for report, count in zip(reports, counts, strict=True):
        assert report.plan is not None
        late, base = report.began - began, len(groups)
        times += [
            replace(
                each, ready=each.ready + late, start=each.start + late, end=each.end + late, group=each.group + base
            )
            for each in report.groups
        ]
        waits += [(start + late, end + late, number + base) for start, end, number in report.waits]
        groups += [_moved(group, segments, offset) for group in report.plan.groups]
        segments += count
        offset += max((group.offset + group.count for group in report.plan.groups), default=0)
    plans = [report.plan for report in reports if report.plan is not None]
    names = dict.fromkeys(plan.schedule for plan in plans)
    plan = Plan(" + ".join(names), segments, tuple(groups), max(plan.backward_end for plan in plans))
    return CommReport(
        sum(report.total_s for report in reports),
        sum(report.exposed_s for report in reports),
        sum(report.hidden_s for report in reports),
        sorted(times, key=lambda each: each.start),
        began,
        max(report.backward_end + report.began - began for report in reports),
        sorted(waits),
        plan,
    )


def _moved(group: Group, segments: int, offset: int) -> Group:
    first, last = group.first_segment + segments, group.last_segment + segments
    return replace(group, first_segment=first, last_segment=last, offset=group.offset + offset)
