"""From the hooks of autograd to averaged gradients: what becomes of a module's backward passes.

A forward pass makes a `BackwardPass`, which hears of every gradient by a hook on the node of autograd's graph that
adds it to `.grad`, or, on one rank, of all of them at the end (`Arrivals`). The first pass shows the order in which
gradients become ready; rank 0's decides where they lie in the flat buffers of the `Exchange`, which reduces groups of
them beside each pass that follows.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch

from mgcaffe.comm import Communicator, Plan, Segment
from mgcaffe.comm.exchange.comm_report import CommReport
from mgcaffe.errors import EngineError
from mgcaffe.pytorch.arrivals import Arrivals
from mgcaffe.pytorch.autograd_graph import accumulator_of, find_tensors, reached
from mgcaffe.pytorch.backward_pass import BackwardPass
from mgcaffe.pytorch.exchange import Exchange, OnGroup, Outcome
from mgcaffe.pytorch.failures import naming_causes, note_exception
from mgcaffe.pytorch.module_state import ModuleState
from mgcaffe.pytorch.options import ExchangeOptions
from mgcaffe.pytorch.parameters import Placement
from mgcaffe.solvers.events import Emit


@dataclass(frozen=True)
class PassOptions:
    """What is known of the graphs of backward passes.

    Attributes:
        find_unused_parameters: whether parameters may be left out, other ones each time.
        static_graph: whether the same ones are left out each time, as the first pass shows.
    """

    find_unused_parameters: bool
    static_graph: bool


class GradientFlow:
    """The gradients of a module on their way from autograd to the other ranks and back.

    Args:
        state: has the parameters that are averaged.
        communicator: the ranks; also used by the module, between two backward passes.
        passes: what is known of the graphs.
        options: how gradients travel.
        emit: takes the events.

    Attributes:
        on_group: gets parameters as soon as their gradients are means; None: nobody does.
        reports: the communication of the last backward pass, a report for each buffer.
        alive: how many ranks have inputs (`join`).
        divides_by_all: whether gradients are divided by the number of all ranks, or of those alone.
    """

    def __init__(
        self,
        state: ModuleState,
        communicator: Communicator,
        passes: PassOptions,
        options: ExchangeOptions,
        emit: Emit,
    ) -> None:
        parameters = state.averaged
        self.nothing_came = state.check_parameters if communicator.size > 1 else lambda: None
        self._check_frozen = state.check_frozen if communicator.size > 1 else lambda: None
        self.on_group: OnGroup | None = None
        self.reports: list[CommReport] = []
        self.alive = communicator.size
        self.divides_by_all = True
        self._parameters = parameters
        self._placement = Placement(parameters)
        self._ranks = communicator
        self._options = options
        self._finds_unused = passes.find_unused_parameters
        self._is_static = passes.static_graph
        self._tracks_use = passes.find_unused_parameters or passes.static_graph
        self._emit = emit
        self._exchange: Exchange | None = None
        self._pass: BackwardPass | None = None
        self._handles: list[Any] = []
        self._used = numpy.zeros(len(parameters), numpy.int32)
        self._static_additions: list[int] | None = None
        self._globally_unused: frozenset[int] | None = None
        self._passes = 0
        self._has_warned = False
        self._accumulators = {accumulator_of(each.parameter): each.index for each in parameters}
        self._arrivals: Arrivals | None = None
        if communicator.size == 1 and not self._tracks_use:
            self._arrivals = Arrivals(parameters)
        else:
            self._hear_each()

    @property
    def plans(self) -> list[Plan | None]:
        """The plan of each buffer, None where none was found yet."""
        return self._exchange.plans if self._exchange is not None else []

    @property
    def segments(self) -> list[list[Segment]]:
        """The parameters of each buffer, in their places; none before the first backward pass, or on one rank."""
        return self._exchange.segments if self._exchange is not None else []

    def plan_texts(self) -> list[str | None]:
        """Return the plan of each buffer as the text of a plan file, None where none was found yet."""
        return self._exchange.plan_texts() if self._exchange is not None else []

    def check(self) -> None:
        """Make sure, before a forward pass, that the last backward pass was complete and that parameters are as before.

        Raises:
            CommError: parameters got no gradient.
            UsageError: a parameter was moved or converted, and autograd does not note gradients itself; a frozen one
                is to be trained.
        """
        last = self._pass
        try:
            if last is not None and not last.is_finished:
                last.take_arrivals()
                if last.has_begun and not last.is_finished:
                    raise last.failure()
            if self._arrivals is None:  # else nothing is laid out for types and devices, and hooks stay
                self._placement.check()
            self._check_frozen()
        except EngineError as error:
            note_exception(self._ranks, error, "forward")
            raise

    def expect_pass(self, output: Any, *, averages: bool) -> None:
        """Take note of a forward pass with gradients; without averaging, a backward pass that is awaited stays so.

        Args:
            output: what it returned.
            averages: whether its backward pass averages gradients.

        Raises:
            UsageError: gradients are heard of one by one from now on, and a parameter was moved or converted before.
        """
        if not averages and self._pass is not None and not self._pass.is_finished:
            return  # both may be in one loss
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._pass = None
        if averages:
            tensors = list(find_tensors(output))
            if self._arrivals is not None:
                self._arrivals.forget()
                # Without tensors no call of backward() can be seen to reach them; and `on_group` is called in time
                # also where a pass does not reach them.
                if not tensors or self.on_group is not None:
                    self._placement.check()
                    self._arrivals.close()
                    self._arrivals = None
                    self._hear_each()
            self._pass = self._make_pass(tensors)
            self._handles = self._pass.watch(tensors)

    def close(self) -> None:
        """End the background threads."""
        if self._exchange is not None:
            self._exchange.close()

    def average_zeros(self) -> None:
        """Take part in the other ranks' averaging, without a backward pass; gradients here stay as they are."""
        with naming_causes(self._ranks):
            self._average(None)

    # -- called by the backward pass -------------------------------------------------------------------------

    def _gradient_added(self, index: int) -> None:
        # Runs for each parameter in each iteration, with cold caches: every call shows in the time of a step.
        if self._tracks_use and self._parameters[index].parameter.grad is not None:
            self._used[index] = 1
        current = self._pass
        if current is None:
            return
        if current.is_finished:
            self._warn_of_local_gradient(index)
        else:
            current.gradient_added(index)

    def begin_pass(self, backward: BackwardPass) -> None:
        """Begin to take gradients."""
        if self._exchange is not None:
            self._exchange.begin()
            for index in backward.unused:
                self._exchange.take(index, unused=True)

    @property
    def taker(self) -> Callable[[int], None] | None:
        """What takes a complete gradient; None before the order of the first pass is known, and on one rank."""
        return self._exchange.take if self._exchange is not None else None

    def end_pass(self, backward: BackwardPass) -> None:
        """Average what was taken."""
        if self._is_static and self._static_additions is None:
            self._static_additions = list(backward.added)
        if self._ranks.size == 1:
            self._end_alone()
        else:
            with naming_causes(self._ranks):
                self._average(backward)

    def pass_failed(self, error: BaseException | None) -> None:
        """Let the other ranks know that an exception ended a backward pass; None: one that autograd passes on."""
        note_exception(self._ranks, error, "backward")

    # -- the rest --------------------------------------------------------------------------------------------

    def _make_pass(self, outputs: Sequence[torch.Tensor]) -> BackwardPass:
        count = len(self._parameters)
        if self._is_static and self._static_additions is not None:
            unused = [index for index in range(count) if not self._static_additions[index]]
            return self._backward_pass(unused=unused, additions=self._static_additions)
        if self._is_static:
            return self._backward_pass(counts_additions=True)
        if not self._finds_unused:
            return self._backward_pass()
        return self._backward_pass(unused=set(range(count)) - reached(outputs, self._accumulators), may_lack=True)

    def _backward_pass(self, **keywords: Any) -> BackwardPass:
        return BackwardPass(self._parameters, self._ranks.rank, self, arrivals=self._arrivals, **keywords)

    def _hear_each(self) -> None:
        for node, index in self._accumulators.items():
            node.register_hook(_hook(weakref.ref(self), index))

    def _end_alone(self) -> None:
        if self.on_group is not None:
            parameters = [each.parameter for each in self._parameters]
            self.on_group([each for each in reversed(parameters) if each.grad is not None])

    def _average(self, backward: BackwardPass | None) -> None:
        """Return once gradients are means over the ranks; without a pass this rank's count as zeros."""
        is_first = self._exchange is None
        if self._exchange is None:
            self._exchange = self._make_exchange(backward)
            self._exchange.begin()
            if backward is not None:
                for index in set(range(len(self._parameters))) - set(backward.lacking):
                    self._exchange.take(index, unused=index in backward.unused)
        for index in backward.lacking if backward is not None else ():
            self._exchange.take(index, unused=True)
        if backward is None:
            self._exchange.begin()
            self._exchange.take_zeros()
        self._exchange.backward_done()
        factor = 1.0 if self.divides_by_all else self._ranks.size / self.alive
        outcome = Outcome(self._agree_on_unused(backward), factor)
        self.reports = self._exchange.finish(outcome, self.on_group if backward is not None else None)
        self._passes += 1
        self._exchange.plan_next(self._passes, learns=not is_first)

    def _make_exchange(self, backward: BackwardPass | None) -> Exchange:
        """Return the exchange for the order in which rank 0's gradients came, those without any last."""
        came = list(dict.fromkeys(reversed(backward.order)))[::-1] if backward is not None else []
        rest = [index for index in reversed(range(len(self._parameters))) if index not in set(came)]
        order = self._ranks.broadcast_object(came + rest)
        return Exchange(self._parameters, order, self._ranks, self._options, self._emit)

    def _agree_on_unused(self, backward: BackwardPass | None) -> frozenset[int]:
        """Return the parameters that no rank has used since gradients were averaged before; collective if any may be.

        On a rank without inputs all of them: its own gradients stay as they are.
        """
        if not self._tracks_use:
            unused: frozenset[int] = frozenset()
        elif self._is_static and self._globally_unused is not None:
            unused = self._globally_unused
        else:
            used = self._used if backward is not None else numpy.zeros_like(self._used)
            self._ranks.allreduce(used, "max")
            unused = self._globally_unused = frozenset(numpy.flatnonzero(used == 0).tolist())
        self._used[:] = 0
        return unused if backward is not None else frozenset(range(len(self._used)))

    def _warn_of_local_gradient(self, index: int) -> None:
        if not self._has_warned and self._ranks.size > 1:
            self._has_warned = True
            warnings.warn(
                f"the gradient of '{self._parameters[index].name}' was added to once more after the backward"
                " pass that averaged it: what was added is this rank's own. Gradients are averaged in the first"
                " backward pass after each forward pass, as with DistributedDataParallel",
                stacklevel=2,
            )


def _hook(owner: weakref.ref[GradientFlow], index: int) -> Callable[..., None]:
    """Return the hook of a parameter, which keeps the flow alive no longer than its users do."""

    def added(*_: object) -> None:
        flow = owner()
        if flow is not None:
            flow._gradient_added(index)

    return added
