"""What PyTorch's tests of DistributedDataParallel ask of graphs, gradients and outputs, asked of ours.

Each function has the name of PyTorch's test (`torch_ddp_tests.py` says which file it is in) and code of our own. Two
ranks of gloo, modules on the CPU.
"""

import copy
import warnings

import torch
import torch.distributed as dist
from torch import nn

from mgcaffe.errors import CommError, UsageError
from mgcaffe.pytorch import MergedGradientParallel
from tests.support.ddp_kit import RANKS, behaviour, expect_equal, expect_error, expect_means, gradients
from tests.support.ddp_models import Branches, Outputs, batch, mlp


@behaviour
def test_DistributedDataParallelCPU(rank):
    torch.manual_seed(1)
    alone = mlp()
    model = MergedGradientParallel(copy.deepcopy(alone))
    for step in range(4):
        whole = torch.cat([batch(each, step, 4, 20) for each in range(RANKS)])
        for module, inputs in ((alone, whole), (model, batch(rank, step, 4, 20))):
            module.zero_grad()
            module(inputs).square().mean().backward()
            with torch.no_grad():
                for parameter in module.parameters():
                    parameter -= 0.1 * parameter.grad
    expect_equal(list(model.parameters()), list(alone.parameters()))


@behaviour
def test_DistributedDataParallel_requires_grad(rank):
    module = nn.Linear(2, 2).requires_grad_(False)
    expect_error(UsageError, "no parameter that requires a gradient", lambda: MergedGradientParallel(module))


@behaviour
def test_ddp_zero_output_features(rank):
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 0))
    expect_means(module, lambda model: model(batch(rank, 0, 4, 6)).sum(), rank)


@behaviour
def test_ddp_create_graph(rank):
    class Square(nn.Module):
        def __init__(self):
            super().__init__()
            self.p = nn.Parameter(torch.tensor(1.0))

        def forward(self):
            return self.p.pow(2)

    model = MergedGradientParallel(Square())
    for _ in range(6):
        model.zero_grad()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch's own, on cycles of references
            model().backward(create_graph=True)
        assert model.module.p.requires_grad and model.module.p.grad.item() == 2.0


@behaviour
def test_accumulate_gradients_no_sync(rank):
    torch.manual_seed(1)
    module = mlp()
    alone, model = copy.deepcopy(module), MergedGradientParallel(copy.deepcopy(module))
    for step in range(4):
        inputs = batch(rank, step, 4, 20)
        alone(inputs).square().mean().backward()
        if step % 2 == 0:
            with model.no_sync():
                model(inputs).square().mean().backward()
            expect_equal(gradients(model), gradients(alone))
        else:
            model(inputs).square().mean().backward()
            expected = gradients(alone)
            for each in expected:
                dist.all_reduce(each)
            expect_equal(gradients(model), [each / RANKS for each in expected])
            model.zero_grad()
            alone.zero_grad()


@behaviour
def test_accumulate_gradients_module(rank):
    torch.manual_seed(1)
    module = mlp()
    alone, model = copy.deepcopy(module), MergedGradientParallel(copy.deepcopy(module))
    with torch.no_grad():
        model.module(batch(rank, 9, 4, 20))
    for step in range(2):
        for each in (alone, model.module):  # in place of no_sync()
            each(batch(rank, step, 4, 20)).square().mean().backward()
    expect_equal(gradients(model), gradients(alone))
    for each in (alone, model):
        each(batch(rank, 2, 4, 20)).square().mean().backward()
    expected = gradients(alone)
    for each in expected:
        dist.all_reduce(each)
    expect_equal(gradients(model), [each / RANKS for each in expected])


@behaviour
def test_ddp_unused_params_rebuild_buckets_exception(rank):
    model = MergedGradientParallel(Branches())
    lacks = "4 parameters got no gradient in a backward pass on rank"
    expect_error(CommError, lacks, lambda: model(batch(rank, 0, 4, 6), 0).sum().backward())


