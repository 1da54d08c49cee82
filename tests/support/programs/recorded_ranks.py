"""Two ranks over gloo that advise on DistributedDataParallel and record it and ours, and print what came of it as JSON.

    python -m tests.support.programs.recorded_ranks FOLDER

Ranks are forked as in `ddp_ranks.py`, after PyTorch has loaded what it loads when first used.
"""

import json
import sys
import time
import warnings
from pathlib import Path
from unittest import mock

import torch
import torch._dynamo
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mgcaffe.errors import RankDisagreement, UsageError
from mgcaffe.pytorch import MergedGradientParallel, RunRecorder, advise, record_buckets
from mgcaffe.pytorch.advice.bucket_rules import BucketRules, Gradient
from mgcaffe.pytorch.measuring.pass_times import measure_passes
from mgcaffe.pytorch.measuring.sample import SampleBatch
from mgcaffe.pytorch.measuring.stand_in import StandIn
from mgcaffe.tools.timeline.device_clock import DeviceClock
from tests.support.ddp_models import Branches, Types, batch, cnn
from tests.support.programs import ddp_ranks

FOLDER = Path(sys.argv[1])
LINK = "a=2e-4,b=1e-9"


def deep(width=128, layers=24):
    """Return layers of 64 KiB each, 1.5 MiB in all."""
    return nn.Sequential(*[nn.Linear(width, width) for _ in range(layers)])


def state(model):
    """Return everything that `advise` may not change."""
    parameters = list(model.module.parameters())
    return {
        "values": [each.detach().clone() for each in [*parameters, *model.module.buffers()]],
        "gradients": [None if each.grad is None else each.grad.clone() for each in parameters],
        "random": torch.get_rng_state(),
        "modes": [part.training for part in model.modules()],
        "hooks": [
            (len(part._forward_hooks), len(part._forward_pre_hooks), len(part._backward_hooks))
            for part in model.modules()
        ]
        + [len(each._post_accumulate_grad_hooks or ()) for each in parameters],
        "attributes": [sorted(vars(part)) for part in model.modules()],
    }


def equal(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict | list | tuple):
        keys = one.keys() if isinstance(one, dict) else range(len(one))
        return len(one) == len(other) and all(equal(one[key], other[key]) for key in keys)
    return one == other


def train(model, inputs, steps, recorder=None, call=None):
    updates = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    for _ in range(steps):
        updates.zero_grad()
        loss = (call(model, inputs) if call is not None else model(inputs)).square().mean()
        loss.backward()
        updates.step()
        if recorder is not None:
            recorder.iteration_done(loss)
    return [each.detach().clone() for each in model.parameters()]


def give_advice(rank, say):
    """Advise on one that trains already, with BatchNorm, and say whether it went on as if nothing had been."""
    torch.manual_seed(0)
    model, other = (DistributedDataParallel(cnn()) for _ in range(2))
    other.module.load_state_dict(model.module.state_dict())
    inputs = batch(rank, 0, 4, 1, 8, 8)
    train(model, inputs, 2), train(other, inputs, 2)
    before = state(model)
    advice = advise(model, inputs, passes=8, emulate_link=LINK)
    say("untouched", {name: equal(value, state(model)[name]) for name, value in before.items()})
    say("trains_on", equal(train(model, inputs, 3), train(other, inputs, 3)))
    say("text", str(advice))
    say("present", advice.present.name)
    say("transport", advice.transport)


def compare_sizes(rank, say):
    """Advise on a module of many buckets, with a loss and a batch of keyword arguments."""
    model = DistributedDataParallel(deep(), bucket_cap_mb=0.5)
    inputs = batch(rank, 0, 64, 128)
    advice = advise(model, {"input": inputs}, passes=8, emulate_link=LINK, loss=lambda output: output.mean())
    say("caps", [[each.bucket_cap_mb, len(each.sizes)] for each in advice.caps])
    say("present", [advice.present.name, len(advice.present.sizes)])
    say("bytes", [advice.bytes, *{sum(each.sizes) for each in (*advice.caps, advice.best, advice.mgwfbp, advice.auto)}])
    say("ordered", advice.best.iteration_s <= min(each.iteration_s for each in (*advice.caps, advice.present)))
    say("planned", advice.auto.iteration_s <= min(advice.mgwfbp.iteration_s, advice.optimal.iteration_s))
    say("times", min(advice.forward_s, advice.backward_s, advice.cost(1)) > 0 and 0 <= advice.slowdown < 1)
    say("same", len(set(ranks_values(str(advice)))) == 1)


