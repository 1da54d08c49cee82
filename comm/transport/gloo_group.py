"""One gloo group: starts its calls, waits for them, says who is gone, and closes its connections in time."""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as dist

from mgcaffe.comm.transport.rendezvous import StorePlace
from mgcaffe.errors import CommError, PeerFailure

T = TypeVar("T")

# A waiting thread comes back to Python so often, to run the handlers of signals.
_SLICE = timedelta(seconds=0.5)
_END_S = 1.0
# What gloo and the store say when the other end of a connection is gone.
_GONE = ("closed by peer", "reset by peer", "broken pipe", "timed out", "timeout", "refused", "failed to recv")
_ADVICE = " This is typically caused by"  # ... a remote worker crashing. Check the logs of the remote worker ...
_LOOPBACK_HINT = (
    "a host whose name stands for this address cannot be reached from others; where the ranks are on several, name the"
    " network interface: GLOO_SOCKET_IFNAME=eth0"
)

# A group that only garbage collection knows to be unused may still be in use by other ranks.
_open: list[GlooGroup] = []
_lock = threading.Lock()


class GlooGroup:
    """A group of ranks over gloo. Making one is a collective call of its ranks.

    Args:
        place: the ranks and their store.
        timeout_s: after how many seconds of waiting for another rank a call fails.
        at_once: how many of the calls that were started may be on their way at a time.

    Raises:
        PeerFailure: another rank has not come.
    """

    def __init__(self, place: StorePlace, timeout_s: float, at_once: int = 1) -> None:
        self._place = place
        options = _options(timeout_s, at_once)
        self._gloo: Any = self.guarded(lambda: dist.ProcessGroupGloo(place.store, place.rank, place.size, options))
        self._is_closed = False
        with _lock:
            _open[:] = [*(group for group in _open if not group._is_closed_by_all()), self]

    def start(self, call: Callable[[Any], Any]) -> Any:
        """Start a call of torch.distributed's ProcessGroupGloo; return its work.

        Raises:
            CommError: the group was closed, or gloo refuses.
            PeerFailure: another rank is gone.
        """
        if self._is_closed:
            raise CommError("a communicator was used after it was closed")
        return self.guarded(lambda: call(self._gloo))

    def run(self, call: Callable[[Any], Any]) -> None:
        """Start a collective call and wait for its end; errors as for `start`.

        Raises:
            PeerFailure: also when the place's alarm says that waiting is in vain.
        """
        self.wait(self.start(call))

    def wait(self, work: Any) -> None:
        """Wait for the end of a collective call; errors as for `run`.

        Not for gloo's messages between two ranks: it closes a connection on which it has waited for one for so long.
        """
        while not self.guarded(lambda: _waited(work)):
            try:
                self._place.alarm.check()
            except BaseException:
                # gloo's threads go on waiting for the other rank, and its destructor would for them.
                _keep_for_ever(self._gloo)
                raise

    def guarded(self, call: Callable[[], T]) -> T:
        """Call gloo, or the store; errors as for `start`."""
        try:
            return call()
        except RuntimeError as error:
            raise self._failure(str(error)) from None

    def close(self) -> None:
        """Give the group up; harmless when repeated.

        Its connections are closed once all ranks have given it up: to do so earlier may lose what is on its way.
        """
        if not self._is_closed:
            self._is_closed = True
            self.guarded(lambda: self._place.store.add("closed", 1))

    def drop(self) -> None:
        """Close the connections at once, whatever other ranks do."""
        self._is_closed = True
        self._gloo = None

    def _is_closed_by_all(self) -> bool:
        if not self._is_closed:
            return False
        try:
            closed: int = self._place.store.add("closed", 0)
            return closed == self._place.size
        except RuntimeError:
            return False  # the store is gone, and this process ends soon

    def _failure(self, text: str) -> CommError:
        """Return the exception for what gloo, or the store, says."""
        place = self._place
        said = text.split("\n")[0].partition(_ADVICE)[0]
        reason = re.sub(r"^\[.*?\] ", "", said).rstrip(". ")
        if not any(word in reason.lower() for word in _GONE):
            return CommError(f"gloo failed on rank {place.rank} ({socket.gethostname()}): {reason}")
        hint = _LOOPBACK_HINT if "connectFullMesh" in reason and re.search(r"remote=\[(127\.|::1\])", reason) else ""
        named = re.search(r"\brank[ :=]+(\d+)", reason)
        if named is None and place.size > 2:
            return PeerFailure(f"another rank is gone, or does not answer ({reason})", hint=hint)
        peer = int(named[1]) if named is not None else 1 - place.rank
        return PeerFailure(f"rank {peer} is gone, or does not answer ({reason})", failed=frozenset({peer}), hint=hint)


def _options(timeout_s: float, at_once: int) -> Any:
    """Return gloo's options: torch.distributed's, but with `at_once` threads for each network interface."""
    kind: Any = dist.ProcessGroupGloo
    names = [name for name in os.environ.get("GLOO_SOCKET_IFNAME", "").split(",") if name]
    options = kind._Options()
    options._devices = [kind.create_device(interface=name) for name in names] or [kind.create_default_device()]
    options._timeout = timedelta(seconds=timeout_s)
    options._threads = at_once * len(options._devices)
    return options


def _waited(work: Any) -> bool:
    """Wait for a while; return whether the work is done."""
    try:
        work.wait(_SLICE)
    except RuntimeError:
        if not work.is_completed():
            return False
        work.wait()
    return True


def _keep_for_ever(value: Any) -> None:
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


def _leave_to_parent() -> None:
    """Never close, in a forked process, the groups of its parent, whose threads it does not have."""
    for group in _open:
        _keep_for_ever(group)
    _open.clear()


os.register_at_fork(after_in_child=_leave_to_parent)


@atexit.register
def forget_groups() -> None:
    """Close the connections of all groups, as the end of the process does; in tests once all ranks are done with them.

    gloo's threads drop tensors after the call that used them has been waited for, and the process is aborted if one
    does so while Python ends. gloo closes a group's connections one by one, and waits some 10 ms for each, without
    Python's lock. A thread that waits for another rank is left alone.
    """
    with _lock:
        closing = [threading.Thread(target=group.drop, name="end of gloo", daemon=True) for group in _open]
        _open.clear()
    deadline = time.monotonic() + _END_S
    for thread in closing:
        thread.start()
    for thread in closing:
        thread.join(max(0.0, deadline - time.monotonic()))
