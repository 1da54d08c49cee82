"""Writes into a rank's record what its solver does, so that others can tell where it was when it died or hung."""

from __future__ import annotations

from collections.abc import Callable

from mgcaffe.comm.supervision import status as statuses
from mgcaffe.engine import Net
from mgcaffe.solvers.events import Event, Finished, Started
from mgcaffe.solvers.events.testing import Testing
from mgcaffe.solvers.solver import Solver


class DoingListener:
    """Writes into the record what the solver's events tell."""

    def __init__(self, status: statuses.Status) -> None:
        self._status = status

    def on_event(self, event: Event) -> None:
        """Take an event."""
        if isinstance(event, Started):
            self._status.iteration(event.iteration)
            statuses.doing("starting to train")
        elif isinstance(event, Testing):
            self._status.iteration(event.iteration)
            statuses.doing(f"test net #{event.net}")
        elif isinstance(event, Finished):
            statuses.doing("finishing")


def follow(solver: Solver, status: statuses.Status) -> None:
    """Have a solver write into a record what it does, layer by layer."""
    what = "waiting for the other ranks' gradients and updating" if solver.ranks is solver.world else "updating"
    waiting = statuses.encode(f"{what} the weights")
    _follow_net(solver.net, status, "")

    def backward_is_done(index: int) -> None:
        if index == 0:
            status.doing(waiting)

    solver.net.after_backward.append(backward_is_done)
    for number, net in enumerate(solver.test_nets):
        _follow_net(net, status, f"test net #{number}, ")

    def forward_begins(index: int) -> None:
        if index == 0:
            status.iteration(solver.iteration)

    # A callback of the solver would keep it from updating weights before all gradients are there.
    solver.net.before_forward.append(forward_begins)


def _follow_net(net: Net, status: statuses.Status, place: str) -> None:
    def writer(direction: str) -> Callable[[int], None]:
        texts = [statuses.encode(f"{place}{direction}, {layer.describe()}") for layer in net.layers]
        return lambda index: status.doing(texts[index])

    net.before_forward.append(writer("forward"))
    net.before_backward.append(writer("backward"))
