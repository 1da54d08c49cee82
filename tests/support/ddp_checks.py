"""Training loops that must give the same bits with DistributedDataParallel and with ours; each is run with both.

A check is a function of the rank and of what wraps a module, which returns the wrapped module after some steps.
"""

import contextlib
import warnings

import torch
import torch.nn.functional as F
from torch import nn

from tests.support.ddp_models import (
    GPT,
    Branches,
    Checkpointed,
    Outputs,
    Strided,
    Types,
    batch,
    cnn,
    labelled,
    mlp,
)

CHECKS = {}
ACCUMULATED = 2
MODELS = {"mlp": mlp, "cnn": cnn, "gpt": GPT}
OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, 0.01, momentum=0.9, weight_decay=1e-3),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, 1e-2),
}


def check(function):
    CHECKS[function.__name__] = function
    return function


def fifty_steps(kind, optimizer):
    """Make the check of 50 steps, with accumulation in every other one."""

    def run(rank, wrap):
        model = wrap(MODELS[kind]())
        updates = OPTIMIZERS[optimizer](model.parameters())
        for step in range(50):
            updates.zero_grad()
            for part in range(1 + step % ACCUMULATED):
                with model.no_sync() if part < step % ACCUMULATED else contextlib.nullcontext():
                    inputs, labels = labelled(kind, rank, ACCUMULATED * step + part)
                    results = model(inputs)
                    F.cross_entropy(results.reshape(-1, results.shape[-1]), labels).backward()
            updates.step()
        return model

    return run


CHECKS |= {f"{kind}_{name}": fifty_steps(kind, name) for kind in MODELS for name in OPTIMIZERS}


def train(model, loss, steps=4, zero=True):
    """Take steps of SGD; zero: as `set_to_none`, None: gradients are never cleared."""
    updates = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=0.1)
    for step in range(steps):
        if zero is not None:
            updates.zero_grad(set_to_none=zero)
        loss(step).backward()
        updates.step()
    return model


def squares(model, rank, *more):
    return lambda step: model(batch(rank, step, 4, 6), *more).square().sum()


@check
def unused_parameters_that_change(rank, wrap):
    model = wrap(Branches(), find_unused_parameters=True)
    return train(model, lambda step: squares(model, rank, step % 2)(step))


@check
def unused_parameters_that_differ_between_ranks(rank, wrap):
    model = wrap(Branches(), find_unused_parameters=True)
    return train(model, lambda step: squares(model, rank, (step + rank) % 2)(step), zero=False)


