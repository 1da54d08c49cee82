"""Which nets a solver trains and tests, in which states (Caffe: Solver::InitTrainNet, Solver::InitTestNets).

A solver names its nets in four ways (`net`, `net_param`, `train_net`, `train_net_param`; `test_net` and
`test_net_param` for tests). This module checks that they fit together and reads them; the solver builds them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mgcaffe.errors import PrototxtError, SolverError
from mgcaffe.errors.file_names import found_name
from mgcaffe.prototxt import (
    TEST,
    TRAIN,
    NetParameter,
    NetSource,
    NetState,
    Phase,
    SolverParameter,
    SolverSource,
    has_field,
    print_text,
    read_net_source,
)
from mgcaffe.prototxt.blobs import inline_nets, net_without_blobs, solver_without_blobs
from mgcaffe.solvers.setup.reader_fields import hand_down
from mgcaffe.solvers.source import locate

_TRAIN_FIELDS = ("net", "net_param", "train_net", "train_net_param")


@dataclass(frozen=True)
class NetChoice:
    """One net that a solver asks for.

    Attributes:
        param: the NetParameter message.
        sources: its locations, if they are known.
        phase, level: of the state that it is built in: those of the solver's train_state or test_state, else of the
            net's own `state`, else TRAIN or TEST, and 0.
        stages: those that the solver adds to the net's own.
        test_iter: batches in one test; 0 for the training net.
    """

    param: NetParameter
    sources: NetSource | None
    phase: Phase
    level: int
    stages: tuple[str, ...]
    test_iter: int = 0

    @property
    def text(self) -> str:
        """The net and its state as text, with digests in the place of weights: what ranks compare."""
        state = f"# phase {self.phase}, level {self.level}, stages {self.stages}\n"
        digests = _digests(self.param)
        return f"{print_text(net_without_blobs(self.param) if digests else self.param)}{digests}{state}"


def solver_text(param: SolverParameter) -> str:
    """Return a SolverParameter as text, with digests in the place of weights in its nets: what ranks compare."""
    digests = "".join(_digests(net) for net in inline_nets(param))
    return f"{print_text(solver_without_blobs(param) if digests else param)}{digests}"


class NetReader:
    """Reads a solver's nets, each file once.

    Args:
        param: the SolverParameter message.
        source: where its fields stand, if that is known.
        strict: whether an unknown field in a net is an error.

    Attributes:
        source: the same.
    """

    def __init__(self, param: SolverParameter, source: SolverSource | None = None, strict: bool = False) -> None:
        self._param = param
        self.source = source
        self._strict = strict
        self._files: dict[str, NetSource] = {}

    def train_net(self) -> NetChoice:
        """Read the training net.

        Raises:
            SolverError: it is not named exactly once.
        """
        given = [name for name in _TRAIN_FIELDS if self._is_given(name)]
        if len(given) != 1:
            self._refuse_train_fields(given)
        param, sources = self._load(given[0])
        return _choice(param, sources, TRAIN, self._param.train_state)

    def test_nets(self) -> list[NetChoice]:
        """Read the test nets: test_net_param, then test_net, then `net` or `net_param` for the rest of test_iter.

        Raises:
            SolverError: test_iter, test_state or test_interval do not fit the test nets.
        """
        solver = self._param
        loads: list[Callable[[], tuple[NetParameter, NetSource | None]]] = []
        for name in ("test_net_param", "test_net"):
            loads += [self._loader(name, index) for index in range(len(getattr(solver, name)))]
        generic = next((name for name in ("net_param", "net") if self._is_given(name)), None)
        named, wanted = len(loads), len(solver.test_iter)
        if wanted < named or (wanted > named and generic is None):
            self._fail(
                f"test_iter is given {wanted} time(s) for {named} test net(s)",
                "test_iter",
                "give test_iter once for each test net",
            )
        if generic is not None:
            loads += [self._loader(generic, 0)] * (wanted - named)
        self._check_tests(len(loads))
        choices = []
        for index, load in enumerate(loads):
            param, sources = load()
            state = solver.test_state[index] if len(solver.test_state) else NetState()
            choices.append(_choice(param, sources, TEST, state, solver.test_iter[index]))
        return choices

    def _check_tests(self, count: int) -> None:
        solver = self._param
        if len(solver.test_state) not in (0, count):
            self._fail(
                f"test_state is given {len(solver.test_state)} time(s) for {count} test net(s)",
                "test_state",
                "give it once for each test net, or not at all",
            )
        if count and solver.test_interval <= 0:
            self._fail(
                f"test_interval is {solver.test_interval}, and the solver has {count} test net(s)",
                "test_interval" if solver.HasField("test_interval") else "test_iter",
                "set test_interval to the number of iterations between tests",
            )
        for index in range(count):
            if solver.test_iter[index] < 0:
                self._fail(f"test_iter is {solver.test_iter[index]} and must not be below 0", "test_iter", None, index)

    def _refuse_train_fields(self, given: list[str]) -> None:
        known = ", ".join(_TRAIN_FIELDS)
        if not given:
            self._fail("the solver names no training net", None, f"set one of {known}")
        self._fail(
            f"the solver names its training net {len(given)} times: {', '.join(given)}",
            given[1],
            f"keep exactly one of {known}",
        )

    def _is_given(self, name: str) -> bool:
        return bool(has_field(self._param, name))

    def _loader(self, name: str, index: int) -> Callable[[], tuple[NetParameter, NetSource | None]]:
        return lambda: self._load(name, index)

    def _load(self, name: str, index: int = 0) -> tuple[NetParameter, NetSource | None]:
        """Read the message of a net that a field names or holds, and its source."""
        value = getattr(self._param, name)
        if name in ("test_net", "test_net_param"):
            value = value[index]
        if not isinstance(value, str):
            hand_down(self._param, value)
            return value, self.source.inline_net(name, index) if self.source is not None else None
        if value not in self._files:
            self._files[value] = self._read(value, name, index)
        source = self._files[value]
        hand_down(self._param, source.param)
        return source.param, source

    def _read(self, path: str, name: str, index: int) -> NetSource:
        path = found_name(path)
        if not Path(path).is_file():
            raise PrototxtError(
                f"{name} names '{path}', and there is no such file",
                location=locate(self.source, name, index),
                hint=f"paths are relative to the folder where the command runs, now {Path.cwd()}",
            )
        return read_net_source(path, strict=self._strict)

    def _fail(self, message: str, field: str | None, hint: str | None, index: int = 0) -> None:
        raise SolverError(message, location=locate(self.source, field, index), hint=hint)


def _digests(net: NetParameter) -> str:
    """Return a line for each blob in a net's definition."""
    return "".join(
        f"# layer '{layer.name}', blob {index}: {hashlib.sha256(blob.SerializeToString()).hexdigest()}\n"
        for layer in net.layer
        for index, blob in enumerate(layer.blobs)
    )


def _choice(
    param: NetParameter, sources: NetSource | None, phase: Phase, state: NetState, test_iter: int = 0
) -> NetChoice:
    merged = NetState(phase=phase)
    merged.MergeFrom(param.state)
    merged.MergeFrom(state)
    return NetChoice(param, sources, merged.phase, merged.level, tuple(state.stage), test_iter)
