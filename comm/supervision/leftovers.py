"""Removes what killed jobs of this user left in shared memory and in the temporary folder of this host.

| what                                                                         | is removed when                 |
|------------------------------------------------------------------------------|---------------------------------|
| `mgcaffe-UID-*` in memory: the records of a job's ranks (`record_folders`)   | all their processes are gone    |
| `sm_segment.*`, `vader_segment.*` in memory: Open MPI's ranks talk by them   | no process has it open          |
| `ompi.PID`, `prted.PID` in the temporary folder: mpirun's, or its daemon's   | that is gone, and no file open  |

A process id says little by itself: it may be another process's by now, or of another container that shares these
folders. So a record also holds when its process started, and a job's folder its host and namespace of process ids.
Whether a file is in use, the kernel is asked: it grants a lease for writing only on a file that no process of any
container has open or mapped. What is in doubt stays.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from mgcaffe.comm.supervision import record_folders
from mgcaffe.comm.supervision.processes import is_alive

SHARED_MEMORY = Path("/dev/shm")
_SEGMENTS = ("sm_segment.*", "vader_segment.*")
_SESSION = re.compile(r"(?:ompi|prte|prted|prterun)\.(\d+)")
_SESSION_PROGRAMS = ("mpirun", "mpiexec", "prte", "orte")
# A folder is made a moment before it says whose it is.
_NAMELESS_AFTER_S = 3600.0


def sweep() -> None:
    """Remove what dead jobs left; what cannot be read or removed is passed over."""
    for folder in record_folders.job_folders():
        with contextlib.suppress(OSError, ValueError):
            if _is_dead_job(folder):
                record_folders.remove_folder(folder)
    sweep_segments(SHARED_MEMORY)
    with contextlib.suppress(FileNotFoundError):  # under a limit on file sizes of 0 Python finds no such folder
        sweep_sessions(Path(tempfile.gettempdir()))


def sweep_segments(memory: Path) -> None:
    """Remove Open MPI's segments that no process uses from a folder in memory."""
    with contextlib.suppress(OSError):
        if not _is_tmpfs(memory):
            return  # other file systems may forget that a file is mapped once it is closed
        for pattern in _SEGMENTS:
            for path in memory.glob(pattern):
                with _claimed(path) as is_unused:
                    if is_unused:
                        path.unlink(missing_ok=True)


def sweep_sessions(temporary: Path) -> None:
    """Remove the session folders of dead mpiruns, and of their daemons, from a temporary folder."""
    try:
        folders = [path for path in temporary.iterdir() if _SESSION.fullmatch(path.name)]
    except OSError:
        return
    for folder in folders:
        with contextlib.suppress(OSError):
            if _is_dead_session(folder):
                record_folders.remove_folder(folder)


def _is_dead_job(folder: Path) -> bool:
    processes = record_folders.processes_of(folder)
    if processes is None:
        return False
    if not processes:
        return folder.stat().st_mtime < time.time() - _NAMELESS_AFTER_S
    return not any(is_alive(pid, started) for pid, started in processes)


def _is_dead_session(folder: Path) -> bool:
    named = _SESSION.fullmatch(folder.name)
    about = folder.lstat()
    if named is None or not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
        return False
    if _is_open_mpis(int(named[1])):
        return False
    files = [Path(place) / name for place, _, names in os.walk(folder) for name in names]
    if not any(_is_of_this_host(path.name) for path in files):
        return False  # of another host that shares this folder, or just made
    return all(_is_unused(path) for path in files)


def _is_open_mpis(pid: int) -> bool:
    """Return whether a process runs that may be an mpirun or a daemon of Open MPI."""
    try:
        return is_alive(pid) and Path(f"/proc/{pid}/comm").read_text().startswith(_SESSION_PROGRAMS)
    except OSError:
        return is_alive(pid)


def _is_of_this_host(name: str) -> bool:
    """Return whether PMIx, which puts the host's name into its files' names, called a file so on this host."""
    host = socket.gethostname()
    return any(
        name.startswith(f"{kind}.{known}{end}")
        for kind, end in (("pmix", "."), ("pmix-gds-shmem2", "-"), ("pmix-gds-shmem", "-"))
        for known in {host, host.partition(".")[0]}
    )


def _is_unused(path: Path) -> bool:
    with _claimed(path) as is_unused:
        return is_unused


@contextlib.contextmanager
def _claimed(path: Path) -> Iterator[bool]:
    """Return whether a file is this user's and no process has it open or mapped; inside, none can open it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        yield _lease(descriptor)
    finally:
        os.close(descriptor)


def _lease(descriptor: int) -> bool:
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode) or about.st_uid != os.getuid():
        return False
    try:
        # Who opens the file meanwhile waits, and the kernel signals that: by SIGIO, which would end this process.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except (AttributeError, OSError):
        return False  # in use, or a system without leases
    return True


def _is_tmpfs(folder: Path) -> bool:
    device = folder.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    mounts = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    return any(line.split()[2] == number and " - tmpfs " in line for line in mounts)
