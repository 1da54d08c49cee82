"""Trains small nets on the ranks of an mpirun, or alone; run by test_training.py.

python -m tests.support.programs.train FOLDER GLOBAL_BATCH

writes FOLDER/<size>-<rank>.json: {case: {"losses": [], "weights": hash}}
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import torch

from mgcaffe.comm import NoSynchronizer, connect
from mgcaffe.errors import RankDisagreement
from mgcaffe.solvers.events import PlanChosen
from tests.support.solverkit import CLASSIFIER, Recorder, data_layer, make_solver

ITERATIONS = 50
FIELDS = "momentum: 0.9 weight_decay: 0.01 max_iter: 100"
SCHEDULES = ("single", "wfbp", "threshold", "mgwfbp", "optimal", "auto")


def cases(ranks: int):
    """(name, data folder, number type, schedule) of the trainings that are compared at this number of ranks."""
    if ranks <= 2:  # two ranks and one
        for data in ("plain", "ignored"):
            for dtype in ("float32", "float64"):
                yield f"{data} {dtype}", data, getattr(torch, dtype), "optimal"
    if ranks >= 2:
        for schedule in (*SCHEDULES, "foreground"):
            yield schedule, "plain", torch.float32, schedule


class InTheForeground(NoSynchronizer):
    """No second thread: one all-reduce, called where the gradients are waited for."""

    def __init__(self, communicator, flat) -> None:
        super().__init__()
        self._communicator, self._flat = communicator, flat

    def wait(self, on_group=None):
        self._communicator.allreduce(self._flat)
        self._flat /= self._communicator.size
        return super().wait(on_group)


# (name, schedule, fields of comm_param) of trainings that overlap or round more, or go another way.
OTHERS = (
    ("gloo wfbp", "wfbp", "transport: GLOO"),
    ("overlap wfbp", "wfbp", "overlap_forward: true"),
    ("overlap auto", "auto", "overlap_forward: true"),
    ("bfloat16 single", "single", "allreduce_type: BFLOAT16"),
    ("bfloat16 wfbp", "wfbp", "allreduce_type: BFLOAT16"),
    ("float16 optimal", "optimal", "allreduce_type: FLOAT16 overlap_forward: true"),
    ("float16 single", "single", "allreduce_type: FLOAT16"),
)


def train(communicator, folder: Path, batch: int, dtype: torch.dtype, schedule: str, comm: str = "") -> dict:
    recorder = Recorder()
    net = data_layer(folder / "data.txt", batch // communicator.size) + CLASSIFIER
    with make_solver(
        net,
        f"{FIELDS} comm_param {{ {comm} }}",
        folder,
        recorder=recorder,
        communicator=communicator,
        dtype=dtype,
        schedule=None if schedule == "foreground" else schedule,
    ) as solver:
        if schedule == "foreground":
            solver._averaging.close()
            foreground = InTheForeground(communicator, solver.net.arena.diff)
            foreground.start(solver.net.arena.diff, solver._averaging._segments)
            solver._averaging._synchronizer, solver._averaging._tuner = foreground, None
        solver.step(ITERATIONS)
        digest = hashlib.sha256(solver.net.arena.data.numpy().tobytes()).hexdigest()
        losses, values = list(recorder.losses), solver.net.arena.data.tolist()
        while schedule == "auto" and solver.is_planning:  # no longer: once it is found, drift may begin a search anew
            solver.step(1)
    return {
        "losses": losses,
        "weights": digest,
        "values": values,
        "plans": [event.plan.schedule for event in recorder.of(PlanChosen)],
    }


def disagreement(communicator, folder: Path, batch: int) -> str:
    """What the ranks print when rank 1 has another net."""
    net = data_layer(folder / "data.txt", batch) + CLASSIFIER
    if communicator.rank == 1:
        net = net.replace("num_output: 6", "num_output: 7")
    try:
        make_solver(net, FIELDS, folder, communicator=communicator)
    except RankDisagreement as error:
        return str(error)
    return "no error"


def main() -> None:
    """Trains all cases."""
    torch.set_num_threads(1)
    folder, batch = Path(sys.argv[1]), int(sys.argv[2])
    communicator = connect()
    results = {
        name: train(communicator, folder / data, batch, dtype, schedule)
        for name, data, dtype, schedule in cases(communicator.size)
    }
    for name, schedule, comm in OTHERS if communicator.size > 1 else ():
        if communicator.size == 2 or "overlap" not in name:
            results[name] = train(communicator, folder / "plain", batch, torch.float32, schedule, comm)
    if communicator.size == 2:
        results["disagreement"] = disagreement(communicator, folder / "plain", batch)
    (folder / f"{communicator.size}-{communicator.rank}.json").write_text(json.dumps(results))


main()
