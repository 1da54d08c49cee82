"""One backward pass: which gradients are complete, which never will be, and when it has ended.

Autograd calls a function for each gradient that was added to a parameter's `.grad`, and one when a whole call of
`backward()` has ended. A call within a call (reentrant activation checkpointing) has an end of its own, so a pass ends
when all gradients have come, or with the call that reached the module's outputs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import torch

from mgcaffe.errors import CommError
from mgcaffe.pytorch.arrivals import Arrivals
from mgcaffe.pytorch.parameters import NamedParameter, name_parameters


class Receiver(Protocol):
    """Takes what a backward pass computes.

    Attributes:
        taker: takes over a parameter's complete gradient, by its number; None where nothing is to be done with it.
        nothing_came: is called when a call of `backward()`, or of `torch.autograd.grad`, has brought no gradient.
    """

    nothing_came: Callable[[], None]

    @property
    def taker(self) -> Callable[[int], None] | None:
        """See above."""

    def begin_pass(self, backward: BackwardPass) -> None:
        """Take note that the first gradient is about to come."""

    def end_pass(self, backward: BackwardPass) -> None:
        """Average what was taken; the pass has ended."""

    def pass_failed(self, error: BaseException | None) -> None:
        """Take note that an exception ended the pass; None: one that autograd passes on, and does not show here."""


class BackwardPass:
    """The backward pass that belongs to a forward pass.

    Args:
        parameters: those that are averaged.
        rank: this rank, for messages.
        receiver: takes the gradients.
        unused: the numbers of the parameters that get no gradient, as far as that is known.
        additions: how often each parameter's gradient is added to until it is complete; None: once.
        counts_additions: whether that is to be counted instead, so that nothing is known to be complete until the end.
        may_lack: whether gradients that have not come at the end count as zeros.
        arrivals: what has noted the gradients by the end of a call of `backward()`; None: `gradient_added` is called.

    Attributes:
        order: the numbers of the parameters in the order in which their gradients came.
        added: how often each gradient was added to.
        lacking: those that did not come.
        has_begun, is_finished: how far it is.
    """

    def __init__(
        self,
        parameters: Sequence[NamedParameter],
        rank: int,
        receiver: Receiver,
        *,
        unused: Collection[int] = (),
        additions: Sequence[int] | None = None,
        counts_additions: bool = False,
        may_lack: bool = False,
        arrivals: Arrivals | None = None,
    ) -> None:
        self._parameters = parameters
        self._rank = rank
        self._receiver = receiver
        self._take = receiver.taker
        self._counts_additions = counts_additions
        self._may_lack = may_lack
        self._arrivals = arrivals
        self._left = list(additions) if additions is not None else [1] * len(parameters)
        self.unused = frozenset(unused)
        for index in self.unused:
            self._left[index] = 0
        self._missing = len(self._left) - self._left.count(0)
        self._lock = threading.RLock()
        self._outputs: set[int] = set()
        self._outputs_left: set[int] = set()
        self._seen = 0
        self._is_end_awaited = False
        self.order: list[int] = []
        self.added = [0] * len(parameters)
        self.lacking: tuple[int, ...] = ()
        self.has_begun = False
        self.is_finished = False

    def watch(self, outputs: Sequence[torch.Tensor]) -> list[torch.utils.hooks.RemovableHandle]:
        """Watch for calls of `backward()` that reach the module's outputs; return what ends that."""
        self._outputs = set(range(len(outputs)))
        self._outputs_left = set(self._outputs)
        return [each.register_hook(self._reach(number)) for number, each in enumerate(outputs)]

    def gradient_added(self, index: int) -> None:
        """Take note that autograd has added to a parameter's gradient.

        Raises:
            CommError: it was complete before.
        """
        # Runs for each parameter in each iteration, with cold caches: every call in here shows in the time of a step.
        with self._lock:
            if not self.has_begun:
                self._begin()
            self.added[index] += 1
            if self._counts_additions:
                self.order.append(index)
                self._await_end()
                return
            left = self._left[index]
            if left != 1:
                if left == 0:
                    raise self._came_again(index)
                self._left[index] = left - 1
                return
            self._left[index] = 0
            self.order.append(index)
            if self._take is not None:
                self._take(index)
            self._missing -= 1
            if self._missing:
                return
            if self._arrivals is not None:
                self._finish()
            else:
                torch.autograd.Variable._execution_engine.queue_callback(self._finish)

    def take_arrivals(self) -> None:
        """Take note of the gradients that came since, where autograd notes them.

        Raises:
            CommError: one was complete before.
        """
        if self._arrivals is None or self.is_finished:
            return
        came = self._arrivals.take()
        if len(came) == self._missing and len(set(came)) == self._missing == len(self._left):
            self.order, self.added, self._left = list(came), [1] * len(came), [0] * len(came)
            self._missing = 0
            self._finish()
            return
        for index in came:
            if self.is_finished:
                return  # the rest came in later calls, such as those for another forward pass
            self.gradient_added(index)

    def lacks(self) -> list[str]:
        """Return the names of the parameters whose gradients should have come and have not."""
        return [
            self._name(index) for index, left in enumerate(self._left)
            if (not self.added[index] if self._counts_additions else left)
        ]  # fmt: skip

    def describe_lack(self) -> str:
        """Return what an error says of gradients that have not come."""
        names = self.lacks()
        count = "a parameter" if len(names) == 1 else f"{len(names)} parameters"
        frozen = [each.name for each in self._parameters if not each.parameter.requires_grad]
        text = f"{count} got no gradient in a backward pass on rank {self._rank}: {name_parameters(names)}"
        return f"{text}; frozen since the module was wrapped: {name_parameters(frozen)}" if frozen else text

    def _reach(self, number: int) -> Callable[[torch.Tensor], None]:
        def reached(gradient: torch.Tensor) -> None:
            with self._lock:
                if not self.is_finished:
                    self._outputs_left.discard(number)
                    self._await_end()

        return reached

    def _begin(self) -> None:
        if not self.has_begun:
            self.has_begun = True
            self._receiver.begin_pass(self)

    def _await_end(self) -> None:
        """Have `end_of_call` called when the present call of `backward()` ends."""
        if not self._is_end_awaited:
            self._is_end_awaited = True
            self._seen = sum(self.added)
            torch.autograd.Variable._execution_engine.queue_callback(_EndOfCall(self))

    def end_of_call(self, *, failed: bool = False) -> None:
        """Take note that a call of `backward()` has ended, whether or not by an exception."""
        self._is_end_awaited = False
        if failed:
            self._receiver.pass_failed(None)
            return
        self.take_arrivals()
        if self.is_finished:
            return
        came = sum(self.added) > self._seen or (self._counts_additions and self.has_begun)
        if not came:
            self._run_end(self._receiver.nothing_came)
        if self._missing and not came:
            self._outputs_left = set(self._outputs)  # torch.autograd.grad, which adds to no parameter
            return
        if not self._missing or self._may_lack or self._counts_additions:
            self._finish()
        elif not self._outputs_left:
            self._run_end(self._fail)

    def _finish(self) -> None:
        if self.is_finished:
            return
        self._begin()
        self.is_finished = True
        lacking = [index for index, left in enumerate(self._left) if left] if self._missing else []
        self.lacking = tuple(index for index in lacking if not (self._counts_additions and self.added[index]))
        self._run_end(lambda: self._receiver.end_pass(self))  # `on_group` may raise, or a plan file not fit

    def _run_end(self, step: Callable[[], None]) -> None:
        """Run the end of a pass; an exception is reported to the other ranks, also if it is caught here."""
        try:
            step()
        except BaseException as error:
            self._receiver.pass_failed(error)
            raise

    def _fail(self) -> None:
        raise self.failure()

    def failure(self) -> CommError:
        """Return the error for gradients that have not come."""
        return CommError(
            self.describe_lack(),
            hint="Every output of forward() has to take part in the loss, and every parameter in an output. If that is"
            " not so,\n  give find_unused_parameters=True, which has gradients of what was not used count as zeros",
        )

    def _came_again(self, index: int) -> CommError:
        if index in self.unused and not self._may_lack:
            return CommError(
                f"parameter '{self._name(index)}' got a gradient in a backward pass on rank {self._rank},"
                " and none in the first one (static_graph)",
                hint="leave out static_graph=True where an iteration may use other parameters than the one before",
            )
        return CommError(
            f"the gradient of parameter '{self._name(index)}' came once more after it had been handed over, on rank"
            f" {self._rank}",
            hint="A parameter is used outside of forward(), or in parts that reentrant checkpointing computes again:"
            "\n  give use_reentrant=False to torch.utils.checkpoint, or static_graph=True if the graph never changes."
            "\n  With find_unused_parameters=True: a parameter that is used inside such a part seems to be unused",
        )

    def _name(self, index: int) -> str:
        return self._parameters[index].name


class _EndOfCall:
    """Called by autograd at the end of a call of `backward()`; dropped without a call if an exception ends that."""

    def __init__(self, backward: BackwardPass) -> None:
        self._pass: BackwardPass | None = backward

    def __call__(self) -> None:
        backward, self._pass = self._pass, None
        if backward is not None:
            backward.end_of_call()

    def __del__(self) -> None:
        if self._pass is not None:
            self._pass.end_of_call(failed=True)
