"""The report on an iteration's communication, and the type of the callback that gets the groups as they come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mgcaffe.comm.planning.plan import Plan


@dataclass(frozen=True)
class GroupTimes:
    """What happened to one merged group, in seconds since `begin_iteration`.

    Attributes:
        bytes: its size.
        ready: when its last gradient was ready.
        start: when its all-reduce started.
        end: when it ended.
        group: its index in the plan.
    """

    bytes: int
    ready: float
    start: float
    end: float
    group: int = 0


@dataclass(frozen=True)
class CommReport:
    """The communication of one iteration.

    Attributes:
        total_s: the seconds that all-reduces ran.
        exposed_s: the seconds after the backward pass in which the computing thread had nothing to do but to wait
            for them.
        hidden_s: the seconds of `total_s` that ran beside computation.
        groups: every group, in the order of the all-reduces.
        began: the clock at `begin_iteration`.
        backward_end: when the backward pass ended, in seconds since then.
        waits: (start, end, the number of the last group waited for) of each time that the computing thread waited,
            in seconds since `began`.
        plan: the plan whose groups they are.
        one_by_one: whether no group's all-reduce began before the last one's had ended, so that their times are what
            an all-reduce takes.
    """

    total_s: float = 0.0
    exposed_s: float = 0.0
    hidden_s: float = 0.0
    groups: list[GroupTimes] = field(default_factory=list)
    began: float = 0.0
    backward_end: float = 0.0
    waits: list[tuple[float, float, int]] = field(default_factory=list)
    plan: Plan | None = None
    one_by_one: bool = True


OnGroup = Callable[[int, int], None]
"""Takes a slice (offset, count) of the gradient buffer that holds means, on the computing thread."""
