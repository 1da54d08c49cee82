"""A user's layer ends its process, leaves MPI or a thread: the job ends within seconds, and the message is located."""

from __future__ import annotations

import socket
import sys

import pytest

from tests.support.jobs import RunningJob
from tests.support.mpirun import AS_ROOT, run_mpi

pytestmark = pytest.mark.slow

LAYER = """
import atexit, os, signal, sys, threading, time
import caffe

class Ending(caffe.Layer):
    def setup(self, bottom, top):
        self.passes = 0
        self.strike("setup")

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].data.shape)

    def forward(self, bottom, top):
        self.passes += 1
        top[0].data[...] = bottom[0].data
        self.strike("forward")

    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = top[0].diff
        self.strike("backward")

    def strike(self, point):
        rank, where, how = os.environ["FAULT"].split(":")
        if (int(rank), where) == (self.solver_rank, point) and (point == "setup" or self.passes == 5):
            getattr(self, how)()

    def exit(self):
        sys.exit(0)

    def vanish(self):
        os._exit(0)

    def finalize(self):
        from mpi4py import MPI
        MPI.Finalize()

    def thread(self):
        threading.Thread(target=self.work, name="upload").start()

    def work(self):
        time.sleep(1000)

    def interrupt_twice(self):
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)

    def interrupt_at_the_end(self):
        global last
        last = Last()
        os.kill(os.getpid(), signal.SIGINT)

class Last:
    # Python calls this when it has given the signals back already.
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGINT):
        kill(pid, number)
"""

NET = """
layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 4 dim: 3 } shape { dim: 4 } data_filler { type: "gaussian" } data_filler { type: "constant" } } }
layer { name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1"
  inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }
layer { name: "ending" type: "Python" bottom: "ip1" top: "ending"
  python_param { module: "ending_layer" layer: "Ending" } }
layer { name: "ip2" type: "InnerProduct" bottom: "ending" top: "ip2"
  inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }
"""
SOLVER = """
net: "net.prototxt" base_lr: 0.001 lr_policy: "fixed" max_iter: 10 snapshot_prefix: "net" random_seed: 7
solver_mode: CPU comm_param { schedule: WFBP }
"""
HOST = socket.gethostname()


@pytest.fixture
def train(tmp_path):
    """`train("mpirun", "1:forward:exit")` runs two ranks with a fault; "launcher" and "alone" are the other ways."""
    (tmp_path / "ending_layer.py").write_text(LAYER)
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)

    def run(way, fault):
        engine = ["-m", "mgcaffe.tools.main", "train"]
        if way == "mpirun":
            result = run_mpi([*engine, "solver.prototxt"], environment={"FAULT": fault}, cwd=tmp_path)
        else:
            ranks = ["-np", "2"] if way == "launcher" else []
            command = [sys.executable, *engine, *ranks, "solver.prototxt"]
            with RunningJob(command, environment={**AS_ROOT, "FAULT": fault}, cwd=tmp_path) as job:
                result = job.end(60)
        assert not result.hung and not result.left_behind, result.describe()
        return result

    return run


@pytest.mark.parametrize(
    ("way", "fault"),
    [("mpirun", "1:setup:exit"), ("launcher", "0:forward:exit"), ("mpirun", "0:backward:finalize")],
)
def test_a_layer_that_leaves_is_a_failure_of_the_layer(train, way, fault):
    rank, point, how = fault.split(":")
    result = train(way, fault)
    assert result.returncode == 65, result.describe()
    where = f"error: rank {rank} ({HOST}): net.prototxt:7:3: {point} failed in ending_layer.Ending (layer 'ending'"
    assert result.stderr.count(where) == 1, result.describe()
    assert {"exit": "SystemExit: 0\n", "finalize": "MPI.Finalize was called during the run\n"}[how] in result.stderr
    assert f", in {how}\n" in result.stderr and "internal error" not in result.stderr


@pytest.mark.parametrize(("fault", "doing"), [("1:setup:vanish", "setting up"), ("0:backward:vanish", "backward")])
def test_a_layer_that_ends_its_process_is_named_with_its_place(train, fault, doing):
    result = train("launcher", fault)
    assert result.returncode == 69, result.describe()
    assert f"error: rank {fault[0]} of 2 on {HOST}" in result.stderr, result.describe()
    assert f"doing:     {doing}, layer 'ending' (ending_layer.Ending, net.prototxt:6:1)" in result.stderr


@pytest.mark.parametrize(("way", "fault"), [("mpirun", "1:forward:thread"), ("alone", "0:backward:thread")])
def test_a_thread_that_is_left_running_ends_with_the_run(train, tmp_path, way, fault):
    result = train(way, fault)
    assert result.returncode == 0, result.describe()
    rank = "" if way == "alone" else f"rank {fault[0]}: "
    said = f"warning: {rank}thread 'upload' (at {tmp_path / 'ending_layer.py'}:"
    assert result.stderr.count(said) == 1 and result.stderr.count("warning: ") == 1, result.describe()
    assert (tmp_path / "net_iter_10.solverstate").exists()


def test_a_process_alone_that_is_left_is_not_taken_for_complete(train, tmp_path):
    result = train("alone", "0:forward:exit")
    assert result.returncode == 65, result.describe()
    assert "error: net.prototxt:7:3: forward failed in ending_layer.Ending (layer 'ending'" in result.stderr
    assert not list(tmp_path.glob("net_iter_*"))


def test_a_second_sigint_ends_a_process_alone_with_1(train, tmp_path):
    result = train("alone", "0:forward:interrupt_twice")
    assert result.returncode == 1, result.describe()
    assert "error: interrupted" in result.stderr and not list(tmp_path.glob("net_iter_*"))


def test_a_second_sigint_after_the_end_of_a_run_leaves_its_exit_code(train, tmp_path):
    result = train("alone", "0:forward:interrupt_at_the_end")
    assert result.returncode == 75, result.describe()
    assert (tmp_path / "net_iter_5.solverstate").exists()
