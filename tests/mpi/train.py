"""Trains small nets on the ranks of an mpirun, or alone; run by test_training.py.

train.py FOLDER GLOBAL_BATCH    writes FOLDER/<size>-<rank>.json: {case: {"losses": [], "weights": hash}}
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "solvers"))

from solverkit import CLASSIFIER, Recorder, data_layer, make_solver

from mgcaffe.comm import connect
from mgcaffe.errors import RankDisagreement

ITERATIONS = 50
FIELDS = "momentum: 0.9 weight_decay: 0.01 max_iter: 100"
SCHEDULES = ("single", "wfbp", "mgwfbp", "optimal")


def cases():
    """(name, data folder, number type, schedule) of all trainings."""
    for data in ("plain", "ignored"):
        for dtype in ("float32", "float64"):
            yield f"{data} {dtype}", data, getattr(torch, dtype), "optimal"
    for schedule in SCHEDULES:
        yield schedule, "plain", torch.float32, schedule


def train(communicator, folder: Path, batch: int, dtype: torch.dtype, schedule: str) -> dict:
    recorder = Recorder()
    net = data_layer(folder / "data.txt", batch // communicator.size) + CLASSIFIER
    with make_solver(
        net, FIELDS, folder, recorder=recorder, communicator=communicator, dtype=dtype, schedule=schedule
    ) as solver:
        solver.step(ITERATIONS)
        digest = hashlib.sha256(solver.net.arena.data.numpy().tobytes()).hexdigest()
    return {"losses": recorder.losses, "weights": digest}


def disagreement(communicator, folder: Path, batch: int) -> str:
    """What the ranks are told when rank 1 has another net."""
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
        name: train(communicator, folder / data, batch, dtype, schedule) for name, data, dtype, schedule in cases()
    }
    results["disagreement"] = disagreement(communicator, folder / "plain", batch)
    (folder / f"{communicator.size}-{communicator.rank}.json").write_text(json.dumps(results))


main()