def try_buckets(rank, say):
    """Have bucket sizes tried by DistributedDataParallel itself."""
    torch.manual_seed(0)
    model = DistributedDataParallel(deep(), bucket_cap_mb=0.5)
    record_buckets(model)
    inputs = batch(rank, 0, 64, 128)
    train(model, inputs, 2)
    before = state(model)
    advice = advise(model, inputs, passes=4, trials=2)
    say("warned", "communication hook is not taken into account" in str(advice))
    say("untouched", {name: equal(value, state(model)[name]) for name, value in before.items()})
    everything = [advice.present, advice.default, advice.best, *advice.caps]
    say("measured", all(each.measured_s > 0 for each in everything))
    say("best", advice.best.measured_s == min(each.measured_s for each in (advice.best, *advice.caps)))
    say("column", "measured" in str(advice))


def ranks_values(value):
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def real_buckets(rank, say):
    """Compare the buckets that the rules give with those that are reduced."""
    cases = {
        "default": (deep(), {}, batch(rank, 0, 4, 128)),
        "capped": (deep(), {"bucket_cap_mb": 0.25}, batch(rank, 0, 4, 128)),
        "views": (deep(), {"bucket_cap_mb": 0.3, "gradient_as_bucket_view": True}, batch(rank, 0, 4, 128)),
        "unused": (deep(), {"bucket_cap_mb": 0.25, "find_unused_parameters": True}, batch(rank, 0, 4, 128)),
        "types": (Types(), {}, batch(rank, 0, 4, 6)),
        "branches": (Branches(), {"find_unused_parameters": True}, (batch(rank, 0, 4, 6), 0)),
    }
    warnings.simplefilter("ignore")
    for name, (module, options, inputs) in cases.items():
        model = DistributedDataParallel(module, **options)
        recorder = record_buckets(model)
        arguments = inputs if isinstance(inputs, tuple) else (inputs,)
        train(model, inputs, 3, call=lambda model, _, arguments=arguments: model(*arguments))
        recorder.take_reports()
        stand_in = StandIn(module)
        times = measure_passes(stand_in, SampleBatch(inputs), 2)
        names = list(stand_in.trained)
        rest = [each for each in names if each not in times.ready]
        order = [names.index(each) for each in [*rest, *times.ready]]
        gradients = [Gradient(each.nbytes, (each.dtype, each.device)) for each in stand_in.trained.values()]
        rules = BucketRules.of(model)
        expected = [[names[number] for number in bucket] for bucket in rules.buckets(gradients, order)]
        found = [list(bucket) for bucket in recorder.buckets]
        # Of several types, in which order the last buckets of each are reduced is not said.
        ordered = sorted if name == "types" else list
        agree = ordered(map(sorted, found)) == ordered(map(sorted, expected))
        say(name, "equal" if agree else {"found": found, "expected": expected})
    say("count", len(recorder.take_reports()))


def same_bits(rank, say):
    """Train with and without recorded buckets."""
    for name, options in {"default": {}, "views": {"gradient_as_bucket_view": True}}.items():
        results = []
        for records in (False, True):
            torch.manual_seed(1)
            model = DistributedDataParallel(deep(), bucket_cap_mb=0.25, **options)
            if records:
                recorder = record_buckets(model)
            results.append(train(model, batch(rank, 0, 4, 128), 5))
        say(name, equal(*results))
        reports = recorder.take_reports()
        say(f"{name} reports", len(reports))
        times = [each for report in reports for each in report.groups]
        say(f"{name} times", all(0 <= each.ready <= each.start <= each.end for each in times))
        say(f"{name} bytes", {sum(each.bytes for each in report.groups) for report in reports} == {24 * 66048})


class FakeEvent:
    """Stands for a CUDA event, which the device reaches when it is let."""

    is_reached = False

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self, stream):
        self.at = time.perf_counter()

    def query(self):
        return FakeEvent.is_reached

    def elapsed_time(self, later):
        return 1e3 * (later.at - self.at)


