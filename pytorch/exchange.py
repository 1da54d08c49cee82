"""The gradients of one module on their way between the ranks: flat buffers, each with an exchange of its own.

    exchange = Exchange(parameters, order, ranks, options, emit)
    exchange.begin()                          a backward pass begins
    exchange.take(index)                      a parameter's gradient is complete
    exchange.backward_done()                  all are
    exchange.finish(outcome, on_group)        every `.grad` is the mean over the ranks
    exchange.plan_next(passes, learns=True)   other groups may be tried next

There is a buffer for each type and device, and for each pattern of `own_group`. A buffer's segments are its parameters,
the last of which is ready first. Groups are sent downwards, so that a gradient which comes early waits for those above
it (`_Lane`), on all ranks alike.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from mgcaffe.comm import AffineCost, Communicator, Plan, PlanBasis, Segment, plan_text, ready_times
from mgcaffe.comm.exchange.comm_report import CommReport
from mgcaffe.errors import UsageError
from mgcaffe.pytorch.flat_gradients import FlatGradients, Place, buffer_type
from mgcaffe.pytorch.options import ExchangeOptions
from mgcaffe.pytorch.parameters import NamedParameter
from mgcaffe.solvers.events import Emit, Event, PlanChosen
from mgcaffe.solvers.exchange.averaging import GradientAveraging
from mgcaffe.solvers.exchange.gradient_buffer import GradientBuffer

_RUN_BYTES = 1 << 18
"""From how many bytes of gradients on these are brought to their places together, while a cache still holds them."""

OnGroup = Callable[[list[nn.Parameter]], None]
"""Takes parameters whose gradients are means over the ranks."""


@dataclass(frozen=True)
class Outcome:
    """What the ranks agreed on of a backward pass, before its gradients are means.

    Attributes:
        unused: the numbers of the parameters that no rank used; their gradients stay what they were.
        factor: by which the means are multiplied.
    """

    unused: Collection[int] = ()
    factor: float = 1.0


class Exchange:
    """The exchange of all gradients of a module; making it is a collective call.

    Args:
        parameters: those that are averaged.
        order: their numbers in the order in which their gradients become ready.
        communicator: the ranks; its users are this and, between two backward passes, the module.
        options: how gradients travel.
        emit: takes the events.

    Raises:
        CommError: a plan file that does not fit.
        DataError: a plan file that cannot be read.
        UsageError: a plan file and several buffers.
    """

    def __init__(
        self,
        parameters: Sequence[NamedParameter],
        order: Sequence[int],
        communicator: Communicator,
        options: ExchangeOptions,
        emit: Emit,
    ) -> None:
        members: dict[tuple[torch.dtype, torch.device, str], list[NamedParameter]] = {}
        for index in reversed(order):
            named = parameters[index]
            key = buffer_type(named.parameter.dtype), named.parameter.device, named.group
            members.setdefault(key, []).append(named)
        planned = [key for key in members if not any(each.group for each in members[key])]
        if options.plan_file is not None and len(planned) > 1:
            kinds = ", ".join(f"{each[0].parameter.dtype} on {each[0].parameter.device}" for each in members.values())
            raise UsageError(f"plan_file holds a plan for one buffer, and gradients are of several kinds: {kinds}")
        self._lanes: list[_Lane] = []
        self._lane_of: list[tuple[_Lane, int]] = [None] * len(parameters)  # type: ignore[list-item]
        # In the order of the first parameter, which is the same on all ranks whatever order they saw.
        for key in sorted(members, key=lambda key: min(each.index for each in members[key])):
            lane = _Lane(members[key], communicator, options, emit)
            self._lanes.append(lane)
            for segment, named in enumerate(members[key]):
                self._lane_of[named.index] = lane, segment
        self._has_begun = False

    @property
    def plans(self) -> list[Plan | None]:
        """The plan of each buffer, None where it is still being looked for."""
        return [lane.averaging.plan for lane in self._lanes]

    @property
    def segments(self) -> list[list[Segment]]:
        """The parameters of each buffer, in their places."""
        return [lane.gradients.segments for lane in self._lanes]

    def plan_texts(self) -> list[str | None]:
        """Return the plan of each buffer as the text of a plan file, None where it is still being looked for."""
        return [lane.plan_text() for lane in self._lanes]

    def begin(self) -> None:
        """Take note that a backward pass begins, if it has not begun."""
        if self._has_begun:
            return
        self._has_begun = True
        for lane in self._lanes:
            lane.begin()

    def take(self, index: int, *, unused: bool = False) -> None:
        """Take over a parameter's complete gradient, or zeros; `unused`: this rank's backward pass didn't reach it."""
        lane, segment = self._lane_of[index]
        if unused:
            lane.gradients.places[segment].keep()
        lane.ready(segment)

    def take_zeros(self) -> None:
        """Take zeros for all parameters, whose own gradients stay as they are."""
        for lane in self._lanes:
            lane.take_zeros()

    def backward_done(self) -> None:
        """Take note that all gradients have been taken."""
        for lane in self._lanes:
            lane.averaging.backward_done()

    def finish(self, outcome: Outcome, on_group: OnGroup | None) -> list[CommReport]:
        """Return once all gradients are means over the ranks; `on_group` gets them as they come.

        Raises:
            Exception: what went wrong on the way.
        """
        reports = [lane.finish(outcome, on_group) for lane in self._lanes]
        self._has_begun = False
        return reports

    def plan_next(self, passes: int, *, learns: bool) -> None:
        """Choose the groups of the next backward pass; collective.

        Args:
            passes: how many backward passes have ended.
            learns: whether the times of the last one say something.
        """
        for lane in self._lanes:
            if learns:
                lane.averaging.after_update(passes)
            else:
                lane.averaging.iteration_skipped()

    def close(self) -> None:
        """End the exchange; harmless when repeated."""
        for lane in self._lanes:
            lane.averaging.close()


