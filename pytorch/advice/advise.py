"""`advise`: which `bucket_cap_mb` a DistributedDataParallel should have, and what planned groups would give."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mgcaffe.comm import Communicator
from mgcaffe.comm.transport.process_group import ProcessGroupCommunicator
from mgcaffe.comm.tuning.calibration import agree_times
from mgcaffe.errors import UsageError, describe_exception
from mgcaffe.pytorch.advice.advice import Advice
from mgcaffe.pytorch.advice.agreement import on_all_ranks
from mgcaffe.pytorch.advice.bucket_rules import DEFAULT_CAP_MB, BucketRules, Gradient
from mgcaffe.pytorch.advice.measurement import Measurement, measure
from mgcaffe.pytorch.advice.predictions import Prediction, Predictor
from mgcaffe.pytorch.advice.trial import check_pass, time_iterations
from mgcaffe.pytorch.agreement import compare_arguments
from mgcaffe.pytorch.measuring.module_trace import sent_bytes
from mgcaffe.pytorch.measuring.sample import Loss, SampleBatch
from mgcaffe.pytorch.measuring.stand_in import StandIn
from mgcaffe.pytorch.options import ExchangeOptions
from mgcaffe.pytorch.ranks import default_group

CAPS_MB = (1.0, 5.0, 25.0, 100.0)
MIN_PASSES = 4
_ROUNDS = 4


def advise(
    ddp_module: DistributedDataParallel,
    sample_batch: Any,
    *,
    loss: Loss | None = None,
    passes: int = 16,
    trials: int = 0,
    emulate_link: str | None = None,
) -> Advice:
    """Measure a wrapped module on all ranks, and predict iterations with other buckets; a collective call.

    The module stays as it is: parameters, gradients, buffers, random numbers, mode, hooks and buckets. Measured is the
    mode in which it is. Buckets are those that DistributedDataParallel has from its second iteration on.

    Args:
        ddp_module: the module, wrapped.
        sample_batch: what this rank calls it with: a tensor, a tuple of arguments or a dict of keyword arguments.
        loss: makes a scalar of its output; None: the sum of all tensors in it that have gradients.
        passes: how many passes to run with communication; some more are run without.
        trials: how many iterations to run with DistributedDataParallel itself, for each set of buckets in the table;
            the best one is then chosen by them.
        emulate_link: the link to measure, such as `a=1e-3,b=3e-8`, in place of the one that is there.

    Returns:
        The advice, the same on all ranks; print it on one.

    Raises:
        UsageError: on all ranks alike: not a DistributedDataParallel, one rank, a batch on which a pass fails, or
            parameters without gradients. Where a pass fails only in a trial, in the midst of all-reduces of
            DistributedDataParallel's own, the other ranks end by the time-out of its process group.
        RankDisagreement: the ranks give different arguments.
        CommError: the ranks cannot reach each other.
    """
    communicator = ProcessGroupCommunicator(_group_of(ddp_module))
    try:
        on_all_ranks(communicator, lambda: _check(ddp_module, passes, trials, emulate_link), "calling advise")
        arguments = {"passes": passes, "trials": trials, "emulate_link": emulate_link}
        compare_arguments(communicator, "advise", arguments)
        sample, stand_in, options = on_all_ranks(
            communicator,
            lambda: (
                SampleBatch(sample_batch, loss),
                _stand_in(ddp_module),
                _options(ddp_module, passes, emulate_link),
            ),
            "preparing the passes",
        )
        may_lack = bool(ddp_module.find_unused_parameters or ddp_module.static_graph)
        measured = measure(stand_in, sample, communicator, options, may_lack=may_lack)
        advice = None
        if communicator.rank == 0:
            advice = _advice(ddp_module, stand_in, measured, communicator)
        found = communicator.broadcast_object(advice)
        assert found is not None
        if trials:
            found = _tried(found, ddp_module, sample, communicator, trials)
    finally:
        communicator.close()
    return found


def _group_of(module: nn.Module) -> dist.ProcessGroup:
    """Return the ranks that are to agree, also on an error.

    Raises:
        UsageError: there are none but this one.
    """
    if isinstance(module, DistributedDataParallel):
        group: dist.ProcessGroup = module.process_group
        if dist.get_world_size(group) == 1:
            raise UsageError("with one rank nothing is communicated, so there is nothing to advise on")
        return group
    everybody = default_group()
    if everybody is None or dist.get_world_size(everybody) == 1:
        raise _not_wrapped(module)
    return everybody


def _not_wrapped(module: object) -> UsageError:
    return UsageError(
        f"advise needs a module that DistributedDataParallel wraps, and this is of type {type(module).__name__}",
        hint="`trace_module` measures other modules, for `engine plan --trace`",
    )


def _check(module: nn.Module, passes: int, trials: int, emulate_link: str | None) -> None:
    if not isinstance(module, DistributedDataParallel):
        raise _not_wrapped(module)
    if passes < MIN_PASSES:
        raise UsageError(f"passes={passes} are too few: at least {MIN_PASSES} are needed")
    if trials < 0:
        raise UsageError(f"trials={trials} is below 0")
    if trials and emulate_link is not None:
        raise UsageError("trials run over the link that is there, and emulate_link asks for another one")


def _options(model: DistributedDataParallel, passes: int, emulate_link: str | None) -> ExchangeOptions:
    transport = "gloo" if dist.get_backend(model.process_group) == "gloo" else "auto"
    return ExchangeOptions("optimal", calibration_iterations=passes, transport=transport, emulate_link=emulate_link)


def _tried(
    advice: Advice, model: DistributedDataParallel, sample: SampleBatch, communicator: Communicator, trials: int
) -> Advice:
    """Return the advice with measured iterations of all buckets in its table; a collective call.

    What fails in a pass alone ends all ranks. What fails in DistributedDataParallel's iterations only, in the midst of
    all-reduces of its own, is raised on that rank, and elsewhere by its time-out (`time_iterations`).
    """
    present = BucketRules.of(model)
    ready = present.by_readiness
    rules = {advice.present.sizes: present}  # other limits may come to the same buckets
    rules.setdefault(advice.default.sizes, BucketRules.default(ready))
    for each in (*advice.caps, advice.best):
        rules.setdefault(each.sizes, BucketRules.capped(each.bucket_cap_mb or 0.0, ready))
    seconds: dict[tuple[int, ...], list[float]] = {sizes: [] for sizes in rules}
    rounds = min(_ROUNDS, trials)
    for number in range(rounds):  # in turns: what else the machines do changes
        for sizes, each_rules in rules.items():
            count = trials // rounds + (number < trials % rounds)
            stand_in = on_all_ranks(communicator, lambda: _checked(model, sample))
            try:
                seconds[sizes] += time_iterations(model, each_rules, stand_in, sample, count)
            except Exception as error:
                raise UsageError(
                    f"on rank {communicator.rank}: a trial with {each_rules.name} fails: {describe_exception(error)}",
                    hint="without trials= only passes without DistributedDataParallel's buckets are run",
                ) from error
    medians = agree_times(communicator, [statistics.median(times) for times in seconds.values()])
    measured = dict(zip(seconds, medians, strict=True))

    def tried(each: Prediction) -> Prediction:
        return replace(each, measured_s=measured[each.sizes])

    caps = tuple(tried(each) for each in advice.caps)
    best = min(tried(advice.best), *caps, key=lambda each: each.measured_s or 0.0)
    return replace(advice, present=tried(advice.present), default=tried(advice.default), caps=caps, best=best)


def _checked(model: DistributedDataParallel, sample: SampleBatch) -> StandIn:
    """Return parameters on which a pass has been run."""
    stand_in = _stand_in(model)
    check_pass(stand_in, sample)
    return stand_in


def _limits(model: DistributedDataParallel) -> list[str]:
    """Return what of a wrapped module is not predicted."""
    found = []
    if getattr(model, "mixed_precision", None) is not None:
        found.append("mixed_precision is not taken into account: gradients are taken to travel in their own types")
    if getattr(model, "_comm_hooks", None):
        found.append("the communication hook is not taken into account: gradients are taken to travel as they are")
    if any(getattr(part, "sparse", False) is True for part in model.module.modules()):
        found.append("sparse gradients are taken to be dense")
    return found


def _stand_in(model: DistributedDataParallel) -> StandIn:
    """Return the parameters that are sent: those that DistributedDataParallel is to ignore do not train here."""
    stand_in = StandIn(model.module)
    for name in getattr(model, "parameters_to_ignore", ()):
        if name in stand_in.parameters:
            stand_in.parameters[name].requires_grad_(False)
    if not stand_in.trained:
        raise UsageError("DistributedDataParallel ignores all parameters of the module, so nothing is communicated")
    return stand_in


def _advice(
    model: DistributedDataParallel, stand_in: StandIn, measured: Measurement, communicator: Communicator
) -> Advice:
    trained = stand_in.trained
    gradients = [Gradient(each.nbytes, (each.dtype, each.device)) for each in trained.values()]
    predictor = Predictor(measured, list(trained), gradients, [sent_bytes(each) for each in trained.values()])
    present = BucketRules.of(model)
    ready = present.by_readiness
    caps = tuple(predictor.buckets(BucketRules.capped(cap, ready), cap) for cap in CAPS_MB)
    searched = predictor.caps(ready)
    # Of limits that come to the same buckets, one that is looked at in any case, the nearest to the default.
    near = sorted(caps, key=lambda each: abs((each.bucket_cap_mb or 0.0) - DEFAULT_CAP_MB))
    best = min([*near, *searched], key=lambda each: (each.iteration_s, len(each.sizes)))
    channel = measured.decision.channels[0]
    return Advice(
        module=type(model.module).__name__,
        ranks=communicator.size,
        transport=dist.get_backend(model.process_group),
        parameters=sum(each.numel() for each in trained.values()),
        bytes=sum(each.bytes for each in gradients),
        forward_s=measured.forward_s,
        backward_s=measured.backward_s,
        cost=channel.beside,
        slowdown=channel.slowdown,
        present=predictor.buckets(present),
        default=predictor.buckets(BucketRules.default(ready)),
        caps=caps,
        best=best,
        searched=len(searched),
        mgwfbp=predictor.merged("mgwfbp"),
        optimal=predictor.merged("optimal"),
        auto=predictor.auto(),
        warnings=(*measured.warnings, *_limits(model)),
    )
