"""The stand-in for a GPU refuses what CUDA refuses, and computes what the CPU computes."""

import pytest
import torch

from tests.support.stand_in_gpu import DeviceMismatch, stand_in_gpu

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


@pytest.fixture
def device():
    with stand_in_gpu() as made:
        yield made


def test_tensors_are_on_the_gpu_and_share_storage_with_their_views(device):
    x = torch.arange(6.0, device=device).view(2, 3)
    assert x.device == device and x.is_cuda and not x.is_cpu
    x[1].add_(1)
    assert x.cpu().tolist() == [[0, 1, 2], [4, 5, 6]]
    assert x[1].untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x + torch.ones(3),
        lambda x: torch.mm(x, torch.ones(3, 3)),
        lambda x: torch.cat([x, torch.ones(2, 3)]),
        lambda x: torch.mul(torch.ones(2, 3), 2, out=x) + torch.add(torch.ones(2, 3), x),
        lambda x: x.index_put_((torch.tensor([0]),), torch.ones(3)),
        lambda x: x.uniform_(generator=torch.Generator()),
        lambda x: torch.ones(3).uniform_(generator=torch.Generator(device=x.device)),
        lambda x: torch.ops.aten.mkldnn_rnn_layer(x, x, x, x, x, x, x, False, [], 0, 1, 1, False, False, False, False),
    ],
)
def test_what_mixes_devices_is_refused(device, operation):
    with pytest.raises(DeviceMismatch):
        operation(torch.ones(2, 3, device=device))


def test_values_are_read_on_the_host_only(device):
    x = torch.ones(2, 3, device=device)
    with pytest.raises((RuntimeError, TypeError)):
        x.numpy()
    assert x.cpu().numpy().sum() == x.sum().item() == 6
    assert (x[torch.tensor([0])] * torch.tensor(2.0)).shape == (1, 3)


def test_a_seed_gives_other_numbers_than_on_the_cpu(device):
    numbers = [
        torch.ones(3, device=each).uniform_(generator=torch.Generator(each).manual_seed(1)) for each in 2 * [device]
    ]
    here = torch.ones(3).uniform_(generator=torch.Generator().manual_seed(1))
    assert torch.equal(*(each.cpu() for each in numbers)) and not torch.equal(numbers[0].cpu(), here)


def test_copies_that_do_not_block_come_as_late_as_they_may(device):
    x, host = torch.ones(4, device=device), torch.zeros(4, pin_memory=True)
    stream = torch.cuda.Stream(device)
    with torch.cuda.stream(stream):
        host.copy_(x, non_blocking=True)
    assert host.isnan().all()
    stream.record_event().synchronize()
    assert host.tolist() == [1, 1, 1, 1]


def test_afterwards_there_is_no_gpu():
    with stand_in_gpu():
        assert torch.cuda.is_available()
    assert not torch.cuda.is_available() and torch.ones(2).pin_memory is not torch.Tensor.clone
