"""PyTorch's tests of DistributedDataParallel, as far as ours are to pass them: two ranks of gloo each."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence

from tests.soak import Row
from tests.support import torch_ddp_tests
from tests.support.jobs import RunningJob
from tests.support.paths import ROOT

NAME = "ddp-tests"
SAMPLE = ("test_ddp_checkpointing_unused_params", "test_failure_recovery", "test_ddp_grad_div_uneven_inputs")
"""What `make test` runs."""
MAX_S = 600.0


def run(full: bool) -> list[Row]:
    """Return one row."""
    began = time.monotonic()
    names = torch_ddp_tests.needed() if full else SAMPLE
    failures = failed(names)
    note = f"they stand for {_stood_for()} of PyTorch's, in part" if full else ""
    row = Row("PyTorch's tests of DDP", len(names), [f"{name}: {text}" for name, text in failures.items()], note)
    row.seconds = time.monotonic() - began
    return [row]


def _stood_for() -> int:
    return torch_ddp_tests.count(torch_ddp_tests.RUNS) + torch_ddp_tests.count(torch_ddp_tests.PART)


def failed(names: Sequence[str]) -> dict[str, str]:
    """Return why tests failed, by name; those whose names do not begin with `test_` are among `ddp_checks.py`'s."""
    own = [name for name in names if name.startswith("test_")]
    checks = [name for name in names if name not in own]
    with tempfile.TemporaryDirectory() as folder:
        scenarios = [*own, "checks"] if checks else own
        command = [sys.executable, "-m", "tests.support.programs.ddp_ranks", folder, *scenarios]
        with RunningJob(command, cwd=ROOT) as job:
            result = job.end(MAX_S)
    if result.code != 0:
        return dict.fromkeys(names, result.describe())
    outcomes = json.loads(result.stdout)
    found = {}
    for name in names:
        outcome = outcomes[name if name in own else "checks"]
        expected = ("result", "passes") if name in own else (name, "equal")
        if any(outcome["codes"]) or any(said.get(expected[0]) != expected[1] for said in outcome["said"]):
            found[name] = " | ".join(text.strip().split("\n")[-1] for text in outcome["errors"])
    return found
