"""`engine train` under torchrun, without MPI: the bits of mpirun, all roles, stops, kills, and ranks that differ.

torchrun ends with 1 whenever a rank's exit code is not 0; the ranks' own are in the table that it prints.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import psutil

from mgcaffe.engine.weights.files import read_weights
from mgcaffe.prototxt import print_text, read_net
from tests.soak import Row, count
from tests.soak.killed_trainers import _DENSE, _TABLE
from tests.support.jobs import RunningJob
from tests.support.mpirun import run_mpi
from tests.support.paths import ROOT

NAME = "torchrun"
MAX_S = 150.0
MAX_END_S = 10.0
"""For so long after a kill the job may go on."""

_ENGINE = ("-m", "mgcaffe.tools.main", "train", "solver.prototxt")
_SOLVER = """
net: "net.prototxt" base_lr: 0.0001 lr_policy: "fixed" max_iter: 10000000 snapshot: 20 snapshot_keep: 3
snapshot_prefix: "net" random_seed: 7 solver_mode: CPU
"""
_BATCH_NORM = """
layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 8 dim: 3 dim: 12 dim: 12 } shape { dim: 8 } data_filler { type: "gaussian" } data_filler { value: 1 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 8 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "norm" type: "BatchNorm" bottom: "conv" top: "conv" }
layer { name: "scale" type: "Scale" bottom: "conv" top: "conv" scale_param { bias_term: true } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
  inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
_BOTH_SERVERS = ["--sync=shadow_easgd", "--sync_servers=1", "--embedding_servers=1"]
# What is killed: its name, its rank, how many there are, the flags, what the message calls it.
_KILLS = [
    ("one of two ranks in step", 1, 2, [], ""),
    ("rank 0 of three in step", 0, 3, [], ""),
    ("an embedding server", 2, 3, ["--sync=shadow_ma", "--embedding_servers=1"], ", embedding server,"),
    ("trainer 1 of an embedding server", 1, 3, ["--sync=shadow_ma", "--embedding_servers=1"], ", trainer,"),
    ("a synchronization server", 3, 4, _BOTH_SERVERS, ", synchronization server,"),
    ("trainer 0 of both servers", 0, 4, _BOTH_SERVERS, ", trainer,"),
    ("trainer 1 that holds tables", 1, 2, ["--sync=shadow_ma"], ""),
]


def run(full: bool) -> list[Row]:
    """All of it, or the kill of an embedding server; the suite has `tests/mpi/test_torchrun.py` in its place."""
    kills = [(case[0], partial(_in_folder, _kill, *case[1:])) for case in (_KILLS if full else _KILLS[2:3])]
    rows = [count("torchrun: a killed rank is named, the others end with 69, within 10 s", kills)]
    if not full:
        return rows
    nets = {"LeNet": _lenet, "BatchNorm": _batch_norm, "dlrm_small, one embedding server": _dlrm}
    same = [(name, partial(_in_folder, _compare, write)) for name, write in nets.items()]
    rows.append(count("two ranks under torchrun get the bits of mpirun", same))
    stops: list[tuple[str, Callable[[], str | None]]] = [
        (f"{what} with {' '.join(flags) or 'two ranks in step'}", partial(_in_folder, _stop, what, ranks, flags))
        for what in ("SIGINT", "SIGTERM", "stop file", "SIGTERM to the last rank")
        for ranks, flags in ((2, []), (4, _BOTH_SERVERS))
    ]
    rows.append(count("torchrun: a stop ends all ranks with 75, and a snapshot goes on", stops))
    rows.append(count("torchrun: ranks with different nets end with 76", [("two ranks", partial(_in_folder, _differ))]))
    return rows


def _in_folder(work: Callable[..., str | None], *arguments: object) -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        return work(Path(folder), *arguments)


def _torchrun(ranks: int, *words: str) -> list[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    return [*command, "--no-python", *words]


def _train(folder: Path, ranks: int, *flags: str) -> RunningJob:
    return RunningJob(_torchrun(ranks, sys.executable, *_ENGINE, *flags), cwd=folder)


def _codes(output: str) -> list[int]:
    """Return the ranks' exit codes in torchrun's table, the first failure last."""
    return [int(code) for code in re.findall(r"exitcode\s*: (-?\d+)", output)]


# -- the same bits ---------------------------------------------------------------------------------------


def _lenet(folder: Path) -> list[str]:
    net = read_net(ROOT / "models" / "lenet" / "train_val.prototxt")
    for layer in net.layer[:2]:
        layer.type = "DummyData"
        layer.ClearField("data_param")
        layer.ClearField("transform_param")
        for dimensions in ((16, 1, 28, 28), (16,)):
            layer.dummy_data_param.shape.add().dim.extend(dimensions)
        layer.dummy_data_param.data_filler.add(type="gaussian")
        layer.dummy_data_param.data_filler.add(value=1)
    (folder / "net.prototxt").write_text(print_text(net))
    return []


def _batch_norm(folder: Path) -> list[str]:
    (folder / "net.prototxt").write_text(_BATCH_NORM)
    return []


def _dlrm(folder: Path) -> list[str]:
    generate = [sys.executable, ROOT / "examples" / "ctr" / "generate.py", folder, "--rows=5000", "--test_rows=1000"]
    subprocess.run(generate, check=True, capture_output=True)
    net = (ROOT / "models" / "dlrm_small" / "train_val.prototxt").read_text()
    (folder / "net.prototxt").write_text(net.replace("build/ctr/", f"{folder}/"))
    return ["--embedding_servers=1", "--lookahead=0"]


def _compare(folder: Path, write: Callable[[Path], list[str]]) -> str | None:
    flags = [*write(folder), "--schedule=wfbp", "--deterministic", "--max_iter=40"]
    has_servers = any(flag.startswith("--embedding_servers") for flag in flags)
    (folder / "solver.prototxt").write_text(_SOLVER + ("" if has_servers else "momentum: 0.9"))
    by_mpi = run_mpi([*_ENGINE, *flags], n=2, timeout=MAX_S, cwd=folder)
    if by_mpi.returncode:
        return by_mpi.describe()
    expected = _weights(folder)
    for path in folder.glob("net_iter_*"):
        path.unlink()
    with _train(folder, 2, *flags) as job:
        result = job.end(MAX_S)
    if result.code:
        return result.describe()
    found = _weights(folder)
    if not expected or found.keys() != expected.keys():
        return f"layers {sorted(found)} in place of {sorted(expected)}"
    return next((f"layer {name} differs" for name, values in found.items() if values != expected[name]), None)


def _weights(folder: Path) -> dict[str, list[bytes]]:
    """Return the values of each layer that has any, tables from their shards."""
    net = read_weights(folder / "net_iter_40.caffemodel")
    values = {layer.name: [np.array(blob.data, np.float32).tobytes() for blob in layer.blobs] for layer in net.layer}
    return {name: blobs for name, blobs in values.items() if any(blobs)}


# -- the end ---------------------------------------------------------------------------------------------


def _begun(folder: Path, ranks: int, flags: list[str]) -> RunningJob:
    """Return a job that has written a snapshot."""
    (folder / "solver.prototxt").write_text(_SOLVER)
    (folder / "net.prototxt").write_text(_DENSE + _TABLE)
    job = _train(folder, ranks, *flags)
    if not job.await_(lambda: bool(list(folder.glob("net_iter_*.solverstate"))), MAX_S):
        raise AssertionError(job.end(0).describe())
    return job


def _pid(job: RunningJob, rank: int) -> int:
    return next(pid for pid in job.members() if psutil.Process(pid).environ().get("RANK") == str(rank))


def _kill(folder: Path, rank: int, ranks: int, flags: list[str], called: str) -> str | None:
    with _begun(folder, ranks, flags) as job:
        killed, began = _pid(job, rank), time.monotonic()
        os.kill(killed, signal.SIGKILL)
        result = job.end(MAX_S)
    took, text = time.monotonic() - began, result.describe()
    said = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    named = f"error: rank {rank} of {ranks}{called or ' '}{' ' if called else ''}on "
    if result.code != 1 or result.left_behind or took > MAX_END_S:
        return f"after {took:.1f} s: {text}"
    if len(said) != 1 or not said[0].startswith(named) or f"(process {killed})" not in said[0]:
        return text
    return None if set(_codes(result.stderr)) <= {69, -signal.SIGKILL, -signal.SIGTERM} else text


def _stop(folder: Path, what: str, ranks: int, flags: list[str]) -> str | None:
    with _begun(folder, ranks, flags) as job:
        if what == "stop file":
            (folder / "net.stop").touch()
        elif what.endswith("rank"):
            os.kill(_pid(job, ranks - 1), signal.SIGTERM)
        else:
            job.process.send_signal(getattr(signal, what))
        result = job.end(MAX_S)
    has_stopped = "Optimization stopped early" in result.stderr and "error: " not in result.stderr
    if not result.code or result.left_behind or not has_stopped or not set(_codes(result.stderr)) <= {75}:
        return result.describe()
    (folder / "net.stop").unlink(missing_ok=True)
    newest = max(int(path.stem.rpartition("_")[2]) for path in folder.glob("net_iter_*.solverstate"))
    with _train(folder, ranks, *flags, "--snapshot=auto", f"--max_iter={newest + 5}") as job:
        result = job.end(MAX_S)
    is_resumed = f"Resuming from net_iter_{newest}." in result.stderr
    return None if result.code == 0 and is_resumed and "error" not in result.stderr else result.describe()


def _differ(folder: Path) -> str | None:
    for rank in (0, 1):
        (folder / str(rank)).mkdir()
        (folder / str(rank) / "solver.prototxt").write_text(_SOLVER)
        (folder / str(rank) / "net.prototxt").write_text(_DENSE.replace("num_output: 4000", f"num_output: {40 + rank}"))
    script = f'cd "$RANK" && exec {sys.executable} {" ".join(_ENGINE)}'
    with RunningJob(_torchrun(2, "sh", "-c", script), cwd=folder) as job:
        result = job.end(MAX_S)
    said = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    wrong = result.code != 1 or len(said) != 1 or "were not given the same training net" not in said[0]
    return result.describe() if wrong or set(_codes(result.stderr)) != {76} else None
