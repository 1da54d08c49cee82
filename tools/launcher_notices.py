"""What is said of ranks on other hosts, whose records the launcher cannot see: passed on unchanged, and read.

mpirun names the process that a signal ended. The lowest rank that outlives another one on its host prints that rank's
block. Ranks that lose their connection to a dead one are ended by MPI themselves, also on the launcher's host, and
must not be taken for the cause.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Mapping
from typing import IO

from mgcaffe.comm.status import Place
from mgcaffe.comm.verdict import lost_block, name_signal

_MOST_KEPT = 1 << 18
_SIGNALLED = re.compile(r"process rank (\d+) with PID (\d+) on node (\S+) exited on\s+signal (\d+)")
_LOST = re.compile(
    r"error: (rank (\d+) of \d+ on \S+ \(process \d+\)) is gone without a word.*\n"
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
        self._thread = threading.Thread(target=self._run, name="mgcaffe relay", daemon=True)
        self._thread.start()

    def text(self, seconds: float) -> str:
        """What was said last, after waiting so long at most for the stream's end."""
        self._thread.join(seconds)
        return bytes(self._kept).replace(b"\r\n", b"\n").decode(errors="replace")

    def _run(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while data := os.read(self._stream.fileno(), 1 << 16):
                self._kept += data
                del self._kept[:-_MOST_KEPT]
                with contextlib.suppress(OSError):
                    while data:
                        data = data[os.write(2, data) :]


def cause_named(text: str, places: Mapping[int, Place], size: int) -> str:
    """The block on the rank that went first, as far as a job's output names it; empty if it does not.

    Args:
        text: what mpirun and the ranks have said.
        places: the records of the launcher's host.
        size: how many ranks the job has.
    """
    blocks = {int(match[2]): match for match in reversed(list(_LOST.finditer(text)))}
    signalled = _SIGNALLED.search(text)
    if signalled is None:
        first = min(blocks.values(), key=lambda match: match.start(), default=None)
        return f"{first[1]} is gone: killed, crashed, or ended by a library\n{first[3]}" if first else ""
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
