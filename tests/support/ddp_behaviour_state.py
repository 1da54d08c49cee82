"""What PyTorch's tests of DistributedDataParallel ask of state, buffers, uneven inputs and errors, asked of ours.

As `ddp_behaviour.py`.
"""

import copy
import io
import warnings

import torch
import torch.distributed as dist
from torch import nn

from mgcaffe.errors import RankDisagreement, UsageError
from mgcaffe.pytorch import MergedGradientParallel
from tests.support.ddp_kit import RANKS, behaviour, expect_equal, expect_error, gradients
from tests.support.ddp_models import Branches, batch, mlp


def on_all(tensor):
    """Return a tensor's values on all ranks."""
    found = [torch.empty_like(tensor) for _ in range(RANKS)]
    dist.all_gather(found, tensor.detach().contiguous())
    return found


class Buffered(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6, bias=False)
        self.register_buffer("kept", torch.randn(6))

    def forward(self, x):
        return self.fc(x) + self.kept


@behaviour
def test_ddp_sync_module_states(rank):
    torch.manual_seed(rank)
    model = MergedGradientParallel(Buffered())
    for value in (model.module.fc.weight, model.module.kept):
        assert torch.equal(*on_all(value))


@behaviour
def test_ddp_broadcast_buffer(rank):
    torch.manual_seed(rank)
    model = MergedGradientParallel(Buffered())
    for step in range(3):
        model.module.kept += rank + 1
        model(batch(rank, step, 4, 6)).sum().backward()
        assert torch.equal(*on_all(model.module.kept))


@behaviour
def test_ddp_init_sync_buffers_with_forward_sync_buffers_false(rank):
    torch.manual_seed(rank)
    model = MergedGradientParallel(Buffered(), forward_sync_buffers=False)
    assert torch.equal(*on_all(model.module.kept))
    model.module.kept += rank
    model(batch(rank, 0, 4, 6)).sum().backward()
    assert not torch.equal(*on_all(model.module.kept))


@behaviour
def test_ddp_join_respects_forward_sync_buffers_false(rank):
    torch.manual_seed(rank)
    model = MergedGradientParallel(Buffered(), forward_sync_buffers=False)
    model.module.kept += rank
    before = model.module.kept.clone()
    with model.join():
        for step in range(rank + 1):
            model(batch(rank, step, 4, 6)).sum().backward()
    assert torch.equal(model.module.kept, before)


@behaviour
def test_ddp_ignore_params_arg(rank):
    module = Branches()
    with torch.no_grad():
        module.a.weight.fill_(rank)
    module._ddp_params_and_buffers_to_ignore = ["a.weight"]
    model = MergedGradientParallel(module, find_unused_parameters=True)
    assert model.module.a.weight[0, 0] == rank
    model(batch(rank, 0, 4, 6), 0).square().sum().backward()
    assert not torch.equal(*on_all(module.a.weight.grad)) and torch.equal(*on_all(module.c.weight.grad))


@behaviour
def test_ddp_grad_div_uneven_inputs(rank):
    for divides_by_all in (True, False):
        model = MergedGradientParallel(nn.Linear(1, 1, bias=False))
        seen = []
        with model.join(divide_by_initial_world_size=divides_by_all):
            for _ in range(2 + 2 * rank):
                model.zero_grad()
                model(torch.ones(1, 1)).sum().backward()
                seen.append(model.module.weight.grad.item())
        assert seen == [1.0] * 2 + ([0.5 if divides_by_all else 1.0] * 2 if rank else [])


@behaviour
def test_ddp_uneven_inputs(rank):
    torch.manual_seed(rank)
    model = MergedGradientParallel(mlp())
    updates = torch.optim.SGD(model.parameters(), 0.1)
    with model.join():
        for step in range(1 + 3 * rank):
            updates.zero_grad()
            model(batch(rank, step, 4, 20)).square().mean().backward()
            updates.step()
    for parameter in model.parameters():
        assert torch.equal(*on_all(parameter))


@behaviour
def test_ddp_uneven_input_join_disable(rank):
    model = MergedGradientParallel(nn.Linear(1, 1, bias=False))
    with model.join(enable=False):
        for _ in range(3):
            model.zero_grad()
            model(torch.full((1, 1), float(rank + 1))).sum().backward()
            assert model.module.weight.grad.item() == 1.5
    assert not model._join_config.enable


@behaviour
def test_ddp_uneven_input_exception(rank):
    def run():
        with model.join():
            raise ValueError("from the loop")

    model = MergedGradientParallel(nn.Linear(1, 1))
    expect_error(ValueError, "from the loop", run)


