"""The solvers, as scripts see them (Caffe: _caffe.cpp, the class Solver and its children)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ClassVar

from mgcaffe import solvers
from mgcaffe.engine.host_copies import Loans, write_back
from mgcaffe.prototxt import read_solver_source
from mgcaffe.pycaffe import mode
from mgcaffe.pycaffe.net import Net
from mgcaffe.pycaffe.problems import check_file
from mgcaffe.solvers.update.rules import RULES
from mgcaffe.tools.listeners.caffe_log import CaffeLogListener


class Solver:
    """Trains the net that a solver's prototxt names; where, `set_mode_cpu`, `set_mode_gpu` and `set_device` say.

    Args:
        solver_file: the prototxt. Paths in it are relative to the folder where the script runs. One that cannot be
            opened is a RuntimeError.

    Attributes:
        kind: the rule by which a class updates; "" takes the one that the prototxt names.
        net, test_nets: the training net, and the test nets, which share its weights.
        param: the SolverParameter message. `base_lr` and other fields that are read in each iteration may be set.
    """

    kind: ClassVar[str] = ""

    def __init__(self, solver_file: str | os.PathLike[str]) -> None:
        mode.start_caffe_log()
        check_file(solver_file)
        source = read_solver_source(solver_file)
        self.param = source.param
        if self.kind:
            self.param.type = self.kind
        seed = mode.next_seed()
        if self.param.random_seed < 0 and seed is not None:
            self.param.random_seed = seed
        listener = CaffeLogListener(self.param.display, ranks=1)
        self._solver = solvers.Solver(
            self.param, source=source, listeners=[listener], device=mode.device(), keep_blobs=True
        )
        self._loans = Loans()
        self.net = Net.of(self._solver.net, self._loans)
        self.test_nets = [Net.of(net, self._loans) for net in self._solver.test_nets]

    @property
    def type(self) -> str:
        """The rule by which weights are updated."""
        return str(self.param.type)

    @property
    def iter(self) -> int:
        """How many times the weights have been updated."""
        return self._solver.iteration

    @property
    def lr(self) -> float:
        """The learning rate of the next update."""
        return self._solver.rate

    def step(self, iterations: int) -> None:
        """Make so many updates, with the tests and snapshots that fall due."""
        write_back(self._loans)
        self._solver.step(iterations)

    def solve(self, resume_file: str | os.PathLike[str] | None = None) -> None:
        """Train up to max_iter, from a solverstate on if one is given."""
        if resume_file:
            self.restore(resume_file)
        write_back(self._loans)
        self._solver.solve()

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Go on from a solverstate."""
        write_back(self._loans)
        self._solver.restore(os.fspath(path))

    def snapshot(self) -> None:
        """Write the weights and the state of the training."""
        write_back(self._loans)
        self._solver.snapshot()

    def apply_update(self) -> None:
        """Update the weights by the gradients that lie in the net, and count an iteration."""
        write_back(self._loans)
        self._solver.apply_update()

    def share_weights(self, net: Net) -> None:
        """Make the layers of `net` named as in the training net use its weights."""
        net.share_with(self.net)

    def add_callback(self, on_start: Callable[[], Any], on_gradients_ready: Callable[[], Any]) -> None:
        """Have functions called before each iteration, and before its gradients are applied."""
        self._solver.add_callback(*(_calling(call, self._loans) for call in (on_start, on_gradients_ready)))


def _calling(function: Callable[[], Any], loans: Loans) -> Callable[[], None]:
    def call() -> None:
        function()
        write_back(loans)

    return call


def solver_class(kind: str) -> type[Solver]:
    """Return the class that updates by a rule (`"SGD"`), whatever its prototxt says."""
    name = f"{kind}Solver"
    if name not in _classes:
        _classes[name] = type(name, (Solver,), {"kind": kind, "__doc__": f"Trains by {kind}."})
    return _classes[name]


_classes: dict[str, type[Solver]] = {}
for _kind in RULES:
    solver_class(_kind)
SGDSolver = solver_class("SGD")
NesterovSolver = solver_class("Nesterov")
AdaGradSolver = solver_class("AdaGrad")
RMSPropSolver = solver_class("RMSProp")
AdaDeltaSolver = solver_class("AdaDelta")
AdamSolver = solver_class("Adam")


def get_solver(solver_file: str | os.PathLike[str]) -> Solver:
    """Return the solver that a prototxt asks for by its `type`."""
    check_file(solver_file)
    kind = read_solver_source(solver_file).param.type
    return solver_class(kind)(solver_file) if kind in RULES else Solver(solver_file)
