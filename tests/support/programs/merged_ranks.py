"""Ranks under mpirun that train by MergedGradientParallel over MPI, without any process group of torch.distributed.

    mpirun -n 2 python -m tests.support.programs.merged_ranks FOLDER HOW

All checks below are run, each of which prints a line a rank, and then a training loop in which a rank fails as HOW says
(`tests/support/failing_module.py`). Without `checks` in HOW only that loop is run. `FOLDER/RANK.json` has the process
and when it failed.
"""

import copy
import functools
import json
import os
import sys
import time
import traceback
from pathlib import Path

import numpy
import torch
from torch import nn

from mgcaffe.errors import CommError, RankDisagreement
from mgcaffe.pytorch import MergedGradientParallel, RunRecorder, StepOnGroups
from tests.support.ddp_models import GPT, Branches, batch, cnn, labelled, mlp
from tests.support.failing_module import FAILING_STEP, Failing

STEPS = 6
LONG_S = 60
checks = []


def check(function):
    checks.append(function)
    return function


def loss_of(model, kind, rank, step):
    inputs, labels = labelled(kind, rank, step)
    results = model(inputs)
    return nn.functional.cross_entropy(results.reshape(-1, results.shape[-1]), labels)


@functools.cache
def expected(kind, steps=STEPS, parts=1):
    """Return the weights of one process that averages the gradients of all ranks by torch's own arithmetic."""
    torch.manual_seed(0)
    model = {"mlp": mlp, "gpt": GPT}[kind]()
    updates = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    for step in range(steps):
        sums = None
        for number in range(2):
            model.zero_grad()
            for part in range(parts):
                loss_of(model, kind, number, parts * step + part).backward()
            gradients = [each.grad.clone() for each in model.parameters()]
            sums = gradients if sums is None else [one + other for one, other in zip(sums, gradients, strict=True)]
        for each, total in zip(model.parameters(), sums, strict=True):
            each.grad = total / 2
        updates.step()
    return [each.detach() for each in model.parameters()]


def train(kind="mlp", steps=STEPS, parts=1, **options):
    """Return a wrapped module after some steps."""
    torch.manual_seed(rank)  # rank 0's parameters are taken over
    model = MergedGradientParallel({"mlp": mlp, "gpt": GPT}[kind](), **options)
    updates = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    on_groups = StepOnGroups(updates) if options.get("on_group") else None
    if on_groups is not None:
        model.on_group = on_groups
    for step in range(steps):
        updates.zero_grad()
        for part in range(parts - 1):
            with model.no_sync():
                loss_of(model, kind, rank, parts * step + part).backward()
        loss_of(model, kind, rank, parts * step + parts - 1).backward()
        if on_groups is None:
            updates.step()
    return model


def assert_equal(model, weights):
    for found, right in zip(model.parameters(), weights, strict=True):
        assert torch.equal(found, right), (found - right).abs().max()


@check
def the_ranks_are_those_of_mpi_and_have_rank_0s_weights():
    model = train(steps=0, schedule="wfbp")
    ranks = model.duplicate_ranks()
    assert (ranks.transport, ranks.rank, ranks.size) == ("mpi", rank, 2)
    torch.manual_seed(0)
    assert_equal(model, list(mlp().parameters()))
    model.close()


@check
def every_schedule_gives_the_bits_of_one_process():
    for schedule in ("single", "wfbp", "threshold", "mgwfbp", "optimal"):
        model = train(schedule=schedule, calibration_iterations=2, bucket_mb=1e-3)
        assert_equal(model, expected("mlp"))
        assert schedule in model.plan.schedule
        model.close()


@check
def accumulated_gradients_have_the_bits_of_one_process():
    model = train(parts=3, schedule="wfbp")
    assert_equal(model, expected("mlp", parts=3))
    model.close()


@check
def gloo_beside_mpi_gives_the_same_bits():
    model = train(schedule="wfbp", transport="gloo")
    assert_equal(model, expected("mlp"))
    model.close()


@check
def a_step_for_each_group_gives_the_same_bits():
    model = train(schedule="wfbp", on_group=lambda parameters: None)
    assert_equal(model, expected("mlp"))
    model.close()


@check
def sixteen_bits_are_close_and_equal_on_both_ranks():
    for kind, near in (("float16", 1e-3), ("bfloat16", 1e-2)):
        model = train(schedule="wfbp", allreduce_type=kind)
        ranks = model.duplicate_ranks()
        for found, right in zip(model.parameters(), expected("mlp"), strict=True):
            assert (found - right).abs().max() < near and not torch.equal(found, right)
            ours = found.detach().numpy().copy()
            ranks.broadcast(ours)
            assert numpy.array_equal(ours, found.detach().numpy())
        model.close()


@check
def buffers_are_rank_0s_in_every_forward_pass():
    torch.manual_seed(rank)
    model = MergedGradientParallel(cnn(), schedule="wfbp")
    own = copy.deepcopy(model.module)
    for step in range(3):
        model(batch(rank, step, 4, 1, 8, 8)).sum().backward()
        own(batch(0, step, 4, 1, 8, 8))
    model(batch(rank, 3, 4, 1, 8, 8))
    ranks = model.duplicate_ranks()
    before = own[1].running_mean.numpy().copy()
    ranks.broadcast(before)
    own[1].running_mean.copy_(torch.from_numpy(before))
    own(batch(rank, 3, 4, 1, 8, 8))
    assert torch.equal(model.module[1].running_mean, own[1].running_mean)
    model.close()


