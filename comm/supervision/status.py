"""What this rank is doing, in a small record that others can read, also once the rank is dead.

Every process of a job maps a file of 512 bytes into its memory, and writes into it before each layer, test and
snapshot. The kernel keeps the file when the process is killed, so the launcher, or another rank on the same host, can
say where it was. A write costs about a microsecond and no system call. `record_folders.py` says where the files lie.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

from mgcaffe.comm.supervision.processes import start_of

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
        _COUNT.pack_into(self._buffer, _STARTED_AT, start_of(os.getpid()))
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
        place = parse_place(bytes(self._buffer))
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


def _map(path: Path) -> mmap.mmap:
    # A file of an earlier process is left to whoever still has it mapped.
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.ftruncate(descriptor, SIZE)
        return mmap.mmap(descriptor, SIZE)
    finally:
        os.close(descriptor)


def parse_place(content: bytes) -> Place | None:
    """Return what a record's file holds; None for one that is no record, or not yet whole."""
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
