"""What killed jobs left is removed; what a living process uses, or may use, stays."""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from mgcaffe.comm.supervision import leftovers, processes, record_folders

HOLD = """
import mmap, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR)
held = mmap.mmap(descriptor, 0)
os.close(descriptor)
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def held(path: Path):
    """Another process maps a file, until the end."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process
        process.kill()


@pytest.fixture
def memory():
    """A folder in memory."""
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("no shared memory here")
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="leftovers-") as folder:
        yield Path(folder)


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def segment(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_bytes(bytes(mmap.PAGESIZE))
    return path


def session(folder: Path, pid: int, host: str = "") -> Path:
    """A session folder as mpirun makes it."""
    path = folder / f"ompi.{pid}"
    (path / "1" / "0").mkdir(parents=True)
    segment(path, "hwloc.sm")
    segment(path, f"pmix.{host or socket.gethostname()}.tool")
    segment(path / "1", f"pmix-gds-shmem2.{host or socket.gethostname()}-prterun-{pid}@1.jobdata.{pid}")
    return path


def test_segments_that_no_process_uses_are_removed(memory):
    used, left, older = (
        segment(memory, f"{name}.0.1234.0") for name in ("sm_segment.a", "sm_segment.b", "vader_segment.a")
    )
    other = segment(memory, "segment_of_another_program")
    link = memory / "sm_segment.link"
    link.symlink_to(other)
    with held(used):
        leftovers.sweep_segments(memory)
        assert used.exists() and other.exists() and link.is_symlink()
        assert not left.exists() and not older.exists()
    leftovers.sweep_segments(memory)
    assert not used.exists()


def test_segments_of_another_user_stay(memory, monkeypatch):
    path = segment(memory, "sm_segment.a.1.1.0")
    monkeypatch.setattr(leftovers.os, "getuid", lambda: os.geteuid() + 1)
    leftovers.sweep_segments(memory)
    assert path.exists()


def test_segments_on_disk_and_without_leases_stay(tmp_path, memory, monkeypatch):
    on_disk, in_memory = segment(tmp_path, "sm_segment.a.0.1.0"), segment(memory, "sm_segment.a.0.1.0")
    monkeypatch.setattr(leftovers, "_is_tmpfs", lambda folder: folder == memory)
    monkeypatch.delattr(leftovers.fcntl, "F_SETLEASE")
    leftovers.sweep_segments(tmp_path)
    leftovers.sweep_segments(memory)
    leftovers.sweep_segments(memory / "absent")
    assert on_disk.exists() and in_memory.exists()


def test_sweeping_a_folder_at_once_ends_no_process(memory):
    script = "import sys; from pathlib import Path; from mgcaffe.comm.supervision import leftovers\n"
    script += "for _ in range(100): leftovers.sweep_segments(Path(sys.argv[1]))"
    sweepers = [subprocess.Popen([sys.executable, "-c", script, str(memory)]) for _ in range(3)]
    while any(sweeper.poll() is None for sweeper in sweepers):
        for index in range(20):
            with contextlib.suppress(BlockingIOError):
                segment(memory, f"sm_segment.a.0.{index}.0")
    assert [sweeper.returncode for sweeper in sweepers] == [0, 0, 0]


def test_a_dead_mpiruns_folder_is_removed(tmp_path):
    left = session(tmp_path, dead_pid())
    reused = session(tmp_path, os.getpid())
    elsewhere = session(tmp_path, 2**22 + 1, host="another-host")
    young = tmp_path / f"ompi.{2**22 + 2}"
    young.mkdir()
    used = session(tmp_path, 2**22 + 3)
    target = session(tmp_path / "target", 2**22 + 4)
    (tmp_path / f"ompi.{2**22 + 5}").symlink_to(target)
    named = tmp_path / "ompi.vm.0"
    named.mkdir()
    with held(used / "hwloc.sm"):
        leftovers.sweep_sessions(tmp_path)
        assert used.exists() and (used / "1" / "0").exists()
        assert not left.exists() and not reused.exists()
        assert elsewhere.exists() and young.exists() and target.exists() and named.exists()
    leftovers.sweep_sessions(tmp_path / "absent")


def test_a_living_mpiruns_folder_stays(tmp_path):
    program = tmp_path / "prterun"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "60"]) as process:
        path = session(tmp_path, process.pid)
        while not Path(f"/proc/{process.pid}/comm").read_text().startswith("prterun"):
            time.sleep(0.01)
        leftovers.sweep_sessions(tmp_path)
        assert path.exists()
        process.send_signal(signal.SIGKILL)
    leftovers.sweep_sessions(tmp_path)
    assert not path.exists()


