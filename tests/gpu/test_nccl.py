"""The order of work over NCCL on a GPU, with kernels that take long; one rank.

tests/comm/exchange/test_nccl_path.py makes the same checks with streams that are fakes.
"""

from contextlib import AbstractContextManager

import pytest
import torch

from mgcaffe.comm.exchange.nccl_path import NcclPath, NcclStreams, open_nccl
from mgcaffe.comm.exchange.transports import has_nccl
from mgcaffe.comm.transport.process_group import ProcessGroupCommunicator
from mgcaffe.comm.transport.rendezvous import StorePlace
from tests.support.nccl_order import CHECKS, COUNT

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU"),
    pytest.mark.skipif(not has_nccl(), reason="this PyTorch was built without NCCL"),
]
SLOW_CYCLES = 200_000_000  # about a tenth of a second


class GpuDevice:
    """See `nccl_order.Device`: the mean is over two ranks, of which one adds nothing."""

    def __init__(self, group: object, device: torch.device) -> None:
        self._flat = torch.zeros(COUNT, device=device)
        self.streams = NcclStreams(group, device, 2, torch.cuda)
        self.path = NcclPath(self._flat, self.streams)
        self.path.reduce(0, COUNT, self.path.mark(0, COUNT))  # NCCL connects when it is first used, which takes long
        self.path.finish()
        torch.cuda.synchronize()

    def compute(self, start, stop, value):
        torch.cuda._sleep(SLOW_CYCLES)
        self._flat[start:stop].fill_(value)

    def is_computing(self):
        return not torch.cuda.current_stream().query()

    def copy(self):
        copied = self._flat.clone()
        return copied.tolist

    def enqueue(self, start, stop):
        self.streams.reduce(self._flat[start:stop], self.path.mark(start, stop - start))

    def another_stream(self) -> AbstractContextManager[None]:
        return torch.cuda.stream(torch.cuda.Stream())

    def mean(self, value):
        return value / 2


@pytest.fixture
def nccl(device):
    """Return NCCL's process group of one rank, as the engine opens it."""
    ranks = ProcessGroupCommunicator(place=StorePlace(torch.distributed.HashStore(), 0, 1), timeout_s=60)
    yield open_nccl(ranks, device, ranks.size)._group
    ranks.close()


@pytest.mark.parametrize("check", CHECKS)
def test_order(nccl, device, check):
    check(GpuDevice(nccl, device))
