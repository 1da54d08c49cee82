"""A plan: which layers' gradients are all-reduced together, in which order, and when that should end.

Layers with trainable parameters count from 0 (next to the input) to L - 1; each has the segment of that number in the
gradient buffer. The backward pass goes down from L - 1, so the groups of a plan run downwards too, each a contiguous
range of segments and, because the buffer lies in layer order, one contiguous slice of it. Times are in seconds from
the start of the backward pass.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

from mgcaffe.errors import CommError, DataError
from mgcaffe.errors.checked_json import Json, json_value, parse_json


@dataclass(frozen=True)
class Segment:
    """A layer's place in the flat gradient buffer, in elements."""

    name: str
    offset: int
    count: int


@dataclass(frozen=True)
class Group:
    """Segments `first_segment` to `last_segment`, both included, reduced at once.

    Attributes:
        first_segment: that of the lowest layer, whose gradient is the last to come.
        last_segment: that of the highest layer.
        offset: the first element of the slice in the flat gradient buffer.
        count: the number of elements.
        bytes: the same in bytes.
        ready_at: when all its gradients are there (the paper's tau_b + t_b of the lowest layer).
        start_at: when its all-reduce is predicted to start (tau_c).
        end_at: when it is predicted to end (tau_c + t_c).
    """

    first_segment: int
    last_segment: int
    offset: int
    count: int
    bytes: int
    ready_at: float
    start_at: float
    end_at: float


