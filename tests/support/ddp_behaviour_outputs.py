"""What PyTorch's tests of DistributedDataParallel ask of outputs, layouts and compiled modules, asked of ours.

As `ddp_behaviour.py`.
"""

import collections
import copy
import dataclasses

import torch
import torch.nn.functional as F
from torch import nn

from mgcaffe.pytorch import MergedGradientParallel
from tests.support.ddp_kit import behaviour, expect_equal, expect_means, gradients
from tests.support.ddp_models import batch, cnn


@behaviour
def test_arbitrary_forward_return_value(rank):
    class Boxes(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc3 = nn.Linear(6, 6), nn.Linear(6, 6)

        def forward(self, x, box):
            x = self.fc1(x)
            return box(x, self.fc3(x))

    for box, unbox in (
        (lambda x, y: (x, y), lambda found: found[1]),
        (lambda x, y: ["foo", x, "bar", y], lambda found: found[3]),
        (lambda x, y: {"foo": "bar", "a": x, "b": y}, lambda found: found["b"]),
        (lambda x, y: ["foo", {"a": x, "b": y}], lambda found: found[1]["b"]),
        (lambda x, y: {"foo": "bar", "list": [0, x, 1, y]}, lambda found: found["list"][3]),
    ):
        torch.manual_seed(1)
        expect_means(Boxes(), lambda model, b=box, u=unbox: u(model(batch(rank, 0, 4, 6), b)).square().sum(), rank)


@behaviour
def test_ddp_namedtuple(rank):
    Pair = collections.namedtuple("Pair", ("a", "b"))

    class Pairs(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(6, 1)

        def forward(self, pair, kind):
            assert type(pair) is kind
            return kind(self.lin(pair.a), self.lin(pair.b))

    model = MergedGradientParallel(Pairs())
    result = model(Pair(batch(rank, 0, 4, 6), batch(rank, 1, 4, 6)), Pair)
    assert type(result) is Pair
    (result.a.sum() + result.b.sum()).backward()


@behaviour
def test_dataclass_output(rank):
    @dataclasses.dataclass
    class Result:
        o1: torch.Tensor | None
        o2: dict[str, torch.Tensor]

    class Gives(nn.Module):
        def __init__(self, skips):
            super().__init__()
            self.a, self.b, self.skips = nn.Linear(6, 6), nn.Linear(6, 6), skips

        def forward(self, x):
            return Result(None if self.skips else self.a(x), {"a": self.b(x), "b": self.b(x).relu()})

    def loss(model):
        result = model(batch(rank, 0, 4, 6))
        return (result.o2["a"] + result.o2["b"] + (0 if result.o1 is None else result.o1)).square().sum()

    torch.manual_seed(1)
    expect_means(Gives(False), loss, rank, find_unused_parameters=True)
    model = MergedGradientParallel(Gives(True), find_unused_parameters=True)
    loss(model).backward()
    assert model.module.a.weight.grad is None and model.module.b.weight.grad is not None


@behaviour
def test_ddp_returns_tensor_with_no_grad(rank):
    class Detaches(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)

        def forward(self, x):
            x = self.b(self.a(x))
            return x, x.clone().detach()

    model = MergedGradientParallel(Detaches())
    results = model(batch(rank, 0, 4, 6))
    assert results[0].requires_grad and not results[1].requires_grad
    results[0].mean().backward()


@behaviour
def test_ddp_new_tensor_in_fwd(rank):
    class Makes(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False)

        def forward(self, x, one, nested):
            x = self.fc2(self.fc1(x).relu())
            return x, torch.randn(1, 6) if one is None else one, {"tensor": nested or torch.randn(1, 6)}

    for options in ({}, {"find_unused_parameters": True}, {"static_graph": True}):
        model = MergedGradientParallel(Makes(), broadcast_buffers=False, **options)
        one = None
        for step in range(2):
            model.zero_grad()
            result, one, nested = model(batch(rank, step, 1, 6), one, None)
            assert one.grad_fn is None and nested["tensor"].grad_fn is None
            result.mean().backward()


@behaviour
def test_ddp_forward_backward_hook(rank):
    module = nn.Sequential(nn.Linear(2, 2))
    module[0].register_forward_pre_hook(lambda _, inputs: inputs[0].relu())
    module[0].register_forward_hook(lambda _, inputs, output: F.gelu(output))
    module[0].register_full_backward_hook(lambda _, grads, outputs: (None if grads[0] is None else F.celu(grads[0]),))
    alone, model = copy.deepcopy(module), None
    torch.manual_seed(2)
    model = MergedGradientParallel(module)
    alone.load_state_dict(model.module.state_dict())
    inputs = torch.rand(5, 2)
    assert torch.equal(alone(inputs), model(inputs))
    alone(inputs).sum().backward()
    model(inputs).sum().backward()
    expect_equal(gradients(model), gradients(alone))


@behaviour
def test_fp16(rank):
    module = nn.Linear(1, 1, bias=False).half()
    nn.init.constant_(module.weight, 1)
    model = MergedGradientParallel(module)
    model(torch.full((1, 1), 2.0**15, dtype=torch.float16)).sum().backward()
    assert torch.isfinite(module.weight.grad).all()


@behaviour
def test_grad_layout_1devicemodule_1replicaperprocess(rank):
    for formats in (
        [torch.contiguous_format, torch.channels_last],
        [torch.channels_last] * 2,
        [torch.contiguous_format] * 2,
    ):
        torch.manual_seed(1)
        layers = [nn.Conv2d(8, 8, 2).to(memory_format=formats[0]), nn.Conv2d(8, 4, 2).to(memory_format=formats[1])]
        model = expect_means(nn.Sequential(*layers), lambda each: each(batch(rank, 0, 4, 8, 5, 5)).sum(), rank)
        for layer, order in zip(model.module, formats, strict=True):
            assert layer.weight.grad.is_contiguous(memory_format=order)


@behaviour
def test_ddp_packed_sequence(rank):
    lengths = [5, 3, 1]
    padded = batch(rank, 0, 3, 5, 4)

    def loss(model):
        packed = nn.utils.rnn.pack_padded_sequence(padded, lengths, batch_first=True)
        result, _ = model(packed)
        assert isinstance(result, nn.utils.rnn.PackedSequence)
        return result.data.square().sum()

    torch.manual_seed(1)
    expect_means(nn.LSTM(4, 2, batch_first=True), loss, rank)


@behaviour
def test_ddp_compile_static_graph(rank):
    torch.manual_seed(1)
    module = nn.Linear(6, 6)
    models = [
        torch.compile(MergedGradientParallel(copy.deepcopy(module), static_graph=static), backend="aot_eager")
        for static in (False, True)
    ]
    for step in range(3):
        results = [model(batch(rank, step, 4, 6)).sum() for model in models]
        assert torch.equal(*results)
        for result in results:
            result.backward()
        expect_equal(gradients(models[0]), gradients(models[1]), 0.0)


@behaviour
def test_ddp_inference(rank):
    model = MergedGradientParallel(cnn())
    model.eval()
    inputs = batch(rank, 0, 4, 1, 8, 8)
    for _ in range(3):
        assert torch.equal(model(inputs), model.module(inputs))
