"""Events about tests."""

from __future__ import annotations

from dataclasses import dataclass

from mgcaffe.solvers.events import Event, OutputValue


@dataclass(frozen=True)
class Testing(Event):
    """A test begins (Caffe: `Iteration 500, Testing net (#0)`)."""

    __test__ = False  # the name is not a pytest class

    iteration: int
    net: int


@dataclass(frozen=True)
class Tested(Event):
    """A test ended.

    Attributes:
        iteration: updates done so far.
        net: the test net's number.
        scores: each output's mean over test_iter batches of all ranks.
        loss: the mean loss, if `test_compute_loss` asks for it.
        seconds: how long the test took.
    """

    __test__ = False  # the name is not a pytest class

    iteration: int
    net: int
    scores: tuple[OutputValue, ...]
    loss: float | None
    seconds: float
