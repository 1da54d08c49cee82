"""Puts Hogwild's workers into an order, so that what they compute together can be compared with something."""

from __future__ import annotations

import threading
import time

from mgcaffe.solvers import Solver
from tests.support.solverkit import CLASSIFIER

_PATIENCE_S = 20.0
NORMALIZED = 'layer { name: "bn" type: "BatchNorm" bottom: "data" top: "bn" }\n' + CLASSIFIER.replace(
    'bottom: "data"', 'bottom: "bn"'
)


def workers(count: int, fields: str = "", lock: bool = False) -> str:
    """A solver's fields for so many workers."""
    return f"{fields} comm_param {{ hogwild_threads: {count} hogwild_lock: {str(lock).lower()} }}"


def running_workers() -> list[threading.Thread]:
    """The threads of workers in this process."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("hogwild")]


def slow_down(net, seconds: float = 0.005) -> None:
    """Lets each forward pass of a net take longer."""
    net.before_forward.append(lambda index: None if index else time.sleep(seconds))


def nets_of(solver: Solver) -> list:
    """The training nets of all workers, worker 0's first."""
    return solver.worker_nets


def lock_updates(solver: Solver, locks: list) -> None:
    """Gives each worker a context manager of its own, to be held during its updates."""
    solver._workers.lock = locks[0]
    for worker, lock in zip(solver._workers._others, locks[1:], strict=True):
        worker._lock = lock


def take_turns(solver: Solver) -> None:
    """Lets the workers iterate one after the other, 0, 1, ..., 0, 1, ..., from a pass's begin to its update's end."""
    nets, changed, turn = nets_of(solver), threading.Condition(), [0]

    class Turn:
        def __init__(self, number: int) -> None:
            self._number = number

        def wait(self, layer: int) -> None:
            with changed:
                assert changed.wait_for(lambda: turn[0] == self._number, _PATIENCE_S)

        def __enter__(self) -> None:
            pass

        def __exit__(self, *exception: object) -> None:
            with changed:
                turn[0] = (self._number + 1) % len(nets)
                changed.notify_all()

    turns = [Turn(number) for number in range(len(nets))]
    for net, mine in zip(nets, turns, strict=True):
        net.before_forward.append(mine.wait)
    lock_updates(solver, turns)


def compute_before_updating(solver: Solver) -> None:
    """Has all workers compute their gradients by the same weights before any of them updates."""
    workers = len(nets_of(solver))
    meeting, alone = threading.Barrier(workers, timeout=_PATIENCE_S), threading.Lock()

    class Update:
        def __enter__(self) -> None:
            meeting.wait()
            alone.acquire()

        def __exit__(self, *exception: object) -> None:
            alone.release()
            meeting.wait()

    lock_updates(solver, [Update() for _ in range(workers)])
