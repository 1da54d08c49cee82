"""What this rank is doing, in a small record that others can read, also once the rank is dead.

Every process of a job maps a file of 512 bytes into its memory, `<folder>/<rank>`, and writes into it before each
layer, test and snapshot. The kernel keeps the file when the process is killed, so the launcher, or another rank
on the same host, can say where it was. A write costs about a microsecond and no system call.

The folder lies in memory (/dev/shm) where there is such a thing, and belongs to one job on one host: the launcher
`engine train -np` makes it and hands on its name; ranks that something else started derive it from what their
launcher calls the job.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import shutil
import socket
import struct
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER_VARIABLE = "MGCAFFE_STATUS_DIR"
"""The environment variable by which the launcher names the folder."""

RUNNING, ENDED, FAILED = 0, 1, 2

SIZE = 512
_MAGIC = b"MGRANK01"
_HEADER = struct.Struct("<8siii")
_STATE = struct.Struct("<iii")
_COUNT = struct.Struct("<q")
_STATE_AT, _ITERATION_AT, _BEAT_AT, _STARTED_AT, _HOST_AT, _DOING_AT = 24, 40, 48, 56, 64, 192
_ROLE_AT = 384
_HOST_SIZE, _DOING_SIZE, _ROLE_SIZE = 128, 192, 64
STARTING = "starting"
"""What a rank is doing before it knows any signal."""

_OWNER = "launcher"
_NAMESPACE = "pid-namespace"
_NAMES = ("PMIX_NAMESPACE", "PMI_JOBID", "MPIEXEC_JOBID")


@dataclass(frozen=True)
class Place:
    """A record that was read: where a rank was when it last wrote.

    Attributes:
        rank, size: its number and how many there are.
        pid, host: its process.
        state: RUNNING, ENDED (it said so itself) or FAILED (it has reported its error).
        code: its exit code, once it has ended or failed.
        terminated: whether it was sent SIGTERM a moment ago.
        iteration: updates done, -1 before training.
        beat: how often it has written.
        doing: what it was doing, in words.
        started: when the process started, in the kernel's ticks since boot; 0: unknown.
        role: what the rank is in a job of trainers and servers; empty in others.
    """

    rank: int
    size: int
    pid: int
    host: str
    state: int
    code: int
    terminated: bool
    iteration: int
    beat: int
    doing: str
    started: int = 0
    role: str = ""

    @property
    def is_server(self) -> bool:
        """Whether the rank serves others, and so counts no iterations."""
        return self.role.endswith("server")

    def describe(self) -> str:
        """Return `iteration 120, backward, layer 'conv1'`."""
        return f"iteration {self.iteration}, {self.doing}" if self.iteration >= 0 else self.doing


def _start_of(pid: int) -> int:
    """Return when a process started, in the kernel's ticks since boot; 0: unknown, or gone."""
    return int(next(iter(_process_fields(pid)[19:20]), 0))


def _process_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name, the state first; empty if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _padded(text: str, size: int) -> bytes:
    return text.encode(errors="replace")[:size].ljust(size, b"\0")


def encode(text: str) -> bytes:
    """Return a text for `Status.doing`."""
    return _padded(text, _DOING_SIZE)


class Status:
    """The record of this process.

    Args:
        path: the file; None: memory that no other process sees.
        rank, size: this rank's number and how many there are.

    Attributes:
        beat: how often it was written.
        background_beat: how often a thread beside training, which keeps replicas together, has got on; None: there is
            none. It is not part of the record.
        tolerated: the ranks whose death does not end this one. Not part of the record either.
    """

    def __init__(self, path: Path | None = None, rank: int = 0, size: int = 1) -> None:
        self.path = path
        self.rank = rank
        self.size = size
        self.host = socket.gethostname()
        self.beat = 0
        self.background_beat: int | None = None
        self.tolerated: frozenset[int] = frozenset()
        self._buffer = bytearray(SIZE) if path is None else _map(path)
        self._buffer[_HOST_AT : _HOST_AT + _HOST_SIZE] = _padded(self.host, _HOST_SIZE)
        self._buffer[_DOING_AT : _DOING_AT + _DOING_SIZE] = encode(STARTING)
        _COUNT.pack_into(self._buffer, _ITERATION_AT, -1)
        _COUNT.pack_into(self._buffer, _STARTED_AT, _start_of(os.getpid()))
        # The magic comes last: a record that has it is whole.
        _HEADER.pack_into(self._buffer, 0, _MAGIC, rank, size, os.getpid())

    def doing(self, text: bytes) -> None:
        """Say what comes next; `text` is made by `encode`, once for each text."""
        self._buffer[_DOING_AT : _DOING_AT + _DOING_SIZE] = text
        self.beat += 1
        _COUNT.pack_into(self._buffer, _BEAT_AT, self.beat)

    def role(self, text: str) -> None:
        """Say what this rank is in a job of trainers and servers."""
        self._buffer[_ROLE_AT : _ROLE_AT + _ROLE_SIZE] = _padded(text, _ROLE_SIZE)

    def iteration(self, number: int) -> None:
        """Say how many updates have been done."""
        _COUNT.pack_into(self._buffer, _ITERATION_AT, number)

    def terminated(self, is_so: bool = True) -> None:
        """Note that SIGTERM came, or that this rank has outlived it, so that no process is ending the job."""
        _STATE.pack_into(self._buffer, _STATE_AT, *_STATE.unpack_from(self._buffer, _STATE_AT)[:2], int(is_so))

    def finish(self, state: int, code: int) -> None:
        """Say that this rank ends of its own accord: ENDED, or FAILED alone with its error reported."""
        flag = _STATE.unpack_from(self._buffer, _STATE_AT)[2]
        _STATE.pack_into(self._buffer, _STATE_AT, state, code, flag)

    def read(self) -> Place:
        """Return the record as others see it."""
        place = _parse(bytes(self._buffer))
        assert place is not None
        return place


