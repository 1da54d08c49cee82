"""What PyTorch's tests of DistributedDataParallel ask of activation checkpointing, asked of ours.

As `ddp_behaviour.py`.
"""

from torch import nn
from torch.utils.checkpoint import checkpoint

from mgcaffe.errors import CommError
from mgcaffe.pytorch import MergedGradientParallel
from tests.support.ddp_kit import behaviour, expect_error, expect_means, gradients
from tests.support.ddp_models import batch


class Twice(nn.Module):
    """Computes parts again in the backward pass."""

    def __init__(self, *, reentrant, times=1, shares=False, alternates=False):
        super().__init__()
        self.l1, self.l2 = nn.Linear(6, 6), nn.Linear(6, 6)
        self.reentrant, self.times, self.alternates, self.count = reentrant, times, alternates, 0
        if shares:
            self.l1.weight = self.l2.weight

    def forward(self, x):
        self.count += 1
        if self.alternates:
            return checkpoint(self.l1 if self.count % 2 else self.l2, x, use_reentrant=self.reentrant)
        x = self.l1(x)
        for _ in range(self.times):
            x = checkpoint(self.l2, x, use_reentrant=self.reentrant)
        return x


def square(rank):
    return lambda model: model(batch(rank, 0, 4, 6).requires_grad_()).square().sum()


@behaviour
def test_ddp_checkpointing_once(rank):
    for reentrant in (True, False):
        for static in (True, False):
            expect_means(Twice(reentrant=reentrant), square(rank), rank, static_graph=static)


@behaviour
def test_ddp_checkpointing_unused_params(rank):
    def run(reentrant, static):
        options = {"find_unused_parameters": True, "static_graph": static}
        expect_means(Twice(reentrant=reentrant), square(rank), rank, **options)

    run(False, False)
    run(False, True)
    run(True, True)
    expect_error(CommError, "parameter 'l2.", lambda: run(True, False))


@behaviour
def test_ddp_checkpointing_twice(rank):
    expect_means(Twice(reentrant=False, times=2), square(rank), rank)
    text = "came once more after it had been handed over"
    expect_error(CommError, text, lambda: expect_means(Twice(reentrant=True, times=2), square(rank), rank))


@behaviour
def test_ddp_checkpointing_twice_static_graph(rank):
    for reentrant in (True, False):
        expect_means(Twice(reentrant=reentrant, times=2), square(rank), rank, static_graph=True)


@behaviour
def test_ddp_checkpointing_twice_weight_sharing(rank):
    for reentrant in (True, False):
        module = Twice(reentrant=reentrant, times=2, shares=True)
        expect_means(module, square(rank), rank, static_graph=True)


@behaviour
def test_ddp_checkpointing_dynamic_module(rank):
    for shares in (False, True):
        module = Twice(reentrant=False, alternates=True, shares=shares)
        model = MergedGradientParallel(module, find_unused_parameters=True)
        for _ in range(4):
            model.zero_grad()
            square(rank)(model).backward()
            used = (module.l2, module.l1)[module.count % 2]
            assert used.weight.grad is not None and (shares or sum(each is None for each in gradients(model)) == 2)


@behaviour
def test_ddp_checkpointing_weight_sharing(rank):
    for reentrant in (True, False):
        for static in (True, False):
            first, second = nn.Linear(6, 6), nn.Linear(6, 6)
            first.weight = second.weight
            inputs = batch(rank, 0, 4, 6).requires_grad_()

            def loss(model, inputs=inputs, reentrant=reentrant):
                return checkpoint(model, inputs, use_reentrant=reentrant).square().sum()

            expect_means(nn.Sequential(first, second), loss, rank, static_graph=static)
