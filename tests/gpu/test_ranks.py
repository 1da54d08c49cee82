"""Two ranks that share one GPU: gradients are staged through pinned memory, under every schedule."""

import contextlib
import json
from types import SimpleNamespace

import pytest
import torch

from mgcaffe.comm import run_ranks
from mgcaffe.comm.exchange.gradient_path import CudaStreams, DevicePath, make_path
from mgcaffe.comm.exchange.sums.base import PlainSum
from mgcaffe.comm.transport.communicator import SingleCommunicator
from tests.support.schedules import EVERY, train_under_every_schedule
from tests.support.solverkit import write_data
from tests.support.stand_in_gpu import on_this_thread
from tests.support.torchrun import run_two_ranks


def close(one, other):
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_threads_get_the_cpus_weights_under_every_schedule(device, tmp_path):
    listing = write_data(tmp_path, classes=3)

    def rank(communicator):
        with on_this_thread(device):
            return train_under_every_schedule(communicator, listing, device)

    expected = run_ranks(2, lambda communicator: train_under_every_schedule(communicator, listing, "cpu"))[0]["single"]
    for weights in run_ranks(2, rank, timeout_s=60):  # the first call loads CUDA's libraries
        assert weights.keys() == {*EVERY}
        for schedule, values in weights.items():
            close(values, expected)
            assert torch.equal(values, weights["single"]), schedule


@pytest.mark.skipif(not torch.cuda.is_available(), reason="starts processes, which the stand-in does not reach")
def test_processes_get_the_cpus_weights_under_every_schedule(tmp_path):
    listing = write_data(tmp_path, classes=3)
    printed = run_two_ranks("schedules_on_gpu.py", listing, "cuda:0")
    sums = [json.loads(line.partition("weights: ")[2]) for line in printed.splitlines() if "weights: " in line]
    assert len(sums) == 2 and sums[0] == sums[1] and len(set(sums[0].values())) == 1, sums


def test_a_slice_is_not_read_before_it_is_on_the_host_nor_the_mean_before_it_is_back(device):
    flat = torch.arange(8.0, device=device)
    path = make_path(SingleCommunicator(), flat)
    assert isinstance(path, DevicePath)
    seen = []
    path._sum = lambda offset, part: (seen.append(part.copy()), part.__imul__(3))
    path.reduce(2, 4, path.mark(2, 4))
    path.finish()
    assert seen[0].tolist() == [2, 3, 4, 5]
    assert flat.cpu().tolist() == [0, 1, 6, 9, 12, 15, 6, 7]


def test_streams_are_changed_on_their_own_gpu_alone(device):
    inside, changes = [], []

    @contextlib.contextmanager
    def on_device(chosen):
        with torch.cuda.device(chosen):
            inside.append(chosen)
            yield
            inside.pop()

    def on_stream(stream):
        changes.append(list(inside))
        return torch.cuda.stream(stream)

    path = make_path(SingleCommunicator(), torch.arange(8.0, device=device))
    cuda = SimpleNamespace(device=on_device, stream=on_stream, current_stream=torch.cuda.current_stream)
    path._streams._torch = SimpleNamespace(cuda=cuda)
    path.reduce(0, 8, path.mark(0, 8))
    assert changes == [[device]] * 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="kernels of the stand-in take no time of their own")
def test_slow_kernels_before_and_after_a_slice_change_nothing(device):
    flat = torch.zeros(1 << 20, device=device)
    path = DevicePath(1, flat, PlainSum(SingleCommunicator()), CudaStreams(device))
    for number in range(1, 20):
        torch.cuda._sleep(10_000_000)
        flat.fill_(number)
        token = path.mark(0, flat.numel())
        torch.cuda._sleep(1_000_000)
        path.reduce(0, flat.numel(), token)
        path.finish()
        assert flat.mean().item() == number