@dataclass(frozen=True)
class Plan:
    """The groups of one schedule in the order of their all-reduces, and what is predicted of them.

    Layers without elements may lie outside all groups.

    Attributes:
        schedule: the schedule's name.
        layers: the number of layers planned for.
        groups: from the highest layers to the lowest.
        backward_end: when the backward pass ends.
        blocking: whether the reducer waits in MPI's blocking call instead of testing a nonblocking one
            (`communicator.Waiting`).
        overlaps_forward: whether an iteration ends with its last groups on their way, and the next forward pass waits
            for each where a layer needs it.
        sending: of a plan that does, the groups (indices in `groups`) in the order in which they are sent; empty: first
            ready, first sent.
        waits: of a plan that overlaps the forward pass, the seconds that communication is predicted to add to an
            iteration besides what it adds to the backward pass; None where that was not predicted.
    """

    schedule: str
    layers: int
    groups: tuple[Group, ...]
    backward_end: float
    blocking: bool = False
    overlaps_forward: bool = False
    sending: tuple[int, ...] = ()
    waits: float | None = None

    @property
    def end(self) -> float:
        """When the last all-reduce is predicted to end (0 if there is none)."""
        return max((group.end_at for group in self.groups), default=0.0)

    @property
    def exposed(self) -> float:
        """The seconds predicted to be waited for communication: what is left of it when the backward pass has ended.

        Of a plan that overlaps the forward pass, what is waited for there.
        """
        return self.waits if self.waits is not None else max(0.0, self.end - self.backward_end)

    @property
    def order(self) -> tuple[int, ...]:
        """The groups in the order in which they are sent, the same on all ranks."""
        return self.sending or tuple(range(len(self.groups)))

    @property
    def busy(self) -> float:
        """The seconds of communication in all, hidden or not."""
        return sum(group.end_at - group.start_at for group in self.groups)

    @cached_property
    def hash(self) -> str:
        """A digest of what the ranks must agree on and what decides the bits: the slices, their order, the call."""
        slices = [[group.first_segment, group.last_segment, group.offset, group.count] for group in self.groups]
        call: list[object] = ["blocking"] if self.blocking else []
        call += ["overlap_forward", self.order] if self.overlaps_forward else []
        return hashlib.sha256(json.dumps([self.layers, slices, *call]).encode()).hexdigest()

    def check(self, segments: Sequence[Segment]) -> None:
        """Make sure that the plan was made for this buffer.

        Raises:
            CommError: another number of layers, slices that are not those of the layers, a layer with elements that
                no group, or more than one, contains, or an order that leaves out a group.
        """
        if sorted(self.order) != list(range(len(self.groups))):
            raise CommError(f"the plan's order {list(self.order)} does not name each of {len(self.groups)} groups once")
        if self.layers != len(segments):
            raise CommError(f"the plan is for {self.layers} layers, the net has {len(segments)} with parameters")
        below = self.layers
        for group in self.groups:
            if not 0 <= group.first_segment <= group.last_segment < below:
                raise CommError(
                    f"the plan's group of layers {group.first_segment} to {group.last_segment} is out of order: "
                    f"groups run from layer {self.layers - 1} downwards and don't overlap"
                )
            _check_skipped(segments, group.last_segment + 1, below)
            first, last = segments[group.first_segment], segments[group.last_segment]
            if (group.offset, group.count) != (first.offset, last.offset + last.count - first.offset):
                raise CommError(
                    f"the plan's group '{first.name}' to '{last.name}' covers elements {group.offset} to "
                    f"{group.offset + group.count}, the net has these layers at {first.offset} to "
                    f"{last.offset + last.count}"
                )
            below = group.first_segment
        _check_skipped(segments, 0, below)

    def to_json(self) -> str:
        """Return the plan as text for `from_json`, the hash and the predictions with it."""
        record = {
            "schedule": self.schedule,
            "layers": self.layers,
            "blocking": self.blocking,
            "overlap_forward": self.overlaps_forward,
            "order": list(self.sending),
            "waits": self.waits,
            "backward_end": self.backward_end,
            "end": self.end,
            "exposed": self.exposed,
            "hash": self.hash,
            "groups": [{_in_json(name): value for name, value in asdict(group).items()} for group in self.groups],
        }
        return json.dumps(record, indent=1)

    @classmethod
    def from_json(cls, value: str | Mapping[str, Any]) -> Plan:
        """Read what `to_json` wrote; "hash", "end" and "exposed" are computed anew.

        Raises:
            CommError: the value is no plan.
        """
        complaint = "not a plan"
        try:
            return cls._read(
                parse_json(value, "<text>", complaint) if isinstance(value, str) else json_value(value, complaint)
            )
        except DataError as error:
            raise CommError(error.message) from None

    @classmethod
    def _read(cls, record: Json) -> Plan:
        groups = tuple(
            Group(*(_group_value(group, field.name) for field in fields(Group)))  # type: ignore[arg-type]
            for group in record["groups"].elements()
        )
        blocking, overlaps, order, waits = (
            record.get(name) for name in ("blocking", "overlap_forward", "order", "waits")
        )
        return cls(
            record["schedule"].text(),
            record["layers"].integer(least=0),
            groups,
            record["backward_end"].number(),
            blocking is not None and blocking.flag(),
            overlaps is not None and overlaps.flag(),
            () if order is None else tuple(number.integer() for number in order.elements()),
            None if waits is None else waits.number(),
        )


def _group_value(group: Json, name: str) -> float:
    value = group[_in_json(name)]
    return value.number() if name.endswith("_at") else value.integer()


def _in_json(field: str) -> str:
    """Return the key of a group's field: snapshots and plan files say first_layer and last_layer."""
    return field.replace("_segment", "_layer")


def _check_skipped(segments: Sequence[Segment], start: int, stop: int) -> None:
    for segment in range(start, stop):
        if segments[segment].count > 0:
            raise CommError(f"the plan leaves out layer '{segments[segment].name}' (number {segment})")


def ready_times(backward_times: Sequence[float]) -> list[float]:
    """Return when each layer's gradient is ready, from the layers' backward times in seconds, both by layer.

    The time of layers without parameters belongs to the next layer below that has some.
    """
    ready: list[float] = []
    elapsed = 0.0
    for seconds in reversed(backward_times):
        elapsed += seconds
        ready.append(elapsed)
    return ready[::-1]