def on_a_device(rank, say):
    """Record buckets by events that stand for a GPU's."""
    model = DistributedDataParallel(deep(), bucket_cap_mb=0.25)
    faked = ("torch.cuda.synchronize", "torch.cuda.current_stream")
    with mock.patch("torch.cuda.Event", FakeEvent), mock.patch(faked[0]), mock.patch(faked[1]):
        recorder = record_buckets(model)
        recorder.clock = DeviceClock(torch.device("cuda"))
        recorder.clock.start()
        began = time.perf_counter()
        train(model, batch(rank, 0, 4, 128), 2)
        train(model, batch(rank, 0, 4, 128), 1)
        say("early", [len(recorder.take_reports()), recorder.is_settled])
        FakeEvent.is_reached = True
        reports = recorder.take_reports()
        ended = time.perf_counter()
    say("late", [len(report.groups) for report in reports])
    times = [each for report in reports for each in report.groups]
    say("times", all(0 <= each.ready <= each.start <= each.end < ended - began for each in times))
    say("clock", all(began <= report.began <= ended for report in reports))


def record(rank, say):
    """Record a run of each kind, with a log and a timeline."""
    inputs = batch(rank, 0, 8, 128)
    for name in ("ddp", "ours"):
        torch.manual_seed(0)
        if name == "ddp":
            model, steps = DistributedDataParallel(deep(), bucket_cap_mb=0.5), 18
        else:
            model, steps = MergedGradientParallel(deep(), schedule="wfbp", calibration_iterations=4), 18
        updates = torch.optim.SGD(model.parameters(), 0.01)
        path = FOLDER / f"{name}.json"
        with RunRecorder(
            model, path, timeline=FOLDER / f"{name}.timeline.json", optimizer=updates, iterations=20
        ) as run:
            for step in range(steps):
                updates.zero_grad()
                loss = model(inputs).square().mean()
                loss.backward()
                updates.step()
                run.iteration_done(loss if step else None)
        hooks = [len(each._post_accumulate_grad_hooks or ()) for each in model.parameters()]
        say(name, max(hooks))


def errors(rank, say):
    """Say what wrong inputs lead to."""
    model = DistributedDataParallel(deep())
    record_buckets(model)
    half = nn.Sequential(nn.Linear(128, 128), nn.Linear(128, 2))
    lacking, ignoring = DistributedDataParallel(half), DistributedDataParallel(deep())
    ignoring.parameters_to_ignore = {name for name, _ in ignoring.module.named_parameters()}
    cases = {
        "module": lambda: advise(deep(), batch(0, 0, 4, 128)),
        "alone": lambda: advise(DistributedDataParallel(deep(), process_group=own), batch(0, 0, 4, 128)),
        "batch": lambda: advise(model, batch(0, 0, 4, 128 if rank == 0 else 5)),
        "kind": lambda: advise(model, "text"),
        "lacking": lambda: advise(lacking, batch(0, 0, 4, 128), loss=lambda _: half[0].weight.sum()),
        "module on one": lambda: advise((model, deep())[rank], batch(0, 0, 4, 128)),
        "kind on one": lambda: advise(model, (batch(0, 0, 4, 128), "text")[rank]),
        "ignored on one": lambda: advise((model, ignoring)[rank], batch(0, 0, 4, 128)),
        "passes on one": lambda: advise(model, batch(0, 0, 4, 128), passes=(16, 1)[rank]),
        "other passes": lambda: advise(model, batch(0, 0, 4, 128), passes=(16, 8)[rank]),
        "passes": lambda: advise(model, batch(0, 0, 4, 128), passes=1),
        "trials": lambda: advise(model, batch(0, 0, 4, 128), trials=2, emulate_link=LINK),
        "hook": lambda: record_buckets(model),
        "buckets": lambda: record_buckets(deep()),
        "recorder": lambda: RunRecorder(deep(), FOLDER / "none.json"),
        "iterations": lambda: RunRecorder(model, FOLDER / "none.json", timeline_iterations=(8, 8)),
    }
    own = [dist.new_group([each]) for each in range(2)][rank]
    for name, call in cases.items():
        try:
            call()
            say(name, "no error")
        except (UsageError, RankDisagreement) as error:
            say(name, str(error))


SCENARIOS = {
    each.__name__: each
    for each in (give_advice, compare_sizes, try_buckets, real_buckets, same_bits, on_a_device, record, errors)
}


def all_of_them(rank, say):
    for name, run in SCENARIOS.items():
        said = {}
        try:
            run(rank, said.__setitem__)
        finally:
            say(name, said)


if __name__ == "__main__":
    ddp_ranks.SCENARIOS["recorded"] = lambda rank, size, say: all_of_them(rank, say)
    ddp_ranks.SIZES["recorded"] = 2
    print(json.dumps(ddp_ranks.run_scenarios(["recorded"], FOLDER)["recorded"]))
