"""The order of work on streams over NCCL, on a device that does nothing before somebody waits for it.

`tests/support/late_nccl.py` stands for a GPU; tests/gpu/test_nccl.py makes the same checks on one.
"""

import pytest

from mgcaffe.comm.exchange.nccl_path import NcclStreams
from tests.support.late_nccl import LateDevice
from tests.support.late_streams import LateEvent
from tests.support.nccl_order import CHECKS, COUNT, halves


@pytest.mark.parametrize("check", CHECKS)
def test_order(check):
    check(LateDevice())


class NotWaiting(NcclStreams):
    def reduce(self, part, ready):
        return super().reduce(part, LateEvent())


class NotFinishing(NcclStreams):
    def finish(self):
        pass


@pytest.mark.parametrize("broken", [NotWaiting, NotFinishing])
def test_streams_that_do_not_wait_are_found_out(broken):
    def fails(check):
        device = LateDevice()
        device.streams.__class__ = broken
        try:
            check(device)
        except AssertionError:
            return True
        return False

    assert any(map(fails, CHECKS))


def test_nothing_is_computed_before_it_is_waited_for_and_no_more_than_that():
    device = LateDevice()
    half = COUNT // 2
    device.compute(half, COUNT, 10.0)
    first = device.path.mark(half, half)
    device.compute(0, half, 20.0)
    assert device.values == [0.0] * COUNT  # the host is ahead of the device
    device.path.reduce(half, half, first)
    assert device.values == [0.0] * half + [15.0] * half
    assert device.path.element_bytes == 4


def test_two_groups_are_reduced_in_the_order_in_which_they_are_handed_over():
    device = LateDevice()
    half = COUNT // 2
    device.compute(0, COUNT, 10.0)
    token = device.path.mark(half, half)
    device.path.reduce(half, half, token)
    device.path.reduce(0, half, device.path.mark(0, half))
    device.path.finish()
    assert device.copy()() == halves(device, 10.0, 10.0)
    assert device.group.order == [range(half, COUNT), range(half)]
