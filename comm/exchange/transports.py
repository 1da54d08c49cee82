"""Over what gradients travel: the ranks' own transport (MPI, or gloo under torchrun), or another one beside it.

| transport | ranks started by mpirun                        | by torchrun          | gradients on a GPU         |
|-----------|------------------------------------------------|----------------------|----------------------------|
| `mpi`     | their own                                      | refused              | staged in the host's memory|
| `gloo`    | a process group; ranks find each other by MPI  | their own            | staged in the host's memory|
| `nccl`    | a process group; ranks find each other by MPI  | a process group      | stay there; needs a GPU    |

Everything but gradients stays on the ranks' own transport.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mgcaffe.comm.transport.communicator import Communicator, Waiting, name_ranks
from mgcaffe.errors import UsageError

if TYPE_CHECKING:
    import torch

AUTO = "auto"
_ONE_WAY_TO_WAIT = ("gloo", "nccl")


def choose_transport(asked: str, ranks: Communicator, device: str, *, is_plain: bool, has_nccl: bool) -> str:
    """Return over what gradients travel, the same on all ranks; a collective call.

    Args:
        asked: `auto`, `mpi`, `gloo` or `nccl`.
        ranks: all that exchange gradients.
        device: what tells this rank's GPU from the others of its host (`device_name`); empty: the CPU.
        is_plain: whether gradients travel as they are, by one all-reduce.
        has_nccl: whether this rank's PyTorch has NCCL.

    Raises:
        UsageError: on all ranks: what was asked for cannot be done here.
    """
    known = ranks.allgather((f"{ranks.host} {device}" if device else "", has_nccl))
    devices, all_have_nccl = [each for each, _ in known], all(has for _, has in known)
    if asked == "mpi" and ranks.transport == "gloo":
        raise UsageError(
            "transport mpi needs ranks that were started by mpirun, and torchrun has started these",
            hint="start them by `mpirun -n N engine train ...`, or leave --transport out",
        )
    if asked not in (AUTO, "nccl"):
        return asked
    problem = _what_prevents_nccl(devices, all_have_nccl, is_plain)
    if asked == AUTO:
        return ranks.transport if problem else "nccl"
    if problem:
        raise UsageError(f"transport nccl is not possible: {problem}", hint="leave --transport out, or choose another")
    return asked


def _what_prevents_nccl(devices: list[str], all_have_nccl: bool, is_plain: bool) -> str:
    on_host = [rank for rank, device in enumerate(devices) if not device]
    if on_host:
        return f"{name_ranks(on_host)} compute on the CPU (--gpu chooses a GPU)"
    if not all_have_nccl:
        return "PyTorch was built without NCCL"
    if len(set(devices)) < len(devices):
        return "several ranks share a GPU"
    if not is_plain:
        return "16-bit gradients (allreduce_type) and sums by hosts (hierarchical) need the host's memory"
    return ""


def has_nccl() -> bool:
    """Return whether PyTorch was built with NCCL."""
    import torch.distributed as dist

    return dist.is_available() and dist.is_nccl_available()


def device_name(device: torch.device) -> str:
    """Return what tells a GPU from the others of its host; empty for the CPU."""
    if device.type != "cuda":
        return ""
    import torch

    properties: Any = torch.cuda.get_device_properties(device)
    return str(getattr(properties, "uuid", device))


def waits_in_one_way(transport: str, ranks: Communicator) -> bool:
    """Return whether the way of waiting (`Waiting`) makes no difference."""
    return (transport or ranks.transport) in _ONE_WAY_TO_WAIT


def open_channel(ranks: Communicator, transport: str, waiting: Waiting | None = None) -> Communicator:
    """Return the communicator on which another thread exchanges gradients; a collective call.

    Args:
        ranks: all that exchange gradients.
        transport: from `choose_transport`; empty: their own. Beside NCCL a duplicate of their own serves.
        waiting: how its thread waits.
    """
    if transport != "gloo" or ranks.transport == "gloo":
        return ranks.duplicate(waiting)
    from mgcaffe.comm.transport.process_group import LONG_S, ProcessGroupCommunicator
    from mgcaffe.comm.transport.rendezvous import place_through

    return ProcessGroupCommunicator(place=place_through(ranks), timeout_s=LONG_S)
