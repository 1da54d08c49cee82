"""`engine train` under torchrun, without MPI: the bits of mpirun, and the end of a job whose rank is killed."""

import os
import signal
import sys
import time

import psutil
import pytest

from tests.support.engine_command import NET, SOLVER, Engine
from tests.support.jobs import RunningJob

pytestmark = pytest.mark.slow

ENGINE = (sys.executable, "-m", "mgcaffe.tools.main")
WORDS = ("train", "solver.prototxt", "--schedule=wfbp", "--deterministic")


@pytest.fixture
def engine(tmp_path):
    made = Engine(tmp_path)
    made.write("net.prototxt", NET)
    made.write("solver.prototxt", SOLVER)
    return made


def test_two_ranks_get_the_weights_of_mpirun_and_a_killed_rank_ends_the_other(engine, mpi_ranks):
    by_mpi = mpi_ranks(2).run(engine.folder, *WORDS, "--max_iter=10")
    assert by_mpi.returncode == 0, by_mpi.stderr
    weights, state = engine.folder / "tiny_iter_10.caffemodel", engine.folder / "tiny_iter_10.solverstate"
    expected = weights.read_bytes()
    state.unlink()
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "--no-python")
    with RunningJob([*torchrun, *ENGINE, *WORDS, "--max_iter=1000000000"], cwd=engine.folder) as job:
        assert job.await_(state.exists, 60), job.end(0).describe()
        assert weights.read_bytes() == expected
        killed = next(pid for pid in job.members() if _rank(pid) == "1")
        began = time.monotonic()
        os.kill(killed, signal.SIGKILL)
        result = job.end(30)
    assert result.code == 1 and not result.left_behind, result.describe()  # torchrun's, whatever its ranks' are
    assert time.monotonic() - began < 10
    said = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(said) == 1 and said[0].startswith("error: rank 1 of 2 on "), result.describe()
    assert f"(process {killed}) exited without an error message" in said[0]


def _rank(pid):
    return psutil.Process(pid).environ().get("RANK")
