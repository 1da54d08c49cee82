"""Runs scenarios on ranks of torch.distributed, each a process, and prints how each ended as JSON.

    python -m tests.support.programs.ddp_ranks FOLDER SCENARIO...

PyTorch is imported once, with what it loads when first used: ranks are forked. `checks` runs all of `ddp_checks.py`,
those called `test_...` a function of `ddp_behaviour.py` each, and the others end with an error.
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
from torch.nn.parallel import DistributedDataParallel

from mgcaffe.comm.transport.gloo_group import forget_groups
from mgcaffe.errors import UsageError
from mgcaffe.pytorch import MergedGradientParallel
from tests.support import (  # noqa: F401
    ddp_behaviour,
    ddp_behaviour_checkpointing,
    ddp_behaviour_outputs,
    ddp_behaviour_state,
)
from tests.support.ddp_checks import CHECKS
from tests.support.ddp_kit import BEHAVIOUR, RANKS
from tests.support.ddp_models import batch
from tests.support.failing_module import FAILING_STEP, Failing, failing_rank

LIMIT_S = 120


def values_of(model):
    """Return all parameters, buffers and gradients as bytes."""
    parameters = list(model.module.parameters())
    values = [*parameters, *model.module.buffers(), *(each.grad for each in parameters)]
    return [None if each is None else bytes(each.detach().reshape(-1).view(torch.uint8).tolist()) for each in values]


def checks(rank, size, say):
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


def failing(how):
    def run(rank, size, say):
        timeout = {} if "caught" in how else {"peer_timeout": 4}
        module = Failing(how, rank, size)
        on_group = (lambda _: module.act("on_group")) if "on_group" in how else None
        model = MergedGradientParallel(module, schedule="wfbp", on_group=on_group, **timeout)
        module.say = say
        for step in range(6):
            module.step = step
            if "leaves" in how and module.fails and step == FAILING_STEP:
                say("at", time.monotonic())
                return forget_groups()  # as the end of the process does, which may take a while
            if "converted" in how and step == FAILING_STEP and (module.fails or "caught" not in how):
                module.double()
            if "replaced" in how and step == FAILING_STEP and module.fails:
                module.load_state_dict({name: each.clone() for name, each in module.state_dict().items()}, assign=True)
            model.zero_grad()
            try:
                model(batch(rank, step, 4, 6)).sum().backward()
            except (ValueError, UsageError):
                if "caught" not in how:
                    raise
                if "retried" not in how:
                    time.sleep(LIMIT_S)
                module.step = 0
                model(batch(rank, step, 4, 6)).sum().backward()

    return run


# How many ranks take part in what.
SIZES = {
    "forward": 2,
    "backward": 2,
    "killed in backward": 2,
    "killed in forward of three": 3,
    "stopped in forward": 2,
    "rank 0 stopped in backward of three": 3,
    "caught in forward": 2,
    "caught in backward of three": 3,
    "caught in on_group": 2,
    "caught, converted": 2,
    "caught, replaced": 2,
    "caught in forward, retried": 2,
    "slow in backward": 2,
    "lacking": 2,
    "one_lacks": 2,
    "other_shape": 2,
    "converted": 2,
    "leaves": 2,
    "checks": 2,
}
SCENARIOS = {how: failing(how) for how in SIZES} | {"checks": checks}
AT_ONCE = 3


def behaving(run):
    def scenario(rank, size, say):
        run(rank)
        say("result", "passes")

    return scenario


SIZES |= dict.fromkeys(BEHAVIOUR, RANKS)
SCENARIOS |= {name: behaving(run) for name, run in BEHAVIOUR.items()}


def be_rank(rank, size, name, folder):
    """Run a scenario as a rank; never returns."""
    torch.set_num_threads(1)
    if name == "checks":
        os.nice(10)  # it computes while the others, of which some are timed, wait
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    said = {}

    def say(key, value):
        said[key] = value
        (folder / f"{name}.{rank}.json").write_text(json.dumps(said))

    for descriptor, kind in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / f"{name}.{rank}.{kind}", os.O_WRONLY | os.O_CREAT), descriptor)
    try:
        dist.init_process_group("gloo", init_method=f"file://{folder}/{name}.store", rank=rank, world_size=size)
        SCENARIOS[name](rank, size, say)
        if name != "leaves":
            dist.barrier()
    except BaseException:
        say("failed", time.monotonic())
        sys.excepthook(*sys.exc_info())
        leave(1, name)
    leave(0, name)


def leave(code, name):
    """End as a script does where calls of gloo are left behind or the rank says that it leaves, else at once."""
    if "stopped" in name or "leaves" in name:
        sys.exit(code)
    sys.stderr.flush()
    os._exit(code)


class Scenario:
    """One that runs: each of its ranks is a process."""

    def __init__(self, name, folder):
        self.name, self.folder, self.size = name, folder, SIZES[name]
        self.codes = [None] * self.size
        self.ranks = []
        for rank in range(self.size):
            process = os.fork()
            if not process:
                be_rank(rank, self.size, name, folder)
            self.ranks.append(process)

    def end(self, process, status):
        """Take the end of one; the failing rank, which may never end, is killed when all others have failed."""
        rank, failing = self.ranks.index(process), failing_rank(self.name, self.size)
        self.codes[rank] = os.waitstatus_to_exitcode(status)
        others = [code for rank, code in enumerate(self.codes) if rank != failing]
        if self.codes[failing] is None and all(others) and ("caught" in self.name or "stopped" in self.name):
            os.kill(self.ranks[failing], signal.SIGKILL)

    def outcome(self):
        paths = [self.folder / f"{self.name}.{rank}.json" for rank in range(self.size)]
        said = [json.loads(path.read_text()) if path.exists() else {} for path in paths]
        began = said[failing_rank(self.name, self.size)].get("at")
        return {
            "codes": self.codes,
            "till_error": [each["failed"] - began if began is not None and "failed" in each else None for each in said],
            "said": said,
            "errors": [(self.folder / f"{self.name}.{rank}.err").read_text() for rank in range(self.size)],
        }


def run_scenarios(names, folder):
    """Run scenarios side by side, and return their outcomes."""
    running = [Scenario(name, folder) for name in names]
    for _ in range(sum(each.size for each in running)):
        process, status = os.wait()
        next(each for each in running if process in each.ranks).end(process, status)
    return {each.name: each.outcome() for each in running}


if __name__ == "__main__":
    # Those that compute for long first, a few at once; the others, of which most wait, side by side.
    wanted = sys.argv[2:] or list(SCENARIOS)
    computing = [name for name in wanted if name in BEHAVIOUR]
    found = {}
    for first in range(0, len(computing), AT_ONCE):
        found |= run_scenarios(computing[first : first + AT_ONCE], Path(sys.argv[1]))
    found |= run_scenarios([name for name in wanted if name not in computing], Path(sys.argv[1]))
    print(json.dumps(found))
