"""What happens on a GPU: the order of streams with slow kernels, NCCL with one rank, two ranks that share the GPU.

Skipped where there is none. The same order is tested with streams that are fakes in tests/comm/exchange.
"""

import copy

import pytest
import torch

from mgcaffe.comm import run_ranks
from mgcaffe.comm.exchange.nccl_path import NcclPath, NcclStreams
from mgcaffe.comm.transport.communicator import SingleCommunicator
from mgcaffe.pytorch import MergedGradientParallel
from tests.support.ddp_models import batch, cnn, mlp

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU with CUDA here")
SLOW_CYCLES = 200_000_000  # about a tenth of a second


@pytest.fixture
def group(tmp_path):
    """Return a process group of NCCL with one rank."""
    import torch.distributed as dist

    if not dist.is_nccl_available():
        pytest.skip("this PyTorch was built without NCCL")
    library = dist
    store = dist.FileStore(str(tmp_path / "store"), 1)
    return library.ProcessGroupNCCL(store, 0, 1, library.ProcessGroupNCCL.Options())


def make_path(group, count):
    """Return a buffer of zeros and its path; the mean is over two ranks, of which one adds nothing."""
    flat = torch.zeros(count, device="cuda")
    return flat, NcclPath(flat, NcclStreams(group, flat.device, 2, torch.cuda))


def compute(part, value):
    """Fill a slice after a kernel that takes long."""
    torch.cuda._sleep(SLOW_CYCLES)
    part.fill_(value)


def test_a_group_is_reduced_after_the_slow_kernel_that_computes_it(group):
    flat, path = make_path(group, 1000)
    compute(flat[500:], 10.0)
    token = path.mark(500, 500)
    path.reduce(500, 500, token)
    path.finish()
    assert torch.equal(flat[500:].cpu(), torch.full((500,), 5.0))


def test_a_group_is_reduced_while_the_next_one_is_computed(group):
    flat, path = make_path(group, 1000)
    flat[500:].fill_(10.0)
    first = path.mark(500, 500)
    compute(flat[:500], 20.0)
    second = path.mark(0, 500)
    path.reduce(500, 500, first)
    assert not second.query()  # the computing stream is still busy
    path.reduce(0, 500, second)
    path.finish()
    assert torch.equal(flat.cpu(), torch.tensor([10.0] * 500 + [5.0] * 500))


def test_what_is_computed_next_sees_the_means(group):
    flat, path = make_path(group, 1000)
    compute(flat, 10.0)
    path._streams.reduce(flat, path.mark(0, 1000))  # enqueued, and not waited for
    path.finish()
    assert torch.equal((flat * 1.0).cpu(), torch.full((1000,), 5.0))


def test_gradients_that_come_on_a_stream_of_the_users_are_waited_for(group):
    flat, path = make_path(group, 1000)
    with torch.cuda.stream(torch.cuda.Stream()):
        compute(flat, 10.0)
        path.reduce(0, 1000, path.mark(0, 1000))
        path.finish()
        assert torch.equal((flat * 1.0).cpu(), torch.full((1000,), 5.0))


@pytest.mark.parametrize("make", [mlp, cnn])
def test_two_ranks_that_share_a_gpu_compute_what_one_does_on_both_batches(make):
    torch.manual_seed(3)
    module = make().cuda()
    shape = (4, 20) if make is mlp else (4, 1, 8, 8)
    expected = []
    for rank in range(2):
        alone = copy.deepcopy(module)
        alone(batch(rank, 0, *shape).cuda()).square().mean().backward()
        expected.append([each.grad for each in alone.parameters()])

    def rank(communicator):
        model = MergedGradientParallel(copy.deepcopy(module), process_group=communicator, schedule="wfbp")
        for _ in range(3):
            model.zero_grad()
            result = model(batch(communicator.rank, 0, *shape).cuda())
            torch.cuda._sleep(SLOW_CYCLES // 10)
            result.square().mean().backward()
        gradients = [each.grad.cpu() for each in model.parameters()]
        model.close()
        return gradients

    for gradients in run_ranks(2, rank):
        for found, first, second in zip(gradients, *expected, strict=True):
            assert torch.allclose(found, ((first + second) / 2).cpu(), rtol=1e-5, atol=1e-6)


def test_one_rank_alone_leaves_gradients_where_they_are():
    module = mlp().cuda()
    model = MergedGradientParallel(module, process_group=SingleCommunicator())
    model(batch(0, 0, 4, 20).cuda()).sum().backward()
    assert all(each.grad.is_cuda for each in module.parameters())
