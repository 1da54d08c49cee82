"""Which ranks train a module: those of a torch.distributed process group, of the job, or this process alone."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from mgcaffe.comm import Communicator, connect
from mgcaffe.errors import CommError, UsageError
from mgcaffe.pytorch.failures import watch_ranks

_job: list[Communicator] = []


def default_group() -> dist.ProcessGroup | None:
    """Return the default process group of torch.distributed, None where there is none."""
    if dist.is_available() and dist.is_initialized():
        return dist.group.WORLD
    return None


def find_communicator(group: dist.ProcessGroup | Communicator | None, peer_timeout_s: float) -> Communicator:
    """Return a communicator of our own among the ranks that train a module; a collective call.

    Args:
        group: a process group, or a communicator; None: the default process group if torch.distributed is initialized,
            else all ranks of the job if mpirun or torchrun started this process, else this process alone.
        peer_timeout_s: after how many seconds of silence a rank counts as dead; 0: never.

    Raises:
        CommError: the ranks cannot reach each other.
        UsageError: this process is not in the group.
    """
    if group is None:
        group = default_group()
    if group is None:
        if not _job:
            _job.append(connect())
        group = _job[0]
    if isinstance(group, int):  # GroupMember.NON_GROUP_MEMBER, which new_group returned
        raise UsageError(
            "this process is no member of the process group", hint="wrap the module in the group's own processes alone"
        )
    if isinstance(group, dist.ProcessGroup):
        from mgcaffe.comm.transport.process_group import ProcessGroupCommunicator

        made: Communicator = ProcessGroupCommunicator(group)
    else:
        made = group.duplicate()
    watch_ranks(made, group, peer_timeout_s)
    return made


def shared_group(group: Any) -> dist.ProcessGroup:
    """Return the process group that `join` needs, which counts the ranks that still have inputs.

    Raises:
        CommError: the ranks have none.
    """
    if isinstance(group, dist.ProcessGroup):
        return group
    found = default_group() if group is None else None
    if found is None:
        raise CommError(
            "join() needs a process group of torch.distributed, by which its context manager counts the ranks",
            hint="call torch.distributed.init_process_group('gloo') before the module is wrapped",
        )
    return found
