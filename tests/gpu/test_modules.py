"""MergedGradientParallel for modules on a GPU: staged through pinned memory, and over NCCL.

The stand-in has no backward pass of autograd, so without a GPU the ranks compute on the CPU, and what is about a GPU's
kernels is skipped.
"""

import contextlib

import pytest
import torch
from torch import nn

from mgcaffe.comm import run_ranks
from mgcaffe.comm.exchange import gradient_path
from mgcaffe.comm.exchange.transports import has_nccl
from mgcaffe.comm.transport.communicator import SingleCommunicator
from mgcaffe.pytorch import MergedGradientParallel
from tests.support.ddp_models import batch, cnn, mlp
from tests.support.schedules import EVERY
from tests.support.torchrun import run_two_ranks

HAS_GPU = torch.cuda.is_available()
needs_gpu = pytest.mark.skipif(not HAS_GPU, reason="PyTorch finds no GPU")
needs_nccl = pytest.mark.skipif(not has_nccl(), reason="this PyTorch was built without NCCL")
SLOW_CYCLES = 20_000_000
SHAPES = {mlp: (4, 20), cnn: (4, 1, 8, 8)}
STEPS = 6


@pytest.fixture(autouse=True)
def device(monkeypatch):
    # PyTorch lets convolutions round their operands to TF32, and no net of ours is built here that would not.
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    return torch.device("cuda", 0) if HAS_GPU else torch.device("cpu")


class SlowBackward(torch.autograd.Function):
    """Nothing, but that the kernel before its gradient takes some 10 ms of the GPU."""

    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
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


def train(model, batches_of_ranks, device, make=mlp):
    """Train on the mean over some ranks' batches; return the weights."""
    updates = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    for step in range(STEPS):
        updates.zero_grad()
        losses = [model(batch(rank, step, *SHAPES[make]).to(device)).square().mean() for rank in batches_of_ranks]
        torch.stack(losses).mean().backward()
        updates.step()
    return [each.detach().cpu().clone() for each in model.parameters()]


def fresh(make=mlp):
    torch.manual_seed(3)
    return make()


def weights_of_one_rank(make=mlp):
    """Return what the plain module learns on the CPU from both ranks' batches."""
    return train(fresh(make), (0, 1), "cpu", make)


def weights_of_two_ranks(device, schedule, make=mlp, wrap=lambda module: module):
    modules = [fresh(make) for _ in range(2)]  # the seed is that of all threads

    def rank(communicator):
        model = MergedGradientParallel(
            wrap(modules[communicator.rank]).to(device),
            process_group=communicator,
            schedule=schedule,
            calibration_iterations=2,
            listener=lambda _: None,
        )
        # Autograd has one thread for each GPU of a process, in which one rank would wait for the other's gradients,
        # whose turn never came; so here each rank's thread runs its own pass.
        with contextlib.closing(model), torch.autograd.set_multithreading_enabled(False):
            return train(model, (communicator.rank,), device, make)

    return run_ranks(2, rank, timeout_s=60)  # the first call loads CUDA's libraries


def are_close(weights, expected):
    return all(torch.allclose(*pair, rtol=1e-4, atol=1e-5) for pair in zip(weights, expected, strict=True))


@pytest.mark.parametrize("schedule", EVERY if HAS_GPU else ["wfbp"])
def test_two_ranks_get_the_weights_of_one_that_has_both_batches(device, schedule):
    first, second = weights_of_two_ranks(device, schedule)
    assert are_close(first, weights_of_one_rank())
    assert all(map(torch.equal, first, second))


def test_convolutions_and_batch_norm_likewise(device):
    for weights in weights_of_two_ranks(device, "wfbp", cnn):
        assert are_close(weights, weights_of_one_rank(cnn))


@needs_gpu
def test_gradients_are_not_read_before_slow_kernels_have_made_them(device):
    for weights in weights_of_two_ranks(device, "wfbp", wrap=Slow):
        assert are_close(weights, weights_of_one_rank())


@needs_gpu
def test_kernels_are_so_slow_that_who_does_not_wait_for_them_gets_other_weights(device, monkeypatch):
    """Without this the test above could pass whatever is waited for."""

    class Hasty(gradient_path.CudaStreams):
        def copy_out(self, host, device):
            with torch.cuda.stream(self._out):
                host.copy_(device, non_blocking=True)
                return self._out.record_event()

    monkeypatch.setattr(gradient_path, "CudaStreams", Hasty)
    for weights in weights_of_two_ranks(device, "wfbp", wrap=Slow):
        assert not are_close(weights, weights_of_one_rank())


@pytest.mark.slow
def test_processes_wait_for_each_other_in_autograds_thread_for_the_gpu(device):
    printed = run_two_ranks("modules_on_gpu.py", device)
    assert printed.count("close: True") == 2, printed


@needs_gpu
def test_one_rank_alone_leaves_gradients_on_the_gpu(device):
    module = fresh().to(device)
    model = MergedGradientParallel(module, process_group=SingleCommunicator())
    model(batch(0, 0, *SHAPES[mlp]).to(device)).sum().backward()
    assert all(each.grad.is_cuda for each in module.parameters())


@needs_gpu
@needs_nccl
def test_one_rank_over_nccl_gets_the_plain_modules_weights(device):
    torch.distributed.init_process_group("nccl", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        found = train(MergedGradientParallel(Slow(fresh()).to(device)), (0,), device)
    finally:
        torch.distributed.destroy_process_group()
    assert are_close(found, train(fresh(), (0,), "cpu"))