@pytest.fixture
def jobs(tmp_path, monkeypatch):
    """Where the folders of jobs lie; nothing else is swept."""
    monkeypatch.setattr(record_folders, "records_folder", lambda: tmp_path)
    monkeypatch.setattr(leftovers, "SHARED_MEMORY", tmp_path / "memory")
    monkeypatch.setattr(leftovers.tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    return tmp_path


def test_folders_of_dead_jobs_are_removed_and_others_stay(jobs):
    mine = record_folders.new_folder()
    dead = jobs / f"mgcaffe-{os.getuid()}-dead"
    dead.mkdir()
    (dead / "launcher").write_text(str(dead_pid()))
    (dead / "ompi.4711").mkdir()
    elsewhere = jobs / f"mgcaffe-{os.getuid()}-elsewhere"
    elsewhere.mkdir()
    (elsewhere / "launcher").write_text(str(dead_pid()))
    (elsewhere / "pid-namespace").write_text("pid:[of another container]")
    leftovers.sweep()
    assert mine.exists() and elsewhere.exists() and not dead.exists()
    record_folders.remove_folder(mine)
    assert not mine.exists()


def test_a_process_id_that_was_given_again_keeps_no_folder(jobs):
    folder = jobs / f"mgcaffe-{os.getuid()}-job"
    record = record_folders.open_status(folder, 0, 1)
    leftovers.sweep()
    assert folder.exists()
    started = record.read().started
    assert started > 0 and processes.is_alive(os.getpid(), started) and not processes.is_alive(os.getpid(), started + 1)
    content = bytearray((folder / "0").read_bytes())
    content[56:64] = (started + 1).to_bytes(8, "little")
    (folder / "0").write_bytes(content)
    leftovers.sweep()
    assert not folder.exists()
    launchers = record_folders.new_folder()
    (launchers / "launcher").write_text(f"{os.getpid()} {started + 1}")
    leftovers.sweep()
    assert not launchers.exists()


def test_records_of_ranks_on_another_host_or_in_another_container_stay(jobs, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(record_folders.socket, "gethostname", lambda: "another-host")
        there = jobs / f"mgcaffe-{os.getuid()}-there"
        record_folders.open_status(there, 0, 1)
    with monkeypatch.context() as patch:
        patch.setattr(record_folders, "pid_namespace", lambda: "of another container")
        contained = jobs / f"mgcaffe-{os.getuid()}-contained"
        record_folders.open_status(contained, 0, 1)
    monkeypatch.setattr(processes, "process_state", lambda pid: "")
    leftovers.sweep()
    assert there.exists() and contained.exists()


def test_a_folder_that_never_said_whose_it_is_goes_after_an_hour(jobs):
    young, old = (jobs / f"mgcaffe-{os.getuid()}-{name}" for name in ("young", "old"))
    young.mkdir()
    old.mkdir()
    os.utime(old, (time.time() - 4000,) * 2)
    leftovers.sweep()
    assert young.exists() and not old.exists()


def test_a_folder_whose_files_could_not_be_written_goes_after_an_hour(jobs):
    """A full disk, or a limit on file sizes, leaves them empty."""
    young, old = (jobs / f"mgcaffe-{os.getuid()}-{name}" for name in ("young", "old"))
    for folder in (young, old):
        folder.mkdir()
        (folder / "launcher").touch()
        (folder / "pid-namespace").touch()
    os.utime(old, (time.time() - 4000,) * 2)
    leftovers.sweep()
    assert young.exists() and not old.exists()
