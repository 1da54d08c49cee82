"""Communicators that do what a test needs."""

from __future__ import annotations

from typing import Any

from mgcaffe.comm.transport.communicator import SingleCommunicator, Waiting
from mgcaffe.errors import CommError


class Broken(SingleCommunicator):
    """Fails in every all-reduce."""

    def allreduce(self, buffer: Any, op: str = "sum") -> None:
        """Fail."""
        raise CommError("the link broke")

    def duplicate(self, waiting: Waiting | None = None) -> Broken:
        """Return itself."""
        return self