@check
def unused_parameters_that_differ_between_ranks_count_as_zeros():
    torch.manual_seed(0)
    model = MergedGradientParallel(Branches(), find_unused_parameters=True, schedule="wfbp")
    model(batch(rank, 0, 4, 6), rank).sum().backward()
    module = copy.deepcopy(model.module)
    gradients = []
    for number in range(2):
        module.zero_grad()
        module(batch(number, 0, 4, 6), number).sum().backward()
        gradients.append([torch.zeros_like(p) if p.grad is None else p.grad for p in module.parameters()])
    for each, one, other in zip(model.module.parameters(), *gradients, strict=True):
        assert torch.equal(each.grad if each.grad is not None else torch.zeros_like(each), (one + other) / 2)
    assert model.module.never.weight.grad is None
    model.close()


@check
def modules_that_differ_are_named_on_both_ranks():
    try:
        MergedGradientParallel(nn.Linear(6, 6 + rank))
    except RankDisagreement as error:
        assert "the module on rank 1 is not that of rank 0: parameter 'weight' is float32 (7, 6)" in str(error)
    else:
        raise AssertionError("no error")


@check
def a_parameter_without_a_gradient_is_named_on_both_ranks():
    model = MergedGradientParallel(Failing("lacking", rank, 2), schedule="wfbp")
    model.module.step = FAILING_STEP
    try:
        model(batch(rank, 0, 4, 6)).sum().backward()
    except CommError as error:
        assert f"2 parameters got no gradient in a backward pass on rank {rank}: 'rest.weight'" in str(error)
    else:
        raise AssertionError("no error")


@check
def an_exception_that_is_caught_may_be_followed_by_another_try():
    model = MergedGradientParallel(Failing("forward", rank, 2), schedule="wfbp")
    model.module.say = lambda *_: None
    for step in range(FAILING_STEP + 2):
        model.module.step = step
        try:
            loss = model(batch(rank, step, 4, 6)).sum()
        except ValueError:
            assert rank == 1 and step == FAILING_STEP
            model.module.step = 0
            loss = model(batch(rank, step, 4, 6)).sum()
        loss.backward()
    model.close()


@check
def a_copy_meets_the_other_rank_in_its_next_forward_pass():
    model = train(schedule="wfbp")
    other = copy.deepcopy(model)
    model.close()
    other.zero_grad()
    loss_of(other, "mlp", rank, 0).backward()
    (segments,) = other.segments
    assert len(segments) == 6
    other.close()


@check
def runs_are_recorded():
    torch.manual_seed(0)
    model = MergedGradientParallel(mlp(), schedule="wfbp", calibration_iterations=2)
    with RunRecorder(model, folder / "run.json", timeline=folder / "run.timeline.json") as recorder:
        for step in range(16):
            loss = loss_of(model, "mlp", rank, step)
            loss.backward()
            recorder.iteration_done(loss)
    model.close()
    if rank == 0:
        lines = [json.loads(line) for line in (folder / "run.json").read_text().splitlines()]
        assert sum("iter" in line and "loss" in line for line in lines) == 16
        assert (folder / "run.timeline.json").stat().st_size


@check
def join_needs_a_process_group():
    model = MergedGradientParallel(mlp())
    try:
        with model.join():
            pass
    except CommError as error:
        assert "join() needs a process group of torch.distributed" in str(error)
    else:
        raise AssertionError("no error")
    model.close()


@check
def auto_gives_the_bits_of_one_process_while_it_measures_and_tries():
    model = train("gpt", 15, calibration_iterations=3)
    assert_equal(model, expected("gpt", 15))
    assert model.reports
    model.close()


def run_checks():
    for function in checks:
        try:
            function()
            said = "ok"
        except Exception:
            said = traceback.format_exc().replace("\n", " | ")
        print(f"CHECK\t{function.__name__}\t{rank}\t{said}", flush=True)


def say(key, value):
    said[key] = value
    temporary = folder / f"{rank}.new"
    temporary.write_text(json.dumps(said))
    temporary.rename(folder / f"{rank}.json")


def fail(how):
    """Train until a rank fails."""
    model = MergedGradientParallel(Failing(how, rank, 2), schedule="wfbp")
    model.module.say = say
    for step in range(1000):
        model.module.step = step
        if "leaves" in how and rank == 1 and step == FAILING_STEP:
            say("at", time.monotonic())
            return
        if "exits" in how and rank == 1 and step == FAILING_STEP:
            say("at", time.monotonic())
            sys.exit(3)
        if how == "one_lacks" and rank == 1 and step == FAILING_STEP:
            say("at", time.monotonic())
        model.zero_grad()
        try:
            model(batch(rank, step, 4, 6)).sum().backward()
        except ValueError:
            if "caught" not in how:
                raise
            time.sleep(LONG_S)


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder, how = Path(sys.argv[1]), sys.argv[2]
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    said = {}
    say("pid", os.getpid())
    if "checks" in how:
        run_checks()
    fail(how)