class _Lane:
    """One buffer with its exchange."""

    def __init__(
        self, members: Sequence[NamedParameter], communicator: Communicator, options: ExchangeOptions, emit: Emit
    ) -> None:
        if members[0].group:
            options = replace(options, schedule="single", plan_file=None, calibration_iterations=0)
        # Divided on the way into the buffer, gradients need no other pass. In 16 bits small ones would be lost by it.
        divides_first = options.allreduce_type == "float32"
        self.gradients = FlatGradients(members, 1 / communicator.size if divides_first else 1.0)
        buffer = GradientBuffer(self.gradients.flat, self.gradients.segments, is_divided=divides_first)
        self._emit = emit
        self._chosen: PlanChosen | None = None
        self.averaging = GradientAveraging(buffer, communicator, options.solver_parameter(), None, self._take_event)
        self._place_at = {segment.offset: number for number, segment in enumerate(self.gradients.segments)}
        self._ready = bytearray(len(members))
        self._ends: tuple[object, bytearray] = (None, bytearray())
        self._next = -1
        self._taken = 0
        self._elsewhere: list[Place] = []

    def plan_text(self) -> str | None:
        """Return the plan as the text of a plan file, None while it is being looked for."""
        plan = self.averaging.plan
        if plan is None:
            return None
        segments, chosen = self.gradients.segments, self._chosen
        ready, cost = [0.0] * len(segments), chosen.cost if chosen is not None else None
        if chosen is not None and chosen.decision is not None:
            ready = ready_times(chosen.decision.timings.backward_times)
        basis = PlanBasis(segments, ready, cost or AffineCost(0.0, 0.0), self.gradients.flat.element_size())
        return plan_text(plan, basis)

    def _take_event(self, event: Event) -> None:
        if isinstance(event, PlanChosen):
            self._chosen = event
        self._emit(event)

    def begin(self) -> None:
        """Expect every gradient."""
        self._elsewhere.clear()
        self._taken = len(self._ready)
        self._next = self._taken - 1
        self._ready = bytearray(self._taken)
        plan = None if self.averaging.is_searching else self.averaging.plan_in_use
        if plan is None or plan is not self._ends[0]:
            self._ends = plan, self._ends_of(plan)
        self.averaging.begin()

    def ready(self, segment: int) -> None:
        """Take note of a complete gradient, and take over those whose turn it is."""
        # Runs for each parameter; what runs for each run of them costs less (`_ends_of`).
        self._ready[segment] = True
        while self._next >= 0 and self._ready[self._next]:
            if self._ends[1][self._next]:
                self._take(self._next)
            self._next -= 1

    def take_zeros(self) -> None:
        """Fill the buffer with zeros and hand it over."""
        for place in self.gradients.places:
            place.keep()
        self.gradients.flat.zero_()
        for segment in reversed(range(len(self._ready))):
            self.averaging.gradients_ready(segment)
        self._next = -1

    def _take(self, segment: int) -> None:
        """Bring gradients from `segment` up to those that were taken before to their places, and hand them over."""
        count = self._taken - segment
        for place in reversed(self.gradients.places[segment : self._taken]):
            if not place.take():
                self._elsewhere.append(place)
        self._taken = segment
        self.averaging.gradients_ready(segment, count)

    def _ends_of(self, plan: Plan | None) -> bytearray:
        """Return which gradients end a run that is taken at once: those at a group's end, and after _RUN_BYTES.

        Without a plan each does, as the times at which they come are measured, and on a GPU, where each is copied on
        the stream that computed it.
        """
        segments = self.gradients.segments
        if plan is None or not self.gradients.flat.is_cpu:
            return bytearray([True]) * len(segments)
        ends = bytearray(len(segments))
        first = {group.first_segment for group in plan.groups}
        elements = 0
        for number in reversed(range(len(segments))):
            elements += segments[number].count
            if number in first or elements * self.gradients.flat.element_size() >= _RUN_BYTES:
                ends[number] = True
                elements = 0
        return ends

    def finish(self, outcome: Outcome, on_group: OnGroup | None) -> CommReport:
        """Wait for the groups, and let the parameters have their gradients."""

        def came(offset: int, count: int) -> None:
            if outcome.factor != 1.0:
                self.gradients.flat[offset : offset + count].mul_(outcome.factor)
            places = self._places_in(offset, count)
            _give(places, outcome.unused)
            given = [place.named.parameter for place in places if place.named.parameter.grad is not None]
            if on_group is not None and given:
                on_group(given)

        if on_group is not None or outcome.factor != 1.0:
            return self.averaging.wait(came)
        report = self.averaging.wait()
        _give(self.gradients.places if outcome.unused else self._elsewhere, outcome.unused)
        return report

    def _places_in(self, offset: int, count: int) -> list[Place]:
        """Return the places of a group."""
        places: list[Place] = []
        number = self._place_at[offset]
        while number < len(self.gradients.places) and self.gradients.segments[number].offset < offset + count:
            places.append(self.gradients.places[number])
            number += 1
        return places


def _give(places: Sequence[Place], unused: Collection[int]) -> None:
    for place in places:
        if place.named.index in unused:
            place.give_back()
        else:
            place.give()
