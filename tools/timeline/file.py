"""The timeline's file: Chrome's trace format in JSON, which ui.perfetto.dev and chrome://tracing open.

One process for each rank, with the threads `compute` and `comm`, and `snapshot` where one was written; the time that
a merged group is ready before its all-reduce starts lies on tracks of its own. Trainers with replicas of their own have
the rounds that bring them together on `comm`, and gap and distance as counters. All times are in microseconds on rank
0's clock, from the first thing recorded. `otherData` holds what is no event, such as the plan with its predicted
times, for `engine report`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mgcaffe.comm import CommReport, Plan
from mgcaffe.comm.transport.clock import ClockOffset
from mgcaffe.errors import EXIT_CANNOT_WRITE, EngineError
from mgcaffe.errors.whole_files import write_output

FORMAT = "mgcaffe timeline 1"
_WHAT = "the timeline "
_COMPUTE, _COMM, _SNAPSHOT = 0, 1, 2
_THREADS = {_COMPUTE: "compute", _COMM: "comm", _SNAPSHOT: "snapshot"}


@dataclass(frozen=True)
class Span:
    """Something that took time on the computing thread, or was written beside it.

    Attributes:
        name, category: what it was: a layer's forward or backward, an update, a test ...
        start, end: on the rank's own clock, in seconds.
        facts: more to know about it.
    """

    name: str
    category: str
    start: float
    end: float
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass
class IterationRecord:
    """What one rank recorded in one iteration.

    Attributes:
        number: of the iteration.
        began: when its first layer's forward began, on the rank's own clock, in seconds; None before that.
        is_complete: whether it was recorded from beginning to end; what was begun before the first iteration or after
            the last, such as a test, lies in records that are not.
        spans: in the order in which they were recorded.
        reports: of its communication.
    """

    number: int
    began: float | None = None
    is_complete: bool = False
    spans: list[Span] = field(default_factory=list)
    reports: list[CommReport] = field(default_factory=list)


@dataclass(frozen=True)
class RankRecord:
    """What one rank recorded.

    Attributes:
        rank, host: which.
        iterations: by number, ascending.
        rounds: that brought its replica together with the others'; facts `round`, `gap` (iterations since the one
            before) and `distance`.
    """

    rank: int
    host: str
    iterations: list[IterationRecord]
    rounds: list[Span] = field(default_factory=list)

    def spans(self) -> list[tuple[int, Span]]:
        """Return each span with its iteration."""
        return [(each.number, span) for each in self.iterations for span in each.spans]

    def reports(self) -> list[tuple[int, CommReport]]:
        """Return each report of communication with its iteration."""
        return [(each.number, report) for each in self.iterations for report in each.reports]


def check_writable(path: str) -> None:
    """Find out before the run that the file can be written; one that is there stays as it is.

    Raises:
        EngineError: with exit code 73; it cannot, or is a named pipe, which waits for a reader.
    """
    file = Path(os.path.realpath(path))  # of a link to nothing, what it leads to is made and removed, not the link
    if file.is_fifo():
        raise EngineError(f"cannot write {_WHAT}{path}: it is a named pipe", exit_code=EXIT_CANNOT_WRITE)
    try:
        is_new = not file.exists()
        file.open("ab").close()
        if is_new:
            file.unlink()
    except OSError as error:
        raise _failure(path, error) from None


def _failure(path: str, error: OSError) -> EngineError:
    return EngineError(f"cannot write {_WHAT}{path}: {error.strerror}", exit_code=EXIT_CANNOT_WRITE)


def write_timeline(
    path: str,
    net: str,
    segments: Sequence[str],
    records: Sequence[RankRecord],
    offsets: Sequence[ClockOffset],
) -> None:
    """Write the file.

    Args:
        path: where to.
        net: the net's name.
        segments: the names of the layers with gradients, from the lowest.
        records: what each rank recorded, by rank.
        offsets: how far their clocks are ahead of rank 0's.

    Raises:
        EngineError: with exit code 73.
    """
    zero = min(span.start - offsets[record.rank].seconds for record in records for _, span in record.spans())
    plan = next((report.plan for record in records for _, report in record.reports()), None)
    other = {
        "format": FORMAT,
        "net": net,
        "iterations": [each.number for each in records[0].iterations if each.is_complete],
        "ranks": [
            {
                "rank": record.rank,
                "host": record.host,
                "clock_offset_us": offsets[record.rank].seconds * 1e6,
                "clock_uncertainty_us": offsets[record.rank].uncertainty * 1e6,
            }
            for record in records
        ],
        "plan": _plan(plan, segments),
    }

    def lines() -> Iterator[str]:
        yield '{"displayTimeUnit": "ms",\n"otherData": ' + json.dumps(other) + ',\n"traceEvents": [\n'
        separator = ""
        for record in records:
            shift = zero + offsets[record.rank].seconds
            for event in _events(record, shift, segments):
                yield separator + json.dumps({**event, "pid": record.rank})
                separator = ",\n"
        yield "\n]}\n"

    write_output(path, lines(), _WHAT)


def _plan(plan: Plan | None, segments: Sequence[str]) -> dict[str, Any] | None:
    if plan is None:
        return None
    return {
        "schedule": plan.schedule,
        "layers": list(segments),
        "backward_ms": plan.backward_end * 1e3,
        "groups": [
            {
                "first": segments[group.first_segment],
                "last": segments[group.last_segment],
                "layers": group.last_segment - group.first_segment + 1,
                "bytes": group.bytes,
                "ready_ms": group.ready_at * 1e3,
                "start_ms": group.start_at * 1e3,
                "end_ms": group.end_at * 1e3,
            }
            for group in plan.groups
        ],
    }


def _events(record: RankRecord, shift: float, segments: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield a rank's events; `shift` is the file's zero on its clock."""
    yield _about("process_name", name=f"rank {record.rank} ({record.host})")
    yield _about("process_sort_index", sort_index=record.rank)
    snapshots = any(span.category == "snapshot" for _, span in record.spans())
    for thread in (_COMPUTE, _COMM, *([_SNAPSHOT] if snapshots else [])):
        yield {**_about("thread_name", name=_THREADS[thread]), "tid": thread}
        yield {**_about("thread_sort_index", sort_index=thread), "tid": thread}
    for iteration, span in record.spans():
        thread = _SNAPSHOT if span.category == "snapshot" else _COMPUTE
        facts = {"iteration": iteration, **span.facts}
        yield _slice(thread, span.name, span.category, span.start - shift, span.end - shift, facts)
    for iteration, report in record.reports():
        yield from _communication(iteration, report, report.began - shift, segments)
    for span in record.rounds:
        start, end = span.start - shift, span.end - shift
        yield _slice(_COMM, span.name, span.category, start, end, span.facts)
        for name in ("gap", "distance"):
            if name in span.facts:
                yield {"name": name, "ph": "C", "ts": _microseconds(end), "args": {name: span.facts[name]}}


