"""What the tests in `ddp_behaviour.py` and its neighbours share: their register, and what they expect of gradients."""

import copy

import torch
import torch.distributed as dist

from mgcaffe.pytorch import MergedGradientParallel

BEHAVIOUR = {}
RANKS = 2


def behaviour(function):
    BEHAVIOUR[function.__name__] = function
    return function


def gradients(model):
    return [None if each.grad is None else each.grad.detach().clone() for each in model.parameters()]


def mean_gradients(module, loss, rank):
    """Return the means over the ranks of the gradients of a copy of a module, made without any wrapper."""
    alone = copy.deepcopy(module)
    loss(alone).backward()
    found = []
    for parameter in alone.parameters():
        grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        dist.all_reduce(grad)
        found.append(grad / RANKS)
    return found


def expect_equal(found, expected, tolerance=1e-6):
    for a, b in zip(found, expected, strict=True):
        assert torch.allclose(a, b, rtol=tolerance, atol=tolerance), (a, b)


def expect_means(module, loss, rank, **options):
    """Wrap a module and compare two backward passes with the mean over ranks; rank 0's parameters are taken over."""
    for parameter in module.parameters():
        dist.broadcast(parameter.data, 0)
    expected = mean_gradients(module, loss, rank)
    model = MergedGradientParallel(copy.deepcopy(module), **options)
    for _ in range(2):
        model.zero_grad()
        loss(model).backward()
        expect_equal(gradients(model), expected)
    return model


def expect_error(kind, text, function):
    try:
        function()
    except kind as error:
        assert text in str(error), error
        return
    raise AssertionError(f"no {kind.__name__}")