@behaviour
def test_ddp_multiple_nested_unused_params_error(rank):
    class Nested(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.ModuleDict({"used": Branches(), "unused": nn.Linear(3, 3)})

        def forward(self, x):
            return self.inner["used"](x, 0)

    model = MergedGradientParallel(Nested())
    names = "'inner.used.b.weight', 'inner.used.b.bias', 'inner.used.never.weight', 'inner.used.never.bias'"
    expect_error(CommError, names, lambda: model(batch(rank, 0, 4, 6)).sum().backward())


@behaviour
def test_ddp_multiple_nested_unused_params_err_ignore_params(rank):
    model = MergedGradientParallel(Branches(), exclude=["never.*"])
    names = "2 parameters got no gradient in a backward pass on rank"
    expect_error(CommError, names, lambda: model(batch(rank, 0, 4, 6), 0).sum().backward())


class Tied(nn.Module):
    """Uses the weight of one layer in another, of which only one has a bias that is used."""

    def __init__(self):
        super().__init__()
        self.net1, self.net2 = nn.Linear(10, 5, bias=False), nn.Linear(5, 5)
        self.bias = nn.Parameter(torch.zeros(5))
        self.net1.bias = self.bias

    def forward(self, x):
        return self.net1(x)


@behaviour
def test_ddp_shared_grad_acc_unused_params(rank):
    for static in (True, False):
        model = MergedGradientParallel(Tied(), find_unused_parameters=True, static_graph=static)
        for step in range(3):
            model(batch(rank, step, 4, 10)).sum().backward()
        assert model.module.net2.weight.grad is None and model.module.bias.grad is not None


@behaviour
def test_ddp_weight_sharing(rank):
    class Adds(nn.Module):
        def __init__(self, parameter):
            super().__init__()
            self.a = parameter

        def forward(self, x):
            return x + self.a * (rank + 1)

    for none in (True, False):
        shared = nn.Parameter(torch.zeros(1000))
        model = MergedGradientParallel(nn.Sequential(Adds(shared), Adds(shared)))
        for _ in range(3):
            model.zero_grad(set_to_none=none)
            model(torch.ones(1)).sum().backward()
            expect_equal(gradients(model), [torch.full((1000,), 3.0)])


@behaviour
def test_invalid_static_graph(rank):
    inputs = batch(rank, 0, 4, 6)
    model = MergedGradientParallel(Branches(), static_graph=True)
    model(inputs, 0).sum().backward()
    expect_error(CommError, "and none in the first one (static_graph)", lambda: model(inputs, 1).sum().backward())
    fewer = MergedGradientParallel(Outputs(), static_graph=True)
    results = fewer(inputs)
    (results["a"].sum() + results["b"][0].sum()).backward()

    def less():
        fewer(inputs)["a"].sum().backward()
        fewer(inputs)

    expect_error(CommError, "2 parameters got no gradient in a backward pass on rank", less)


@behaviour
def test_static_graph_multi_forward(rank):
    torch.manual_seed(1)
    module = nn.Linear(6, 6)

    def loss(model):
        return sum(model(batch(rank, step, 4, 6)).square().sum() for step in range(3))

    expect_means(module, loss, rank, static_graph=True)


@behaviour
def test_ddp_static_graph_nested_types(rank):
    class Nested(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(6, 1, bias=False)

        def forward(self, x, kind):
            one, two = self.lin(x), self.lin(x)
            return {"tuple": (one, (two,)), "list": [one, [two]], "dict": {"a": one, "b": {"c": two}}}[kind]

    def total(value):
        parts = value.values() if isinstance(value, dict) else value
        return value.sum() if isinstance(value, torch.Tensor) else sum(total(each) for each in parts)

    torch.manual_seed(1)
    module = Nested()
    for kind in ("tuple", "list", "dict"):
        expect_means(module, lambda model, kind=kind: total(model(batch(rank, 0, 4, 6), kind)), rank, static_graph=True)


@behaviour
def test_output_unused_in_loss_tuple_module(rank):
    for static in (False, True):
        model = MergedGradientParallel(Outputs(), find_unused_parameters=True, static_graph=static)
        for step in range(3):
            model.zero_grad()
            model(batch(rank, step, 4, 6))["a"].sum().backward()
        assert model.module.b.weight.grad is None and model.module.a.weight.grad is not None


@behaviour
def test_undefined_grad_parity_unused_parameters(rank):
    model = MergedGradientParallel(Branches(), find_unused_parameters=True)
    alone = copy.deepcopy(model.module)
    for each in (model, alone):
        torch._C._functions.UndefinedGrad()(each(torch.ones(1, 6), 0).sum()).backward()
    assert gradients(model) == gradients(alone) == [None] * 8


@behaviour
def test_global_local_unused_params_grad(rank):
    for options in ({}, {"static_graph": True}):
        model = MergedGradientParallel(Branches(), find_unused_parameters=True, **options)
        output = model(batch(rank, 0, 4, 6), rank)
        assert gradients(model) == [None] * 8
        output.mean().backward()
        assert [each is None for each in gradients(model)] == [False] * 6 + [True] * 2


@behaviour
def test_find_unused_parameters_when_unused_parameters_empty(rank):
    class Skips(nn.Module):
        def __init__(self):
            super().__init__()
            self.t0, self.t1 = nn.Linear(6, 6), nn.Linear(6, 6)

        def forward(self, x):
            return self.t1(self.t0(x)) if rank == 0 else self.t1(x)

    model = MergedGradientParallel(Skips(), find_unused_parameters=True)
    model(batch(rank, 0, 4, 6)).mean().backward()
    assert all(each is not None for each in gradients(model))


@behaviour
def test_find_unused_parameters_kwarg(rank):
    class ReturnsLayer(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc3 = nn.Linear(6, 6), nn.Linear(6, 6)

        def forward(self, x):
            return self.fc1(x), self.fc3

    def run(**options):
        output, layer = MergedGradientParallel(ReturnsLayer(), **options)(batch(rank, 0, 4, 6))
        layer(output).sum().backward()

    expect_error(CommError, "parameter 'fc3.", lambda: run(find_unused_parameters=True))
    run(find_unused_parameters=False)
    run()
