"""How many threads of computation a rank may start, and whether its launcher has bound it to too few cores.

Open MPI binds each of two ranks to one core by default. The reducer's thread then shares that core with the
backward pass, and on a host of sixteen cores fourteen stay idle. Users don't notice, so a warning says it.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


@dataclass(frozen=True)
class CoreShare:
    """A rank's share of its host.

    Attributes:
        threads: the number of threads to compute with, at least 1 (`torch.set_num_threads`).
        available: the number of cores the rank may run on.
        warning: what to tell the user, or None.
    """

    threads: int
    available: int
    warning: str | None = None


def share_of_cores(
    mine: frozenset[int], launchers: frozenset[int], local_size: int, quota: float = math.inf
) -> CoreShare:
    """Return the share of a rank that may run on the cores `mine`.

    Args:
        mine: the cores this process may run on.
        launchers: those the process that started it may run on. A strict superset of `mine` means that the
            launcher has bound this rank.
        local_size: the number of ranks on this host.
        quota: the cores' worth of time that the container allows.
    """
    host = max(len(mine), len(launchers & mine) and len(launchers))
    fair = max(1, int(min(host, quota)) // local_size)
    threads = max(1, min(len(mine), fair))
    bound = mine < launchers
    if bound and (len(mine) < fair or len(mine) == 1):
        cores = f"{len(mine)} core{'s' if len(mine) > 1 else ''}"
        return CoreShare(
            threads,
            len(mine),
            f"this rank is bound to {cores} of the host's {len(launchers)}, which its communication thread "
            "shares; start mpirun with --bind-to none (srun with --cpu-bind=none)",
        )
    return CoreShare(threads, len(mine))


def find_share(local_size: int) -> CoreShare:
    """Return this process's share, from its own affinity, its parent's, and the container's quota."""
    mine = frozenset(os.sched_getaffinity(0))
    try:
        parents = frozenset(os.sched_getaffinity(os.getppid()))
    except OSError:
        parents = mine
    return share_of_cores(mine, parents, local_size, read_quota())


def read_quota(path: Path = _CGROUP_QUOTA) -> float:
    """Return the cores' worth of time that the control group allows, infinity where there is no limit."""
    try:
        limit, period = path.read_text().split()
        return math.inf if limit == "max" else max(1.0, int(limit) / int(period))
    except (OSError, ValueError):
        return math.inf