def _communication(
    iteration: int, report: CommReport, began: float, segments: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield the groups of one iteration; `began` is when its backward pass began."""
    assert report.plan is not None
    for times in report.groups:
        group = report.plan.groups[times.group]
        first, last = segments[group.first_segment], segments[group.last_segment]
        layers = first if first == last else f"{last} .. {first}"
        facts = {
            "iteration": iteration,
            "group": times.group,
            "layers": layers,
            "bytes": times.bytes,
            "ready_ms": times.ready * 1e3,
            "start_ms": times.start * 1e3,
            "end_ms": times.end * 1e3,
        }
        name = f"all-reduce of group {times.group}"
        yield _slice(_COMM, name, "allreduce", began + times.start, began + times.end, facts)
        for phase, at in (("b", times.ready), ("e", times.start)):
            yield {
                "name": f"group {times.group} waits",
                "cat": "queue",
                "ph": phase,
                "id": f"{iteration}.{times.group}",
                "tid": _COMM,
                "ts": _microseconds(began + at),
                "args": {"iteration": iteration, "group": times.group},
            }
    for start, end, number in report.waits:
        facts = {"iteration": iteration, "group": number}
        yield _slice(_COMPUTE, f"wait for group {number}", "wait", began + start, began + end, facts)


def _slice(thread: int, name: str, category: str, start: float, end: float, facts: dict[str, Any]) -> dict[str, Any]:
    first, last = _microseconds(start), _microseconds(end)
    return {
        "name": name,
        "cat": category,
        "ph": "X",
        "tid": thread,
        "ts": first,
        "dur": round(max(0.0, last - first), 3),
        "args": facts,
    }


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def _about(what: str, **facts: Any) -> dict[str, Any]:
    return {"name": what, "ph": "M", "ts": 0, "args": facts}