@behaviour
def test_verify_model_across_rank(rank):
    def wrap(size):
        MergedGradientParallel(nn.Linear(6, size))

    expect_error(RankDisagreement, "parameter 'weight' is float32 (6, 6) on cpu there, and", lambda: wrap(5 + rank))


@behaviour
def test_ddp_model_diff_num_params_across_ranks(rank):
    module = nn.Sequential(*(nn.Linear(2, 2) for _ in range(1 + rank)))
    text = "rank 1 is not that of rank 0: it has parameter '1."
    expect_error(RankDisagreement, text, lambda: MergedGradientParallel(module))


@behaviour
def test_param_layout_mismatch_error(rank):
    order = torch.contiguous_format if rank == 0 else torch.channels_last
    module = nn.Conv2d(4, 4, 2).to(memory_format=order)
    expect_error(
        RankDisagreement, "'weight' is float32 (4, 4, 2, 2) with strides", lambda: MergedGradientParallel(module)
    )


@behaviour
def test_ddp_with_lazy_parameters(rank):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # lazy modules are new, PyTorch says
        lazy = nn.LazyLinear(3)
    expect_error(UsageError, "'weight' is not initialized", lambda: MergedGradientParallel(lazy))


@behaviour
def test_stateless_api_with_ddp(rank):
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.l1 = nn.Linear(1, 1)
            self.register_buffer("shift", torch.ones(1))

        def forward(self, x):
            return self.l1(x) + self.shift

    model = MergedGradientParallel(Shifted())
    values = {
        "module.l1.weight": torch.ones(1, 1, requires_grad=True),
        "module.l1.bias": torch.zeros(1, requires_grad=True),
        "module.shift": torch.zeros(1),
    }
    before = copy.deepcopy(model.module.state_dict())
    x = torch.rand(1, 1)
    result = torch.func.functional_call(model, values, x)
    assert torch.equal(result, x)
    result.backward()
    assert values["module.l1.weight"].grad is not None and values["module.l1.bias"].grad is not None
    assert gradients(model) == [None, None]
    expect_equal(model.module.state_dict().values(), before.values(), 0.0)


@behaviour
def test_no_grad(rank):
    model = MergedGradientParallel(mlp())
    with torch.no_grad():
        assert isinstance(model(batch(rank, 0, 4, 20)), torch.Tensor)
    assert gradients(model) == [None] * 6 and all(each.requires_grad for each in model.parameters())


@behaviour
def test_ignored_output(rank):
    for options in ({}, {"find_unused_parameters": True}):
        model = MergedGradientParallel(mlp(), **options)
        for _ in range(4):
            model(batch(rank, 0, 4, 20))
        for step in range(4):
            model(batch(rank, step, 4, 20)).sum().backward()


@behaviour
def test_save_load_checkpoint(rank):
    torch.manual_seed(1)
    whole = MergedGradientParallel(mlp())
    first, plain = MergedGradientParallel(copy.deepcopy(whole.module)), copy.deepcopy(whole.module)

    def train(model, count):
        updates = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(count):
            updates.zero_grad()
            model(batch(0, step, 4, 20)).square().mean().backward()
            updates.step()

    train(first, 3)
    stored = io.BytesIO()
    torch.save(first.state_dict(), stored)
    stored.seek(0)
    loaded = torch.load(stored)
    first = MergedGradientParallel(mlp())
    first.load_state_dict(loaded)
    plain.load_state_dict(loaded)
    for model in (first, plain, whole):
        train(model, 3)
    expect_equal(list(first.parameters()), list(plain.parameters()))
    before = [each.clone() for each in first.parameters()]
    again = MergedGradientParallel(mlp())
    again.load_state_dict(loaded)
    train(again, 3)
    expect_equal(list(again.parameters()), before, 0.0)


@behaviour
def test_sparse_gradients(rank):
    module = nn.EmbeddingBag(10, 10, sparse=True)
    expect_error(UsageError, "has sparse gradients", lambda: MergedGradientParallel(module))


@behaviour
def test_failure_recovery(rank):
    module = mlp()
    for _ in range(2):
        model = MergedGradientParallel(module)
        for step in range(3):
            model(batch(rank, step, 4, 20)).sum().backward()
        store = dist.distributed_c10d._get_default_store()
        del model
        dist.destroy_process_group()
        dist.init_process_group("gloo", store=dist.PrefixStore("again", store), rank=rank, world_size=RANKS)
