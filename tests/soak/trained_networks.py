"""Weights of MergedGradientParallel and of DistributedDataParallel after 50 steps: the networks of examples/pytorch.

Two ranks of gloo: equal to the bit, as a sum of two has one order. On four ranks the order of a sum depends on its
place in the message, so weights are equal to rounding. In float32 that can be seen with neither class: a gradient that
differs in its last bit moves a ReLU or a maximum over its threshold, and AdamW, which divides a gradient by its own
size, makes as much of a small one as of a large one. So weights are compared in float64, and in float32 our distance
from DDP with that of DDP from itself with buckets of another size, over several seeds.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Sequence
from itertools import product
from typing import Any

from tests.soak import Row
from tests.support.jobs import RunningJob
from tests.support.paths import ROOT

NAME = "pytorch"
STEPS = 50
NETWORKS = ("digits", "gpt", "resnet18", "mobilenet_v2", "lstm", "deep_mlp")
OPTIMIZERS = ("SGD", "AdamW")
WAYS = ("plain", "accumulated", "unused", "uneven")
NORMALIZED, FEW_STEPS = ("resnet18", "mobilenet_v2"), 3
"""Networks whose BatchNorm sees a few values on each rank, so that a difference grows by the step: after 50 steps in
float64 the weights of MobileNetV2 have nothing in common with those of DDP with other buckets."""
SEEDED, SEEDS = ("digits", "gpt"), 8
ROUNDING = 1e-9
"""How far weights may be apart in float64, relative to the largest one of their tensor (or to 0.01), where DDP with
other buckets is as near."""
WORSE = 10.0
"""How many times as far from DDP as DDP from itself; in float32 by the medians over seeds, as a threshold is crossed
with one seed and not with another."""
_LIMIT_S = 900.0


def run(full: bool) -> list[Row]:
    """Train all networks in all ways, or a small one for some steps."""
    if not full:
        return [_two_ranks([f"digits:{OPTIMIZERS[i % 2]}:{way}:0" for i, way in enumerate(WAYS)], 6)]
    return [
        _two_ranks([":".join((*case, "0")) for case in product(NETWORKS, OPTIMIZERS, WAYS)], STEPS),
        _four_ranks(
            [":".join((*case, "0")) for case in product(NETWORKS, OPTIMIZERS, WAYS) if case[0] not in NORMALIZED], STEPS
        ),
        _four_ranks([":".join((*case, "plain", "0")) for case in product(NORMALIZED, OPTIMIZERS)], FEW_STEPS),
        *(_four_ranks_in_float32(optimizer) for optimizer in OPTIMIZERS),
    ]


def _two_ranks(cases: Sequence[str], steps: int) -> Row:
    row = Row(
        "two ranks: weights, buffers and gradients equal DDP's to the bit", len(cases), note=f"{steps} steps each"
    )
    for said in _train(row, 2, "float32", steps, cases):
        if said["differing"]:
            row.failures.append(f"{said['case']}: {', '.join(said['differing'][:5])}")
    return row


def _four_ranks(cases: Sequence[str], steps: int) -> Row:
    row = Row(f"four ranks, float64, {steps} steps: weights equal DDP's to rounding", len(cases))
    found = _train(row, 4, "float64", steps, cases)
    for said in found:
        if not said["ours"][0] <= max(ROUNDING, WORSE * said["ddp"][0]):
            row.failures.append(f"{said['case']}: ours {said['ours']}, DDP with other buckets {said['ddp']}")
    row.note = f"ours {_largest(found, 'ours')}; DDP with other buckets {_largest(found, 'ddp')}"
    return row


def _four_ranks_in_float32(optimizer: str) -> Row:
    cases = [f"{name}:{optimizer}:plain:{seed}" for seed in range(SEEDS) for name in SEEDED]
    row = Row(f"four ranks, float32, {optimizer}: as far from DDP as DDP with other buckets", len(cases))
    found = _train(row, 4, "float32", STEPS, cases)
    row.note = f"ours {_largest(found, 'ours')}; DDP with other buckets {_largest(found, 'ddp')}"
    medians = []
    for name in SEEDED:
        of_network = [said for said in found if said["case"].startswith(f"{name}:")]
        if not of_network:
            continue  # the job failed, which has been noted
        own, other = (statistics.median(said[who][0] for said in of_network) for who in ("ours", "ddp"))
        medians.append(f"{name} {own:.0e} and {other:.0e}")
        if not own <= WORSE * other:
            row.failures.append(f"{name}, medians: ours {own:.1e}, DDP with other buckets {other:.1e}")
    row.note += f"; medians of ours and DDP's: {', '.join(medians)}"
    return row


def _largest(found: Sequence[dict[str, Any]], who: str) -> str:
    """Return the largest difference and whose it is."""
    worst = max(found, key=lambda said: said[who][0], default=None)
    return f"{worst[who][0]:.0e} ({worst['case']}, {worst[who][1]})" if worst else "unknown"


def _train(row: Row, size: int, kind: str, steps: int, cases: Sequence[str]) -> list[dict[str, Any]]:
    """Return what the ranks said of each case, a job for each network."""
    began = time.monotonic()
    found = []
    for name in dict.fromkeys(case.split(":")[0] for case in cases):
        wanted = [case for case in cases if case.startswith(f"{name}:")]
        module = "tests.support.programs.trained_alike"
        command = [sys.executable, "-m", module, str(size), kind, str(steps), *wanted]
        with RunningJob(command, environment={"PYTHONPATH": str(ROOT / "examples/pytorch")}, cwd=ROOT) as job:
            result = job.end(_LIMIT_S)
        said = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
        if result.code != 0 or [each["case"] for each in said] != wanted:
            row.failures.append(f"{name} on {size} ranks: {result.describe()[-400:]}")
        found += said
    row.seconds = time.monotonic() - began
    return found