@check
def unused_parameters_with_gradients_of_earlier_passes(rank, wrap):
    model = wrap(Branches(), find_unused_parameters=True)
    return train(model, lambda step: squares(model, rank, step // 2 % 2)(step), zero=None)


@check
def parameters_used_under_no_sync_alone(rank, wrap):
    model = wrap(Branches(), find_unused_parameters=True)
    updates = torch.optim.SGD(model.parameters(), 0.05, weight_decay=0.1)
    for step in range(4):
        updates.zero_grad()
        with model.no_sync():
            squares(model, rank, 0)(step).backward()
        squares(model, rank, 1)(step + 50).backward()
        updates.step()
    return model


@check
def an_output_that_is_not_in_the_loss(rank, wrap):
    model = wrap(Outputs(), find_unused_parameters=True)
    return train(model, lambda step: model(batch(rank, step, 4, 6))["a"].sum())


@check
def a_backward_pass_for_each_output(rank, wrap):
    model = wrap(Outputs())
    updates = torch.optim.SGD(model.parameters(), 0.05)
    for step in range(3):
        updates.zero_grad()
        results = model(batch(rank, step, 4, 6))
        results["a"].sum().backward()
        results["b"][0].sum().backward()
        updates.step()
    return model


@check
def two_forward_passes_in_one_loss(rank, wrap):
    model = wrap(nn.Linear(6, 3))
    return train(model, lambda step: squares(model, rank)(step) + model(batch(rank, step + 9, 4, 6)).sum())


@check
def a_forward_pass_under_no_sync_after_one_without_it_in_one_loss(rank, wrap):
    model = wrap(nn.Linear(6, 3))

    def loss(step):
        first = model(batch(rank, step, 4, 6))
        with model.no_sync():
            second = model(batch(rank, step + 9, 4, 6))
        return first.square().sum() + second.sum()

    return train(model, loss)


@check
def checkpointing(rank, wrap):
    model = wrap(Checkpointed(False, times=2))
    return train(model, squares(model, rank))


@check
def reentrant_checkpointing(rank, wrap):
    model = wrap(Checkpointed(True))
    return train(model, squares(model, rank))


@check
def reentrant_checkpointing_twice_in_a_static_graph(rank, wrap):
    model = wrap(Checkpointed(True, times=2), static_graph=True)
    return train(model, squares(model, rank))


@check
def unused_parameters_in_a_static_graph(rank, wrap):
    model = wrap(Branches(), static_graph=True)
    return train(model, squares(model, rank, 0))


@check
def parameters_of_several_types(rank, wrap):
    model = wrap(Types())
    return train(model, squares(model, rank))


@check
def complex_parameters(rank, wrap):
    model = wrap(nn.Linear(6, 3, dtype=torch.complex64))
    return train(model, lambda step: model(batch(rank, step, 4, 6).to(torch.complex64)).abs().sum())


@check
def frozen_parameters(rank, wrap):
    module = mlp()
    module[2].weight.requires_grad_(False)
    model = wrap(module)
    return train(model, lambda step: model(batch(rank, step, 4, 20)).square().sum())


@check
def channels_last(rank, wrap):
    model = wrap(cnn().to(memory_format=torch.channels_last))
    return train(model, lambda step: model(batch(rank, step, 4, 1, 8, 8)).square().mean())


@check
def parameters_with_gaps_between_their_elements(rank, wrap):
    model = wrap(Strided())
    return train(model, lambda step: model(batch(rank, step, 4, 6)).square().mean().log())


@check
def evaluation_between_steps(rank, wrap):
    model = wrap(cnn())

    def loss(step):
        model.eval()
        with torch.no_grad():
            model(batch(rank, step + 50, 4, 1, 8, 8))
        model.train()
        return model(batch(rank, step, 4, 1, 8, 8)).square().mean()

    return train(model, loss)


@check
def clipping(rank, wrap):
    model = wrap(mlp())
    updates = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(4):
        updates.zero_grad()
        model(batch(rank, step, 4, 20)).square().sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        updates.step()
    return model


@check
def a_scaler_and_a_gradient_that_overflows_on_one_rank(rank, wrap):
    model = wrap(mlp())
    updates = torch.optim.SGD(model.parameters(), 0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for step in range(5):
        updates.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(batch(rank, step, 4, 20)).square().mean()
        scaler.scale(loss * (float("inf") if (step, rank) == (2, 1) else 1.0)).backward()
        scaler.step(updates)
        scaler.update()
    return model


@check
def a_penalty_on_gradients_of_the_input(rank, wrap):
    model = wrap(mlp())

    def loss(step):
        inputs = batch(rank, step, 4, 20).requires_grad_()
        value = model(inputs).square().sum()
        (slope,) = torch.autograd.grad(value, inputs, create_graph=True)
        return value + slope.square().sum()

    return train(model, loss)


@check
def a_second_backward_pass_is_each_ranks_own(rank, wrap):
    model = wrap(mlp())
    updates = torch.optim.SGD(model.parameters(), 0.05)
    for step in range(3):
        updates.zero_grad()
        model(batch(rank, step, 4, 20)).square().sum().backward()
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            sum(each.square().sum() for each in model.parameters()).backward()
        assert len(seen) == (step == 0 and type(model).__name__ == "MergedGradientParallel"), seen
        updates.step()
    return model


def uneven(count, unused=False, **keywords):
    def run(rank, wrap):
        model = wrap(Branches(), find_unused_parameters=True) if unused else wrap(cnn())
        # Without momentum: DDP takes parameters that no rank used for used while some have joined, with zeros.
        updates = torch.optim.SGD(model.parameters(), 0.01, momentum=0.0 if unused else 0.9)
        with model.join(**keywords):
            for step in range(count(rank)):
                updates.zero_grad()
                if unused:
                    squares(model, rank, (step + rank) % 2)(step).backward()
                else:
                    model(batch(rank, step, 4, 1, 8, 8)).square().mean().backward()
                updates.step()
        updates.zero_grad()
        return model

    return run


@check
def evaluation_while_ranks_have_joined(rank, wrap):
    model = wrap(mlp())
    # DDP sums gradients in every forward pass of a rank that has joined.
    evaluated = model if type(model).__name__ == "MergedGradientParallel" else model.module
    updates = torch.optim.SGD(model.parameters(), 0.01)
    with model.join():
        for step in range(1 + 2 * rank):
            updates.zero_grad()
            model(batch(rank, step, 4, 20)).square().mean().backward()
            updates.step()
            with torch.no_grad():
                evaluated(batch(rank, step + 50, 4, 20))
    updates.zero_grad()
    return model


CHECKS["uneven_inputs"] = uneven(lambda rank: 3 + 2 * rank)
CHECKS["uneven_inputs_divided_by_those_left"] = uneven(lambda rank: 3 + 2 * rank, divide_by_initial_world_size=False)
CHECKS["a_rank_without_inputs"] = uneven(lambda rank: 3 - 3 * rank)
CHECKS["uneven_inputs_and_unused_parameters"] = uneven(lambda rank: 3 + 2 * rank, unused=True)
