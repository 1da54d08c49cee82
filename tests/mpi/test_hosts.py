"""The launcher with ranks on two hosts, which are network namespaces; skipped where they cannot be made.

The second host has a /dev/shm of its own, so that the launcher cannot see its ranks' records.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
ENGINE = ROOT / "tests/soak/faulty_engine.py"

NET = """
layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 4 dim: 3 } shape { dim: 4 } data_filler { type: "gaussian" } data_filler { type: "constant" } } }
layer { name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1"
  inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip1" bottom: "label" top: "loss" }
"""
SOLVER = """
net: "net.prototxt" base_lr: 0.001 lr_policy: "fixed" max_iter: 10000000 snapshot: 20 snapshot_prefix: "net"
random_seed: 7 solver_mode: CPU comm_param { schedule: WFBP deterministic: true }
"""
LAUNCH = """
import sys
from mgcaffe.tools import main
from mgcaffe.tools.launcher import launcher
launcher.launch = lambda flags, launch=launcher.launch: launch(flags, sys.argv[1:3])
sys.exit(main.main(["train", *sys.argv[3:]]))
"""
# What starts a command on the other host: AGENT HOST COMMAND...
SECOND_HOST = """#!/bin/sh
exec unshare --mount sh -c '
mount -t tmpfs none /dev/shm
{agent} "$@"
code=$?
ls /dev/shm > {left}
exit $code' sh "$@"
"""


@pytest.fixture
def network(launch):
    path = ROOT / "benchmarks/shaped_network.py"
    spec = importlib.util.spec_from_file_location("mgcaffe_benchmarks_shaped_network", path)
    shaped_network = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(shaped_network)
    try:
        network = shaped_network.ShapedNetwork(hosts=2, rate="1gbit").__enter__()
    except shaped_network.NetworkUnavailable as error:
        pytest.skip(str(error))
    yield network
    network.remove()


@pytest.fixture
def start(network, tmp_path, monkeypatch):
    """`start(hosts, fault)` launches a job from the first host; returns the launcher's process."""
    for name in [name for name in os.environ if name.startswith(("OMPI_", "PMIX_", "MGCAFFE_"))]:
        monkeypatch.delenv(name)
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    given = network.mpirun_arguments()
    inner = given[given.index("plm_ssh_agent") + 1]
    agent = tmp_path / "agent"
    agent.write_text(SECOND_HOST.format(agent=inner, left=tmp_path / "left"))
    agent.chmod(0o755)
    arguments = f"--prtemca plm_ssh_agent {agent} --mca pml ob1 --mca btl tcp,self -x FAULT -x RECORD"
    processes = []

    def launch_job(hosts, fault=""):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "RECORD": str(tmp_path)}
        environment["PRTE_MCA_prte_remote_tmpdir_base"] = str(tmp_path)
        words = [sys.executable, "-c", LAUNCH, sys.executable, str(ENGINE), "-H", hosts, "--mpirun_args", arguments]
        process = network.popen(
            0, [*words, "solver.prototxt"],
            cwd=tmp_path, env={**environment, "FAULT": fault},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        processes.append(process)
        return process

    yield launch_job
    for process in processes:
        process.kill()
        process.wait()


def left_behind(folder):
    """The processes that work in a folder, two seconds later at most."""
    deadline = time.monotonic() + 2
    while left := [process.pid for process in psutil.process_iter(["cwd"]) if process.info["cwd"] == str(folder)]:
        if time.monotonic() > deadline:
            return left
        time.sleep(0.02)
    return []


def test_ctrl_c_stops_the_ranks_of_both_hosts_after_a_snapshot(start, tmp_path):
    process = start("host0:1,host1:1")
    deadline = time.monotonic() + 60
    while not (tmp_path / "net_iter_20.solverstate").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 75, said
    assert time.monotonic() - began < 10
    assert "SIGINT: asking the ranks to stop after this iteration, with a snapshot" in said
    ends = {(tmp_path / f"stopped.{rank}").read_text() for rank in range(2)}
    assert len(ends) == 1 and (tmp_path / f"net_iter_{ends.pop().split()[0]}.solverstate").exists()
    assert left_behind(tmp_path) == []
    assert "mgcaffe" not in (tmp_path / "left").read_text()


def test_a_rank_that_is_killed_on_the_other_host_is_named_at_the_end(start, tmp_path):
    process = start("host0:1,host1:2", fault="2:backward:kill:30")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 69, said
    assert time.time() - float((tmp_path / "struck").read_text()) < 10
    last = said[said.rindex("error: ") :]
    assert last.startswith("error: rank 2 of 3 on host1 (process "), said
    assert last.partition("\n")[0].endswith(" was killed by signal 9 (SIGKILL)")
    assert last.splitlines()[1:4] == [
        "  iteration: 29",
        "  doing:     backward, layer 'ip1'",
        "  the other ranks end with it",
    ]
    assert left_behind(tmp_path) == []
