"""The staging of a GPU's gradients, with CPU tensors in the place of device memory and copies made on demand."""

import numpy
import torch

from mgcaffe.comm.exchange.gradient_path import DevicePath, HostPath
from mgcaffe.comm.exchange.sums.base import PlainSum


class Event:
    def __init__(self, copy):
        self._copy = copy

    def synchronize(self):
        if self._copy is not None:
            copy, self._copy = self._copy, None
            copy()


class Streams:
    """Copies happen no earlier than somebody waits for them, as on a device that is busy until then."""

    def __init__(self):
        self.log = []

    def pinned_like(self, flat):
        return torch.full_like(flat, -1.0)

    def copy_out(self, host, device):
        values = device.clone()  # what the computing stream has come to
        self.log.append(("out", len(host)))
        return Event(lambda: host.copy_(values))

    def copy_back(self, device, host):
        self.log.append(("back", len(host)))
        return Event(lambda: device.copy_(host))

    def finish(self):
        self.log.append(("finish", 0))


class Doubling:
    """Two ranks with the same gradients."""

    rank, size = 0, 2

    def allreduce(self, buffer, op="sum"):
        buffer *= 2


def make(count=10):
    flat, streams = torch.arange(count, dtype=torch.float32), Streams()
    return flat, streams, DevicePath(2, flat, PlainSum(Doubling()), streams)


def test_a_slice_goes_out_when_it_is_handed_over_and_comes_back_as_a_mean():
    flat, streams, path = make()
    token = path.mark(2, 5)
    flat[2:7] = 99  # whatever computes later into it
    path.reduce(2, 5, token)
    assert flat.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert streams.log == [("out", 5), ("back", 5)]


def test_the_next_group_is_on_its_way_out_before_the_one_before_is_reduced():
    flat, streams, path = make()
    tokens = [path.mark(5, 5), path.mark(0, 5)]
    path.reduce(5, 5, tokens[0])
    path.reduce(0, 5, tokens[1])
    path.finish()
    assert streams.log == [("out", 5), ("out", 5), ("back", 5), ("back", 5), ("finish", 0)]
    assert flat.tolist() == list(range(10))


def test_nothing_outside_the_slice_is_touched():
    flat, _, path = make()
    before = flat.clone()
    path.reduce(4, 2, path.mark(4, 2))
    assert torch.equal(flat, before)
    assert path.element_bytes == 4


def test_host_and_device_memory_give_the_same_bits():
    flat, _, path = make(1000)
    flat.copy_(torch.randn(1000, generator=torch.Generator().manual_seed(3)))
    host = flat.clone()
    path.reduce(0, 1000, path.mark(0, 1000))
    direct = HostPath(2, host, PlainSum(Doubling()))
    direct.reduce(0, 1000, direct.mark(0, 1000))
    assert numpy.array_equal(flat.numpy(), host.numpy())
