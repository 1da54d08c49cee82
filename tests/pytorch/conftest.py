"""Modules that train on two ranks, which are threads."""

import copy

import pytest
import torch

from mgcaffe.comm import run_ranks
from mgcaffe.pytorch import MergedGradientParallel
from tests.support.ddp_models import batch, mlp


@pytest.fixture
def train():
    """Return a function that trains copies of a module on threads, and returns what `finish` makes of each."""

    def run(module=None, steps=3, size=2, *, loss=None, finish=None, **options):
        torch.manual_seed(3)
        module = module if module is not None else mlp()

        def rank(communicator):
            model = MergedGradientParallel(copy.deepcopy(module), process_group=communicator, **options)
            updates = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
            for step in range(steps):
                updates.zero_grad()
                inputs = batch(communicator.rank, step, 4, 20)
                (loss(model, inputs) if loss is not None else model(inputs).square().mean()).backward()
                updates.step()
            result = finish(model, communicator) if finish is not None else weights(model)
            model.close()
            return result

        return run_ranks(size, rank)

    return run


def weights(model):
    return [each.detach().clone() for each in model.parameters()]
