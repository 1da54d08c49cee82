"""What is said of ranks on other hosts, whose records the launcher cannot see: passed on unchanged, and read.

mpirun names the process that a signal ended. The lowest rank that outlives another one on its host prints that rank's
block. Ranks that lose their connection to a dead one are ended by MPI themselves, also on the launcher's host, and
must not be taken for the cause.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import threading
import time
from collections.abc import Mapping
from typing import IO

from mgcaffe.comm.supervision.status import Place
from mgcaffe.comm.supervision.verdict import UNEXPLAINED, lost_block, name_signal

_MAX_KEPT = 1 << 18
_PIECE = select.PIPE_BUF
_SLOW = 10
"""So many times longer than for mpirun the relay waits for whoever reads standard error, and may read by the line."""
_TAGS = re.compile(r"^(?:\[[^]\n]*\])+<std(?:out|err|diag)>: ?", re.MULTILINE)
"""What mpirun puts before each line with --tag-output and --timestamp-output."""
_SIGNALLED = re.compile(r"process rank (\d+) with PID (\d+) on node (\S+) exited on\s+signal (\d+)")
_LOST = re.compile(
    r"error: (rank (\d+) of \d+ on \S+ \(process \d+\)) " + re.escape(UNEXPLAINED) + r"\n"
    r"(  iteration: .*\n  doing: .*\n  the other ranks end with it)"
)


class Relay:
    """Passes a stream on to standard error, byte by byte, and keeps what it has said.

    Args:
        stream: the reading end of mpirun's standard error, in binary.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
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
            patience = seconds * _SLOW if self._writing else seconds
            left = max(began, self._moved) + patience - time.monotonic()
            if left <= 0:
                break
            self._thread.join(min(left, seconds))
        return bytes(self._kept).replace(b"\r\n", b"\n").decode(errors="replace")

    def _run(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while data := os.read(self._stream.fileno(), 1 << 16):
                self._moved = time.monotonic()
                self._kept += data
                del self._kept[:-_MAX_KEPT]
                self._writing = True
                with contextlib.suppress(OSError):
                    self._pass_on(data)
                self._writing = False

    def _pass_on(self, data: bytes) -> None:
        while data:
            data = data[write_some(data) :]
            self._moved = time.monotonic()


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


def cause_named(text: str, places: Mapping[int, Place], size: int) -> str:
    """Return the block on the rank that went first, as far as a job's output names it; empty if it does not.

    Args:
        text: what mpirun and the ranks have said.
        places: the records of the launcher's host.
        size: how many ranks the job has.
    """
    text = _TAGS.sub("", text)
    blocks = {int(match[2]): match for match in reversed(list(_LOST.finditer(text)))}
    signalled = _SIGNALLED.search(text)
    if signalled is None:
        first = min(blocks.values(), key=lambda match: match.start(), default=None)
        return f"{first[1]} {UNEXPLAINED}\n{first[3]}" if first else ""
    rank, pid, host, number = int(signalled[1]), signalled[2], signalled[3], int(signalled[4])
    how = f"was killed by {name_signal(number)}"
    if rank in places:
        return lost_block(places[rank], how)
    if rank in blocks:
        return f"{blocks[rank][1]} {how}\n{blocks[rank][3]}"
    reached = max((place.iteration for place in places.values()), default=-1)
    where = f"{reached}, as far as this host's ranks are" if reached >= 0 else "before the first"
    return (
        f"rank {rank} of {size} on {host} (process {pid}) {how}\n  iteration: {where}\n"
        f"  doing:     not known here, since no rank of {host} outlived it\n  the other ranks end with it"
    )
