"""The launcher with ranks on two hosts, which are network namespaces; skipped where they cannot be made.

The second host has a /dev/shm of its own, so that the launcher cannot see its ranks' records.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import time

import pytest

from benchmarks.shaped_network import NetworkUnavailable, ShapedNetwork
from tests.support.jobs import RunningJob
from tests.support.launcher import launch_command
from tests.support.paths import PROGRAMS

pytestmark = pytest.mark.slow

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
# What starts a command on the other host: AGENT HOST COMMAND... Like ssh, it does not hand on the records' folder.
SECOND_HOST = """#!/bin/sh
exec env -u MGCAFFE_STATUS_DIR unshare --mount sh -c '
mount -t tmpfs none /dev/shm
{agent} "$@"
code=$?
ls /dev/shm > {left}
exit $code' sh "$@"
"""


@pytest.fixture
def network():
    try:
        network = ShapedNetwork(hosts=2, rate="1gbit").__enter__()
    except NetworkUnavailable as error:
        pytest.skip(str(error))
    yield network
    network.remove()


@pytest.fixture
def start(network, tmp_path, monkeypatch):
    """`start(hosts, fault)` launches a job from the first host; returns it."""
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
    program = PROGRAMS / "faulty_engine.py"

    with contextlib.ExitStack() as jobs:

        def launch_job(hosts, fault=""):
            variables = {"RECORD": str(tmp_path), "FAULT": fault, "PRTE_MCA_prte_remote_tmpdir_base": str(tmp_path)}
            job = RunningJob(
                launch_command(program, "-H", hosts, "--mpirun_args", arguments, "solver.prototxt"),
                environment=variables, cwd=tmp_path, places_files=False, popen=functools.partial(network.popen, 0),
            )  # fmt: skip
            return jobs.enter_context(job)

        yield launch_job


def test_ctrl_c_stops_the_ranks_of_both_hosts_after_a_snapshot(start, tmp_path):
    job = start("host0:1,host1:1")
    assert job.await_((tmp_path / "net_iter_20.solverstate").exists, 60)
    began = time.monotonic()
    job.process.send_signal(signal.SIGINT)
    result = job.end(60, patience_s=2.0)
    assert result.returncode == 75, result.describe()
    assert time.monotonic() - began < 10
    assert "SIGINT: asking the ranks to stop after this iteration, with a snapshot" in result.stderr
    ends = {(tmp_path / f"stopped.{rank}").read_text() for rank in range(2)}
    assert len(ends) == 1 and (tmp_path / f"net_iter_{ends.pop().split()[0]}.solverstate").exists()
    assert result.left_behind == ()
    assert "mgcaffe" not in (tmp_path / "left").read_text()


def test_a_rank_that_is_killed_on_the_other_host_is_named_at_the_end(start, tmp_path):
    result = start("host0:1,host1:2", fault="2:backward:kill:30").end(60, patience_s=2.0)
    said = result.stderr
    assert result.returncode == 69, said
    assert time.time() - float((tmp_path / "struck").read_text()) < 10
    last = said[said.rindex("error: ") :]
    assert last.startswith("error: rank 2 of 3 on host1 (process "), said
    assert last.partition("\n")[0].endswith(" was killed by signal 9 (SIGKILL)")
    assert last.splitlines()[1:4] == [
        "  iteration: 29",
        "  doing:     backward, layer 'ip1'",
        "  the other ranks end with it",
    ]
    assert result.left_behind == ()
