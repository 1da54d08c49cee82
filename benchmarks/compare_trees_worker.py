"""What compare_trees.py starts on each rank: all trainings of one tree, one after the other, in one process.

    [mpirun -n 2] python compare_trees_worker.py '{"packages": ..., "output": ..., "iterations": 50, ...}'

Writes a caffemodel for each training and report.json into `output`. It uses only what every tree has: `connect`,
`parse_solver` and `Solver`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

# Rates with which each type learns the digits within 50 iterations.
SOLVERS = {
    "SGD": "base_lr: 0.03 momentum: 0.9",
    "Nesterov": "base_lr: 0.03 momentum: 0.9",
    "AdaGrad": "base_lr: 0.02",
    "RMSProp": "base_lr: 0.002 rms_decay: 0.9",
    "AdaDelta": "base_lr: 1 momentum: 0.95 delta: 1e-6",
    "Adam": "base_lr: 0.003 momentum: 0.9 momentum2: 0.999",
}
# Few enough that `auto` tries plans for most of the iterations.
CALIBRATION_ITERATIONS = 5


class Recorder:
    """A listener that keeps the losses and the plans."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.plans: list[str] = []

    def on_event(self, event: Any) -> None:
        """Keep what the report says."""
        if type(event).__name__ == "IterationDone":
            self.losses.append(event.loss)
        elif type(event).__name__ == "PlanChosen":
            self.plans.append(f"{event.plan.schedule} in {len(event.plan.groups)} group(s)")


def solver_text(solver: str, schedule: str, iterations: int, output: Path) -> str:
    """Return the solver's prototxt."""
    return (
        f'net: "examples/digits/train_test.prototxt" type: "{solver}" {SOLVERS[solver]} weight_decay: 0.003\n'
        f'lr_policy: "poly" power: 1 max_iter: {iterations} random_seed: 1 solver_mode: CPU\n'
        f'snapshot_prefix: "{output / f"{solver}-{schedule}"}" snapshot_after_train: false\n'
        f"comm_param {{ calibration_iterations: {CALIBRATION_ITERATIONS} }}\n"
    )


def main() -> None:
    """Train all."""
    job = json.loads(sys.argv[1])
    import torch

    import mgcaffe.solvers
    from mgcaffe.comm import connect
    from mgcaffe.prototxt import parse_solver
    from mgcaffe.solvers import Solver

    assert mgcaffe.solvers.__file__.startswith(job["packages"]), f"not the tree's own: {mgcaffe.solvers.__file__}"
    torch.set_num_threads(1)
    communicator = connect()
    output, report = Path(job["output"]), {}
    for name in job["solvers"]:
        for schedule in job["schedules"]:
            recorder = Recorder()
            param = parse_solver(solver_text(name, schedule, job["iterations"], output)).param
            with Solver(param, communicator=communicator, listeners=[recorder], schedule=schedule) as solver:
                solver.step(job["iterations"])
                if solver.is_planning:
                    recorder.plans.append("still trying")
                solver.snapshot()
            losses = recorder.losses
            report[f"{name}-{schedule}"] = {"losses": [losses[0], losses[-1]], "plans": recorder.plans}
    if communicator.rank == 0:
        (output / "report.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main()
