"""What the order of work over NCCL promises, checked on a device: a GPU, or streams that are late (`late_nccl.py`).

Computing takes long, so that what does not wait for it reads the values of before.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from mgcaffe.comm.exchange.nccl_path import NcclPath, NcclStreams

COUNT = 1000
"""Gradients in the buffer, zeros at first."""


class Device(Protocol):
    """A device with a flat buffer of gradients.

    Attributes:
        path: of the buffer.
        streams: what the path enqueues by.
    """

    path: NcclPath
    streams: NcclStreams

    def compute(self, start: int, stop: int, value: float) -> None:
        """Launch on the current stream what takes long, and then fills a part of the buffer."""

    def is_computing(self) -> bool:
        """Return whether the current stream has something left to do."""

    def copy(self) -> Callable[[], list[float]]:
        """Launch on the current stream a copy of the buffer; return what waits for it, and returns it."""

    def enqueue(self, start: int, stop: int) -> None:
        """Have a part reduced behind what the current stream has launched so far, without waiting."""

    def another_stream(self) -> AbstractContextManager[None]:
        """Make another stream the current one."""

    def mean(self, value: float) -> float:
        """Return what a gradient of this rank becomes."""


def halves(device: Device, first: float, second: float) -> list[float]:
    """Return the buffer whose halves were filled with two values and reduced."""
    half = COUNT // 2
    return [device.mean(first)] * half + [device.mean(second)] * half


def a_group_is_reduced_after_what_computes_it(device: Device) -> None:
    """A group's own computation comes first."""
    for value in (4.0, 8.0, 12.0):
        device.compute(0, COUNT, value)
        assert device.is_computing()
        device.path.reduce(0, COUNT, device.path.mark(0, COUNT))
        device.path.finish()
        assert device.copy()() == halves(device, value, value)


def a_group_is_reduced_while_the_next_one_is_computed(device: Device) -> None:
    """The computing stream is still busy when the mean is there."""
    half = COUNT // 2
    device.compute(half, COUNT, 10.0)
    first = device.path.mark(half, half)
    device.compute(0, half, 20.0)
    second = device.path.mark(0, half)
    device.path.reduce(half, half, first)
    assert device.is_computing()
    device.path.reduce(0, half, second)
    device.path.finish()
    assert device.copy()() == halves(device, 20.0, 10.0)


def what_is_computed_next_sees_the_means(device: Device) -> None:
    """`finish` orders the streams, and the host does not wait."""
    device.compute(0, COUNT, 10.0)
    device.enqueue(0, COUNT)
    device.path.finish()
    copied = device.copy()
    assert device.is_computing()
    assert copied() == halves(device, 10.0, 10.0)


def gradients_on_a_stream_of_the_users_are_waited_for(device: Device) -> None:
    """A hook runs on the stream that computes the gradient."""
    with device.another_stream():
        device.compute(0, COUNT, 10.0)
        device.path.reduce(0, COUNT, device.path.mark(0, COUNT))
        device.path.finish()
        assert device.copy()() == halves(device, 10.0, 10.0)


CHECKS = (
    a_group_is_reduced_after_what_computes_it,
    a_group_is_reduced_while_the_next_one_is_computed,
    what_is_computed_next_sees_the_means,
    gradients_on_a_stream_of_the_users_are_waited_for,
)
