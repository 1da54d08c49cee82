"""`engine train` under plain mpirun: a survivor names a dead rank, stops are agreed, no rank trains with nan."""

from __future__ import annotations

import os
import re
import signal
import sys

import h5py
import numpy as np
import psutil
import pytest

from tests.support.jobs import RunningJob
from tests.support.mpirun import AS_ROOT, rank_pids, run_mpi, start_mpi
from tests.support.paths import PROGRAMS

pytestmark = pytest.mark.slow

ENGINE = PROGRAMS / "faulty_engine.py"
RANKS = 3
LAST = 67
"""The iteration up to which runs go whose weights are compared."""

NET = """
layer {{ name: "data" type: "HDF5Data" top: "data" top: "label"
  hdf5_data_param {{ source: "data.txt" batch_size: 4 }} }}
layer {{ name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1" {extra}
  inner_product_param {{ num_output: 4 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip1" bottom: "label" top: "loss" }}
"""
SOLVER = """
net: "net.prototxt" base_lr: 0.001 lr_policy: "fixed" max_iter: 10000000 snapshot: 20 snapshot_prefix: "net"
random_seed: 7 solver_mode: CPU comm_param { schedule: WFBP }
"""


def write_run(folder):
    random = np.random.default_rng(5)
    with h5py.File(folder / "data.h5", "w") as file:
        file["data"] = random.standard_normal((600, 3)).astype(np.float32)
        file["label"] = random.integers(0, 4, 600).astype(np.float32)
    (folder / "data.txt").write_text(f"{folder / 'data.h5'}\n")
    (folder / "net.prototxt").write_text(NET.format(extra=""))
    (folder / "solver.prototxt").write_text(SOLVER)
    return folder


@pytest.fixture
def folder(tmp_path):
    return write_run(tmp_path)


def test_the_lowest_survivor_names_a_rank_that_was_killed(folder):
    environment = {"FAULT": "1:backward:kill:30", "RECORD": str(folder)}
    result = run_mpi(
        [ENGINE, "train", "solver.prototxt"],
        n=RANKS, timeout=120, environment=environment, cwd=folder,
    )  # fmt: skip
    assert not result.hung and result.returncode != 0 and not result.left_behind, result.describe()
    assert result.stderr.count("error: ") == 1, result.describe()
    block = result.stderr[result.stderr.index("error: ") :]
    assert block.startswith(f"error: rank 1 of {RANKS} on {os.uname().nodename} (process ")
    assert "iteration: 29" in block and "doing:     backward, layer 'ip1'" in block


def test_one_ranks_nan_stops_all_before_the_update(folder):
    with h5py.File(folder / "data.h5", "a") as file:
        # Record 4 * 3 * 10 + 1 is the first one that rank 1 reads in iteration 10.
        file["data"][121, 0] = np.nan
    result = run_mpi(
        ["-m", "mgcaffe.tools.main", "train", "solver.prototxt", "--nan_effect=snapshot"],
        n=RANKS, timeout=120, cwd=folder,
    )  # fmt: skip
    assert result.returncode == 71, result.describe()
    assert result.stderr.count("error: ") == 1
    assert "iteration 10: a loss or gradient is not finite; no rank has updated its weights" in result.stderr
    assert "rank 1" in result.stderr and "blob 'data', made by layer 'data' (HDF5Data): 1 of 12 values" in result.stderr
    assert (folder / "net_iter_10.solverstate").exists()


@pytest.mark.parametrize("how", ["stop file", "SIGUSR1"])
def test_all_ranks_stop_at_one_iteration(folder, mpi_ranks, how):
    ranks = mpi_ranks(RANKS)
    ranks.start(folder, "train", "solver.prototxt", environment={"RECORD": str(folder)})
    assert ranks.await_((folder / "net_iter_20.solverstate").exists, 120)
    if how == "stop file":
        (folder / "net.stop").touch()
    else:
        ranks.job.process.send_signal(signal.SIGUSR1)  # mpirun hands it on
    result = ranks.end(60)
    assert result.returncode == 75, result.stderr
    ends = {(folder / f"stopped.{rank}").read_text() for rank in range(RANKS)}
    assert len(ends) == 1
    assert (folder / f"net_iter_{ends.pop().split()[0]}.solverstate").exists()
    assert not (folder / "net.stop").exists()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, mpi_ranks):
    """The folder of a run that nothing happens to, with the weights after every iteration up to `LAST`."""
    folder = write_run(tmp_path_factory.mktemp("undisturbed"))
    (folder / "solver.prototxt").write_text(SOLVER.replace("snapshot: 20", "snapshot: 1"))
    result = mpi_ranks(RANKS).run(folder, "train", "solver.prototxt", f"--max_iter={LAST}")
    assert result.returncode == 0, result.stderr
    return folder


