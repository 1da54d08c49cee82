"""What an mpirun and its ranks leave when all are killed, the next run removes; a living job loses nothing."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.jobs import RunningJob
from tests.support.mpirun import start_mpi

SLEEPER = """
import sys, time
from pathlib import Path
from mpi4py import MPI
from mgcaffe.comm.supervision import record_folders, status
status.use(record_folders.open_status(record_folders.job_folder(), MPI.COMM_WORLD.rank, 2))
MPI.COMM_WORLD.Barrier()
while not Path(sys.argv[1]).exists():
    time.sleep(0.05)
    if Path(sys.argv[1] + ".up").exists() or MPI.COMM_WORLD.rank:
        continue
    Path(sys.argv[1] + ".up").touch()
MPI.COMM_WORLD.Barrier()
"""
MEMORY = Path("/dev/shm")


def _files(job: RunningJob, temporary: Path) -> set[Path]:
    """The files that a job has in shared memory and in the temporary folder."""
    mpirun = job.process.pid
    (records,) = MEMORY.glob(f"mgcaffe-{os.getuid()}-prterun-*-{mpirun}@1")
    made = {records, temporary / f"ompi.{mpirun}"}
    for pid in job.members():
        mapped = [line.split()[-1] for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
        made |= {Path(name) for name in mapped if name.startswith(f"{MEMORY}/sm_segment.")}
    return made


@contextlib.contextmanager
def _job(temporary: Path, end: Path) -> Iterator[tuple[RunningJob, set[Path]]]:
    """An mpirun of two ranks, and the files that came with it; it ends once the file `end` is there."""
    with start_mpi(["-c", SLEEPER, end], environment={"TMPDIR": str(temporary)}, places_files=False) as job:
        assert job.await_(Path(f"{end}.up").exists, 60)
        yield job, _files(job, temporary)


def test_the_next_run_removes_what_killed_ones_left(tmp_path):
    # One net, one iteration: the next run, of one process.
    (tmp_path / "net.prototxt").write_text(
        'layer { name: "x" type: "DummyData" top: "x" top: "y" dummy_data_param { shape { dim: 2 dim: 2 } } }\n'
        'layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 2 } }\n'
        'layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "y" top: "loss" }\n'
    )
    (tmp_path / "solver.prototxt").write_text(
        'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 1 snapshot_after_train: false solver_mode: CPU\n'
    )
    next_run = [sys.executable, "-m", "mgcaffe.tools.main", "train", "solver.prototxt"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with _job(tmp_path, tmp_path / "end.living") as (living, its_files):
        with _job(tmp_path, tmp_path / "end.killed") as (_, left):
            pass
        kinds = sorted(path.name.partition(".")[0].partition("-")[0] for path in left)
        assert kinds == ["mgcaffe", "ompi", "sm_segment", "sm_segment"], left
        # Those in memory may be gone already: a run of another test, in the other pytest process, removes them as well.
        assert all(path.exists() for path in left if path.is_relative_to(tmp_path))
        subprocess.run(next_run, cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=60)
        assert not any(path.exists() for path in left), left
        assert len(its_files) == 4 and all(path.exists() for path in its_files)
        (tmp_path / "end.living").touch()
        assert living.end(30).returncode == 0