_current = Status()


def current() -> Status:
    """Return the record of this process."""
    return _current


def use(status: Status) -> None:
    """Make `status` this process's record."""
    global _current
    _current = status


def doing(text: str) -> None:
    """Say what comes next; for what happens seldom."""
    _current.doing(encode(text))


def open_status(folder: Path | None, rank: int, size: int) -> Status:
    """Return a record in a folder, or in memory alone where none can be written."""
    if folder is not None:
        with contextlib.suppress(OSError, ValueError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if folder.stat().st_uid == os.getuid():
                if not (folder / _NAMESPACE).exists():
                    (folder / _NAMESPACE).write_text(_pid_namespace())
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
                place = _parse(path.read_bytes())
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
        name = f"child-of-{parent}-{_start_of(parent)}"
    if "TORCHELASTIC_RESTART_COUNT" in environ:
        # torchrun starts ranks again from the same process.
        name += f"-{environ['TORCHELASTIC_RESTART_COUNT']}"
    return records_folder() / f"mgcaffe-{os.getuid()}-{_plain(name)}"


def end(state: int, code: int) -> None:
    """Say that this process ends (`Status.finish`); the last one of a host leaves no folder behind.

    On the host of `engine train -np` the folder is the launcher's, who reads it afterwards.
    """
    _current.finish(state, code)
    folder = _current.path.parent if _current.path is not None else None
    if folder is None or is_launchers(folder):
        return
    if not any(place.state == RUNNING and is_alive(place.pid) for place in read_places(folder).values()):
        remove_folder(folder)


def new_folder() -> Path:
    """Return a new folder for a job's records, which the caller removes."""
    folder = Path(tempfile.mkdtemp(prefix=f"mgcaffe-{os.getuid()}-", dir=records_folder()))
    try:
        (folder / _NAMESPACE).write_text(_pid_namespace())
        (folder / _OWNER).write_text(f"{os.getpid()} {_start_of(os.getpid())}")
    except OSError:
        remove_folder(folder)
        raise
    return folder


def remove_folder(folder: Path) -> None:
    """Remove a folder of records with what is in it, as far as this process may."""
    shutil.rmtree(folder, ignore_errors=True)


def is_alive(pid: int, started: int = 0) -> bool:
    """Return whether a process of this host runs, or is stopped.

    Args:
        pid: its number.
        started: when it started (`Place.started`); one that started at another time is another one. 0: unknown.
    """
    return process_state(pid) not in ("", "Z", "X") and started in (0, _start_of(pid))


def process_state(pid: int) -> str:
    """Return the kernel's letter for what a process does: R, S, D, T (stopped), t (traced), Z (dead); empty if gone."""
    return next(iter(_process_fields(pid)), "")


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
        if (Path(folder) / _NAMESPACE).read_text() != _pid_namespace():
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
    if (stated and stated != _pid_namespace()) or (stated == "" and places):
        return None
    if any(place.host != socket.gethostname() for place in places):
        return None
    processes = [(place.pid, place.started) for place in places]
    owner = folder / _OWNER
    if owner.exists() and (text := owner.read_text()):
        pid, _, started = text.partition(" ")
        processes.append((int(pid), int(started or 0)))
    return processes


def _pid_namespace() -> str:
    """Return what tells the process ids of one host, and of one container, from those of another."""
    namespace = ""
    with contextlib.suppress(OSError):
        namespace = str(Path("/proc/self/ns/pid").readlink())
    return f"{socket.gethostname()} {namespace}"


def records_folder() -> Path:
    """Return where the folders of all jobs lie: in memory, where there is such a thing."""
    memory = Path("/dev/shm")
    return memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())


def _plain(name: str) -> str:
    return re.sub(r"[^\w.@+-]", "_", name)[:100]


def _map(path: Path) -> mmap.mmap:
    # A file of an earlier process is left to whoever still has it mapped.
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.ftruncate(descriptor, SIZE)
        return mmap.mmap(descriptor, SIZE)
    finally:
        os.close(descriptor)


def _parse(content: bytes) -> Place | None:
    if len(content) < SIZE or not content.startswith(_MAGIC):
        return None
    _, rank, size, pid = _HEADER.unpack_from(content)
    state, code, terminated = _STATE.unpack_from(content, _STATE_AT)
    return Place(
        rank,
        size,
        pid,
        _text(content, _HOST_AT, _HOST_SIZE),
        state,
        code,
        bool(terminated),
        _COUNT.unpack_from(content, _ITERATION_AT)[0],
        _COUNT.unpack_from(content, _BEAT_AT)[0],
        _text(content, _DOING_AT, _DOING_SIZE),
        _COUNT.unpack_from(content, _STARTED_AT)[0],
        _text(content, _ROLE_AT, _ROLE_SIZE),
    )


def _text(content: bytes, start: int, size: int) -> str:
    return content[start : start + size].rstrip(b"\0").decode(errors="replace")
