"""The folder of a job's status records on this host (`status.py`), `<folder>/<rank>`.

It lies in memory (/dev/shm) where there is such a thing, and belongs to one job on one host: the launcher
`engine train -np` makes it and hands on its name; ranks that something else started derive it from what their
launcher calls the job.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path

from mgcaffe.comm.supervision import status
from mgcaffe.comm.supervision.processes import is_alive, pid_namespace, start_of
from mgcaffe.comm.supervision.status import Place, Status, parse_place

FOLDER_VARIABLE = "MGCAFFE_STATUS_DIR"
"""The environment variable by which the launcher names the folder."""
_OWNER = "launcher"
_NAMESPACE = "pid-namespace"
_NAMES = ("PMIX_NAMESPACE", "PMI_JOBID", "MPIEXEC_JOBID")


def open_status(folder: Path | None, rank: int, size: int) -> Status:
    """Return a record in a folder, or in memory alone where none can be written."""
    if folder is not None:
        with contextlib.suppress(OSError, ValueError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if folder.stat().st_uid == os.getuid():
                if not (folder / _NAMESPACE).exists():
                    (folder / _NAMESPACE).write_text(pid_namespace())
                return Status(folder / str(rank), rank, size)
    return Status(None, rank, size)


def read_places(folder: Path | None) -> dict[int, Place]:
    """Return all records of a folder, by rank."""
    places: dict[int, Place] = {}
    if folder is None:
        return places
    try:
        paths = list(folder.iterdir())
    except OSError:
        return places
    for path in paths:
        if path.name.isdigit():
            with contextlib.suppress(OSError):
                place = parse_place(path.read_bytes())
                if place is not None:
                    places[place.rank] = place
    return places


def job_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder of this job's records on this host."""
    environ = os.environ if environ is None else environ
    if given := environ.get(FOLDER_VARIABLE):
        return Path(given)
    name = next((environ[name] for name in _NAMES if environ.get(name)), "")
    if not name and "SLURM_JOB_ID" in environ:
        restarts = environ.get("SLURM_RESTART_COUNT", "0")
        name = f"slurm-{environ['SLURM_JOB_ID']}.{environ.get('SLURM_STEP_ID', '')}-{restarts}"
    if not name:
        # The ranks of a host are the children of one daemon; its start tells it from an earlier one of its number.
        parent = os.getppid()
        name = f"child-of-{parent}-{start_of(parent)}"
    if "TORCHELASTIC_RESTART_COUNT" in environ:
        # torchrun starts ranks again from the same process.
        name += f"-{environ['TORCHELASTIC_RESTART_COUNT']}"
    return records_folder() / f"mgcaffe-{os.getuid()}-{_plain(name)}"


def end(state: int, code: int) -> None:
    """Say that this process ends (`Status.finish`); the last one of a host leaves no folder behind.

    On the host of `engine train -np` the folder is the launcher's, who reads it afterwards.
    """
    status.current().finish(state, code)
    path = status.current().path
    folder = path.parent if path is not None else None
    if folder is None or is_launchers(folder):
        return
    if not any(place.state == status.RUNNING and is_alive(place.pid) for place in read_places(folder).values()):
        remove_folder(folder)


def new_folder() -> Path:
    """Return a new folder for a job's records, which the caller removes."""
    folder = Path(tempfile.mkdtemp(prefix=f"mgcaffe-{os.getuid()}-", dir=records_folder()))
    try:
        (folder / _NAMESPACE).write_text(pid_namespace())
        (folder / _OWNER).write_text(f"{os.getpid()} {start_of(os.getpid())}")
    except OSError:
        remove_folder(folder)
        raise
    return folder


def remove_folder(folder: Path) -> None:
    """Remove a folder of records with what is in it, as far as this process may."""
    shutil.rmtree(folder, ignore_errors=True)


def is_launchers(folder: Path | None = None) -> bool:
    """Return whether a folder (None: this job's) was made by a launcher on this host, who also removes it."""
    given = os.environ.get(FOLDER_VARIABLE)
    return given is not None and ((folder or Path(given)) / _OWNER).exists()


def launcher_pid() -> int | None:
    """Return the launcher `engine train -np` that started this process from this host and container, if one did."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        return None
    try:
        # On another host the folder is another one, which has no owner, or it is shared, and names the launcher's host.
        if (Path(folder) / _NAMESPACE).read_text() != pid_namespace():
            return None
        return int((Path(folder) / _OWNER).read_text().partition(" ")[0])
    except (OSError, ValueError):
        return None


def launcher_is_elsewhere() -> bool:
    """Return whether a launcher started this process from another host, which cannot read this one's records."""
    return FOLDER_VARIABLE in os.environ and launcher_pid() is None


def job_folders() -> list[Path]:
    """Return the folders of records of this user's jobs on this host."""
    return list(records_folder().glob(f"mgcaffe-{os.getuid()}-*"))


def processes_of(folder: Path) -> list[tuple[int, int]] | None:
    """Return the processes that a folder names, each with when it started (0: unknown).

    Returns:
        None for a folder of another container or host, whose processes cannot be seen from here; nothing for one that
        names none, as a full disk or a limit on file sizes leaves it.

    Raises:
        OSError, ValueError: it cannot be read.
    """
    namespace = folder / _NAMESPACE
    stated = namespace.read_text() if namespace.exists() else None
    places = read_places(folder).values()
    if (stated and stated != pid_namespace()) or (stated == "" and places):
        return None
    if any(place.host != socket.gethostname() for place in places):
        return None
    processes = [(place.pid, place.started) for place in places]
    owner = folder / _OWNER
    if owner.exists() and (text := owner.read_text()):
        pid, _, started = text.partition(" ")
        processes.append((int(pid), int(started or 0)))
    return processes


def records_folder() -> Path:
    """Return where the folders of all jobs lie: in memory, where there is such a thing."""
    memory = Path("/dev/shm")
    return memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())


def _plain(name: str) -> str:
    return re.sub(r"[^\w.@+-]", "_", name)[:100]
