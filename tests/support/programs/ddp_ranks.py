"""Runs scenarios on ranks of torch.distributed, each a process, and prints how each ended as JSON.

    python -m tests.support.programs.ddp_ranks FOLDER SCENARIO...

PyTorch is imported once, with what it loads when first used: ranks are forked. `checks` runs all of `ddp_checks.py`,
the others end with an error.
"""

import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

import torch
import torch._dynamo
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mgcaffe.pytorch import MergedGradientParallel
from tests.support.ddp_checks import CHECKS
from tests.support.ddp_models import batch

LIMIT_S = 120
FAILING_STEP = 3


def values_of(model):
    """Return all parameters, buffers and gradients as bytes."""
    parameters = list(model.module.parameters())
    values = [*parameters, *model.module.buffers(), *(each.grad for each in parameters)]
    return [None if each is None else bytes(each.detach().reshape(-1).view(torch.uint8).tolist()) for each in values]


def checks(rank, say):
    for name, run in CHECKS.items():
        results = []
        for wrapper in (DistributedDataParallel, MergedGradientParallel):
            torch.manual_seed(rank)  # rank 0's parameters are taken over
            try:
                model = run(rank, lambda module, wrapper=wrapper, **keywords: wrapper(module, **keywords))
            except Exception:
                say(name, f"{wrapper.__name__}: {traceback.format_exc()}")
                raise
            results.append(values_of(model))
            assert all(
                torch.isfinite(each.float() if each.is_floating_point() else each.abs()).all()
                for each in model.parameters()
            ), name
        say(name, "equal" if results[0] == results[1] else "different")


class Fails(torch.autograd.Function):
    """Does in its backward pass what it is given."""

    @staticmethod
    def forward(ctx, x, action):
        ctx.action = action
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.action()
        return gradient, None


class Failing(nn.Module):
    def __init__(self, how, rank):
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6 if how != "other_shape" or rank == 0 else 7)
        self.rest = nn.Linear(6, 6)
        self.how, self.rank, self.step = how, rank, 0

    def act(self, where):
        if self.rank == 1 and self.step == FAILING_STEP and where == self.how:
            raise ValueError(f"rank 1 fails in {where}")
        if self.rank == 1 and self.step == FAILING_STEP and where == "backward" and self.how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)

    def forward(self, x):
        self.act("forward")
        result = self.b(Fails.apply(self.a(x), lambda: self.act("backward")))
        lacks = self.step == FAILING_STEP and (self.how == "lacking" or (self.how == "one_lacks" and self.rank == 1))
        return result if lacks else self.rest(result) if self.how != "other_shape" else result


def failing(how):
    def run(rank, say):
        model = MergedGradientParallel(Failing(how, rank), schedule="wfbp")
        for step in range(6):
            model.module.step = step
            if how == "converted" and step == FAILING_STEP:
                model.module.double()
            model.zero_grad()
            model(batch(rank, step, 4, 6)).sum().backward()

    return run


HOW = ("forward", "backward", "killed", "lacking", "one_lacks", "other_shape", "converted")
SCENARIOS = {"checks": checks} | {how: failing(how) for how in HOW}


def be_rank(rank, size, name, folder):
    """Run a scenario as a rank; never returns."""
    torch.set_num_threads(1)
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    said, code = {}, 0
    for descriptor, kind in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / f"{name}.{rank}.{kind}", os.O_WRONLY | os.O_CREAT), descriptor)
    try:
        dist.init_process_group("gloo", init_method=f"file://{folder}/{name}.store", rank=rank, world_size=size)
        SCENARIOS[name](rank, said.__setitem__)
        dist.barrier()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    (folder / f"{name}.{rank}.json").write_text(json.dumps(said))
    sys.stderr.flush()
    os._exit(code)


def run_scenario(name, folder, size=2):
    ranks = []
    for rank in range(size):
        process = os.fork()
        if not process:
            be_rank(rank, size, name, folder)
        ranks.append(process)
    codes, ended = [0] * size, [0.0] * size
    for _ in ranks:
        process, status = os.wait()
        codes[ranks.index(process)] = os.waitstatus_to_exitcode(status)
        ended[ranks.index(process)] = time.monotonic()
    said = [folder / f"{name}.{rank}.json" for rank in range(size)]
    return {
        "codes": codes,
        "apart": max(ended) - min(ended),
        "said": [json.loads(path.read_text()) if path.exists() else {} for path in said],
        "errors": [(folder / f"{name}.{rank}.err").read_text() for rank in range(size)],
    }


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    print(json.dumps({name: run_scenario(name, folder) for name in sys.argv[2:] or SCENARIOS}))