@pytest.mark.parametrize(
    ("fault", "lowest", "iteration"), [("0:backward:kill:31", 1, 30), ("2:forward:kill:48", 0, LAST - 20)]
)
def test_with_ulfm_a_survivor_saves_the_last_whole_iteration(folder, undisturbed, mpi_ranks, fault, lowest, iteration):
    dead = fault[0]
    words = ["train", "solver.prototxt"]
    record = {"RECORD": str(folder)}
    result = run_mpi(
        [ENGINE, *words],
        n=RANKS, timeout=120, environment={"FAULT": fault, **record}, cwd=folder, options=["--with-ft", "ulfm"],
    )  # fmt: skip
    assert not result.hung and result.returncode == 69 and not result.left_behind, result.describe()
    said = f"warning: rank {lowest}: rank {dead} gone; iteration {iteration} is saved (go on with --snapshot=net_iter"
    assert result.stderr.count(said) == 1 and result.stderr.count("is saved") == 1, result.describe()
    assert f"rank {dead} of {RANKS} on {os.uname().nodename}" in result.stderr
    assert len(list(folder.glob(f"net_iter_{iteration}.*"))) == 3

    more = ["--snapshot=auto", f"--max_iter={iteration + 20}"]
    result = mpi_ranks(RANKS).run(folder, *words, *more, environment=record)
    assert result.returncode == 0 and f"Resuming from net_iter_{iteration}.solverstate" in result.stderr
    assert len({(folder / f"stopped.{rank}").read_text() for rank in range(RANKS)}) == 1
    for saved in (iteration, iteration + 20):
        name = f"net_iter_{saved}.caffemodel"
        assert (folder / name).read_bytes() == (undisturbed / name).read_bytes()


@pytest.mark.parametrize(
    ("way", "number", "code"),
    [("launcher", signal.SIGTERM, 75), ("mpirun", signal.SIGTERM, 75), ("launcher", signal.SIGQUIT, 69)],
)
def test_a_signal_to_one_rank_is_enough(folder, way, number, code):
    if way == "mpirun":
        job = start_mpi(["-m", "mgcaffe.tools.main", "train", "solver.prototxt"], cwd=folder)
    else:
        command = [sys.executable, "-m", "mgcaffe.tools.main", "train", "-np", "2", "solver.prototxt"]
        job = RunningJob(command, environment=AS_ROOT, cwd=folder)
    with job:
        assert job.await_(lambda: (folder / "net_iter_20.solverstate").exists(), 120)
        os.kill(rank_pids(job)[1], number)
        result = job.end(60)
    said = result.stderr
    assert result.returncode == code, result.describe()
    if number == signal.SIGTERM:
        assert "Optimization stopped early." in said and "error: " not in said
        assert re.search(r"\(go on with --snapshot=net_iter_\d+\.solverstate\)", said)
    else:
        assert "most recent call first" in said
        assert f"error: rank 1 of 2 on {os.uname().nodename}" in said and "was ended by signal 3 (SIGQUIT)" in said


@pytest.fixture
def launched(folder):
    """A job of two ranks under the launcher that has written its first snapshot."""
    command = [sys.executable, "-m", "mgcaffe.tools.main", "train", "-np", "2", "solver.prototxt"]
    with RunningJob(command, environment=AS_ROOT, cwd=folder) as job:
        assert job.await_(lambda: (folder / "net_iter_20.solverstate").exists(), 120)
        yield job


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_job_whose_mpirun_is_told_to_end_has_stopped_or_says_that_it_was_killed(launched, folder, number):
    """Half a second is often enough for the ranks to stop."""
    (mpirun,) = psutil.Process(launched.process.pid).children()
    os.kill(mpirun.pid, number)
    result = launched.end(60)
    assert not result.left_behind, result.describe()
    if result.returncode == 75:
        assert "error: " not in result.stderr and list(folder.glob("net_iter_*.solverstate")), result.describe()
        assert "mpirun was told to end" in result.stderr, result.describe()
    else:  # a rank that has not noted the signal yet is named itself
        assert result.returncode == 69 and "error: " in result.stderr, result.describe()


def test_a_job_whose_mpirun_does_not_react_ends_after_a_ranks_death(launched):
    (mpirun,) = psutil.Process(launched.process.pid).children()
    os.kill(mpirun.pid, signal.SIGSTOP)
    os.kill(rank_pids(launched)[1], signal.SIGKILL)
    result = launched.end(60)
    assert not result.hung and result.returncode == 69 and not result.left_behind, result.describe()
