"""MergedGradientParallel for modules on a GPU: staged through pinned memory, and over NCCL.

The stand-in has no backward pass of autograd, so without a GPU these tests run on the CPU.
"""

import copy

import pytest
import torch
from torch import nn

from mgcaffe.comm import run_ranks
from mgcaffe.comm.exchange.nccl_path import NcclPath, open_nccl
from mgcaffe.comm.exchange.transports import has_nccl
from mgcaffe.comm.transport.process_group import ProcessGroupCommunicator
from mgcaffe.comm.transport.rendezvous import StorePlace
from mgcaffe.pytorch import MergedGradientParallel
from tests.support.ddp_models import batch, mlp
from tests.support.schedules import EVERY

needs_nccl = pytest.mark.skipif(not (torch.cuda.is_available() and has_nccl()), reason="needs NCCL and a GPU")
SLOW_CYCLES = 20_000_000


@pytest.fixture(autouse=True)
def device():
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


class SlowBackward(torch.autograd.Function):
    """Nothing, but that the kernel before its gradient takes some 10 ms of the GPU."""

    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        if gradient.is_cuda:
            torch.cuda._sleep(SLOW_CYCLES)
        return gradient.clone()


class Slow(nn.Module):
    def __init__(self, inside):
        super().__init__()
        self.inside = inside

    def forward(self, x):
        for layer in self.inside:
            x = SlowBackward.apply(layer(x))
        return x


def train(device, schedule, steps, wrap=lambda module: module, rank=0, slow=False):
    torch.manual_seed(3)
    module = mlp()
    model = wrap(Slow(copy.deepcopy(module)).to(device) if slow else copy.deepcopy(module).to(device))
    updates = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    for step in range(steps):
        updates.zero_grad()
        model(batch(rank, step, 4, 20).to(device)).square().mean().backward()
        updates.step()
    return [each.detach().cpu().clone() for each in model.parameters()]


def on_two_ranks(device, schedule, **options):
    def rank(communicator):
        def wrap(module):
            model = MergedGradientParallel(
                module, process_group=communicator, schedule=schedule, calibration_iterations=2, listener=lambda _: None
            )
            models.append(model)
            return model

        models = []
        weights = train(device, schedule, 6, wrap, communicator.rank, **options)
        models[0].close()
        return weights

    return run_ranks(2, rank)


@pytest.mark.parametrize("schedule", EVERY if torch.cuda.is_available() else ["wfbp"])
def test_two_ranks_get_the_cpus_weights(device, schedule):
    expected = on_two_ranks("cpu", "single")[0]
    for weights in on_two_ranks(device, schedule):
        torch.testing.assert_close(weights, expected, rtol=1e-4, atol=1e-5)


def test_gradients_are_not_read_before_slow_kernels_have_made_them(device):
    expected = on_two_ranks("cpu", "single")[0]
    for weights in on_two_ranks(device, "wfbp", slow=True):
        torch.testing.assert_close(weights, expected, rtol=1e-4, atol=1e-5)


@needs_nccl
def test_one_rank_over_nccl_gets_the_plain_modules_weights(device):
    torch.distributed.init_process_group("nccl", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        found = train(device, "auto", 6, lambda module: MergedGradientParallel(module), slow=True)
    finally:
        torch.distributed.destroy_process_group()
    torch.testing.assert_close(found, train("cpu", "auto", 6), rtol=1e-4, atol=1e-5)


@needs_nccl
def test_sums_of_nccl_come_after_slow_kernels(device):
    ranks = ProcessGroupCommunicator(place=StorePlace(torch.distributed.HashStore(), 0, 1), timeout_s=60)
    flat = torch.zeros(1 << 20, device=device)
    path = NcclPath(flat, open_nccl(ranks, device))
    for number in range(1, 20):
        torch.cuda._sleep(SLOW_CYCLES)
        flat.fill_(number)
        token = path.mark(0, flat.numel())
        path.reduce(0, flat.numel(), token)
        path.finish()
        flat.add_(1)
        assert flat.mean().item() == number + 1
    ranks.close()
