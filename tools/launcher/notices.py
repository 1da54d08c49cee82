"""What is said of ranks on other hosts, whose records the launcher cannot see: passed on, and read.

mpirun names the process that a signal ended. The lowest rank that outlives another one on its host prints that rank's
block, with its record attached (`verdict.attached_record`), which is not passed on. Ranks that lose their connection to
a dead one are ended by MPI themselves, also on the launcher's host, and must not be taken for the cause.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO

from mgcaffe.comm.supervision.status import Place
from mgcaffe.comm.supervision.verdict import RECORD_SEPARATOR, lost_block, name_signal, read_attached_record

_MAX_KEPT = 1 << 18
_PIECE = select.PIPE_BUF
_SLOW_READER_FACTOR = 10
"""So many times longer than for mpirun the relay waits for whoever reads standard error, and may read by the line."""
_MAX_RECORD = 1 << 12
"""The bytes after which what follows a record separator is no record, and passed on."""
_TAGS = re.compile(r"^(?:\[[^]\n]*\])+<std(?:out|err|diag)>: ?", re.MULTILINE)
"""What mpirun puts before each line with --tag-output and --timestamp-output."""
_SIGNAL_NOTICE = re.compile(r"process rank (\d+) with PID (\d+) on node (\S+) exited on\s+signal (\d+)")


class RecordFilter:
    """Takes the records that ranks attach to their output out of a stream.

    Attributes:
        records: of ranks that were lost, in the order of their coming.
    """

    def __init__(self) -> None:
        self.records: list[Place] = []
        self._begun = b""  # a record whose end has not come

    def feed(self, data: bytes) -> bytes:
        """Return what is no record, of the stream's next bytes; the beginning of a record is kept back."""
        separator = RECORD_SEPARATOR.encode()
        text, *begun = (self._begun + data).split(separator)
        self._begun = b""
        for index, piece in enumerate(begun):
            record, end, rest = piece.partition(b"\n")
            if not end and index == len(begun) - 1 and len(record) < _MAX_RECORD:
                self._begun = separator + record
                break
            place = read_attached_record(record.decode(errors="replace"))
            if place is None:
                text += separator + piece
            else:
                self.records.append(place)
                text += end + rest
        return text

    def flush(self) -> bytes:
        """Return what was kept back, at the end of the stream."""
        text, self._begun = self._begun, b""
        return text


class Relay:
    """Passes a stream on to standard error, byte by byte but for attached records, and keeps what it has said.

    Args:
        stream: the reading end of mpirun's standard error, in binary.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._filter = RecordFilter()
        self._kept = bytearray()
        self._writing = False
        self._moved = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="mgcaffe relay", daemon=True)
        self._thread.start()

    def text(self, seconds: float) -> str:
        """Return what was said last, after waiting for the stream's end.

        Args:
            seconds: for how long nothing may move; ten times as long where the reader of standard error is waited for.
        """
        began = time.monotonic()
        while self._thread.is_alive():
            patience = seconds * _SLOW_READER_FACTOR if self._writing else seconds
            left = max(began, self._moved) + patience - time.monotonic()
            if left <= 0:
                break
            self._thread.join(min(left, seconds))
        return bytes(self._kept).replace(b"\r\n", b"\n").decode(errors="replace")

    @property
    def records(self) -> Sequence[Place]:
        """The records of lost ranks that came with the stream."""
        return self._filter.records

    def _run(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while data := os.read(self._stream.fileno(), 1 << 16):
                self._moved = time.monotonic()
                self._pass_on(self._filter.feed(data))
        self._pass_on(self._filter.flush())

    def _pass_on(self, data: bytes) -> None:
        self._kept += data
        del self._kept[:-_MAX_KEPT]
        self._writing = True
        with contextlib.suppress(OSError):
            while data:
                data = data[write_some(data) :]
                self._moved = time.monotonic()
        self._writing = False


def write_some(data: bytes) -> int:
    """Write the beginning of some bytes to standard error, as soon as it takes any; give how many.

    Raises:
        OSError: its reader is gone.
    """
    while True:
        try:
            # A pipe that takes anything takes a piece, so a slow reader is seen to read.
            select.select([], [2], [])
            return os.write(2, data[:_PIECE])
        except BlockingIOError:
            # Someone else was quicker.
            continue


def cause_named(text: str, lost: Sequence[Place], places: Mapping[int, Place], size: int) -> str:
    """Return the block on the rank that went first, as far as a job's output names it; empty if it does not.

    Args:
        text: what mpirun and the ranks have said.
        lost: the records that survivors attached to it.
        places: the records of the launcher's host.
        size: how many ranks the job has.
    """
    signalled = _SIGNAL_NOTICE.search(_TAGS.sub("", text))
    if signalled is None:
        return lost_block(lost[0]) if lost else ""
    rank, pid, host, number = int(signalled[1]), signalled[2], signalled[3], int(signalled[4])
    how = f"was killed by {name_signal(number)}"
    known = {place.rank: place for place in reversed(lost)} | dict(places)
    if rank in known:
        return lost_block(known[rank], how)
    reached = max((place.iteration for place in places.values()), default=-1)
    where = f"{reached}, as far as this host's ranks are" if reached >= 0 else "before the first"
    return (
        f"rank {rank} of {size} on {host} (process {pid}) {how}\n  iteration: {where}\n"
        f"  doing:     not known here, since no rank of {host} outlived it\n  the other ranks end with it"
    )
