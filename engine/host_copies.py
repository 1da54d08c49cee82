"""Tensors as numpy arrays that write through.

On the CPU an array is the memory of the tensor itself. For a tensor elsewhere it is a copy, taken when it is
asked for and written back by `write_back` before the engine runs on, as Caffe's SyncedMemory does; ask for
`.data` again after each pass.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch

from mgcaffe.engine.types import Array

Place = tuple[object, ...]


class Loans:
    """Copies of blobs that are out until they are written back, and calls that wait for that.

    Of each place in a device's memory there is one copy, whichever of the blobs that lie there is asked (Split,
    Flatten, shared parameters). Every net has its own, so that nets can run in threads of their own; parameters, which
    several nets may share, have theirs in common.
    """

    def __init__(self) -> None:
        self._lent: dict[Place, tuple[torch.Tensor, torch.Tensor]] = {}  # a tensor that lies there, and the copy
        self._waiting: dict[object, Callable[[], None]] = {}
        self._lock = threading.RLock()  # parameters' copies are every thread's

    def call_before_running(self, key: object, call: Callable[[], None]) -> None:
        """Have the next `write_back` call a function, once for all calls of this one with the same key."""
        self._waiting.setdefault(key, call)

    def lend(self, tensor: torch.Tensor, make: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Return the copy of a tensor: the one that is out, or the one that `make` gives."""
        place = _place(tensor)
        with self._lock:
            lent = self._lent.get(place)
            if lent is None:
                lent = self._lent[place] = tensor, make().copy_(tensor)
        return lent[1].view(tensor.shape)

    def has(self, copy: torch.Tensor) -> bool:
        """Return whether a copy is out."""
        with self._lock:
            return any(lent is copy for _, lent in self._lent.values())

    def write_back(self) -> None:
        """Write the copies into the tensors, and make the calls."""
        with self._lock:
            for tensor, copy in self._lent.values():
                tensor.copy_(copy)
            self._lent.clear()
        for key in list(self._waiting):
            self._waiting.pop(key)()


_PARAMETERS = Loans()


def write_back(loans: Loans | None = None) -> None:
    """Bring what was written into copies to the devices: those of parameters, and a net's. Call it before that runs."""
    if loans is not None:
        loans.write_back()
    _PARAMETERS.write_back()


def shares_memory(tensor: torch.Tensor) -> bool:
    """Return whether an array can be the memory of the tensor itself."""
    return tensor.device.type == "cpu"


class HostArray:
    """One tensor as a numpy array.

    Args:
        loans: where copies are noted; None for a parameter's.
    """

    def __init__(self, loans: Loans | None = None) -> None:
        self._loans = _PARAMETERS if loans is None else loans
        self._copy: torch.Tensor | None = None

    def view(self, tensor: torch.Tensor) -> Array:
        """Return the array. What is written into it reaches the tensor at once, or by `write_back`."""
        if shares_memory(tensor):
            return tensor.numpy()

        def make() -> torch.Tensor:
            if self._copy is None or self._copy.shape != tensor.shape or self._loans.has(self._copy):
                self._copy = torch.empty(tensor.shape, dtype=tensor.dtype)
            return self._copy

        return self._loans.lend(tensor, make).numpy()


def _place(tensor: torch.Tensor) -> Place:
    """Return where the values of a tensor lie; the shape of one without gaps does not matter."""
    order = (tensor.numel(),) if tensor.is_contiguous() else (tuple(tensor.shape), tensor.stride())
    return tensor.device, tensor.data_ptr(), tensor.dtype, *order
