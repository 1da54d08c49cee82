"""The processes of this host, as the kernel shows them in /proc."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path


def start_of(pid: int) -> int:
    """Return when a process started, in the kernel's ticks since boot; 0: unknown, or gone."""
    return int(next(iter(_process_fields(pid)[19:20]), 0))


def _process_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name, the state first; empty if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def is_alive(pid: int, started: int = 0) -> bool:
    """Return whether a process of this host runs, or is stopped.

    Args:
        pid: its number.
        started: when it started (`Place.started`); one that started at another time is another one. 0: unknown.
    """
    return process_state(pid) not in ("", "Z", "X") and started in (0, start_of(pid))


def process_state(pid: int) -> str:
    """Return the kernel's letter for what a process does: R, S, D, T (stopped), t (traced), Z (dead); empty if gone."""
    return next(iter(_process_fields(pid)), "")


def pid_namespace() -> str:
    """Return what tells the process ids of one host, and of one container, from those of another."""
    namespace = ""
    with contextlib.suppress(OSError):
        namespace = str(Path("/proc/self/ns/pid").readlink())
    return f"{socket.gethostname()} {namespace}"
