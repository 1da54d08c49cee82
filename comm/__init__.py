"""The wire: communicators, the cost of an all-reduce, schedules, the background reducer.

It knows tensors and times, not nets, and imports nothing of this project but `mgcaffe.errors`. Names are
loaded when first used, so that importing this package loads neither torch nor MPI.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mgcaffe.comm.calibration import agree_times, measure_allreduce
    from mgcaffe.comm.communicator import Communicator, SingleCommunicator, Waiting, connect
    from mgcaffe.comm.cores import CoreShare, find_share
    from mgcaffe.comm.cost import AffineCost, AllReduceCost, Cost, cost_from_json
    from mgcaffe.comm.guard import run_guarded
    from mgcaffe.comm.handshake import handshake
    from mgcaffe.comm.launch import Launch, detect
    from mgcaffe.comm.plan import Group, Plan, Segment, ready_times
    from mgcaffe.comm.planners import SCHEDULES, make_plan
    from mgcaffe.comm.reducer import Reducer
    from mgcaffe.comm.synchronizer import (
        CommReport,
        GroupTimes,
        MergedAllReduce,
        NoSynchronizer,
        Synchronizer,
    )
    from mgcaffe.comm.threaded import ThreadedCommunicator, run_ranks

_HOMES = {
    "calibration": ("agree_times", "measure_allreduce"),
    "communicator": ("Communicator", "SingleCommunicator", "Waiting", "connect"),
    "cores": ("CoreShare", "find_share"),
    "cost": ("AffineCost", "AllReduceCost", "Cost", "cost_from_json"),
    "guard": ("run_guarded",),
    "handshake": ("handshake",),
    "launch": ("Launch", "detect"),
    "plan": ("Group", "Plan", "Segment", "ready_times"),
    "planners": ("SCHEDULES", "make_plan"),
    "reducer": ("Reducer",),
    "synchronizer": ("CommReport", "GroupTimes", "MergedAllReduce", "NoSynchronizer", "Synchronizer"),
    "threaded": ("ThreadedCommunicator", "run_ranks"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "SCHEDULES",
    "AffineCost",
    "AllReduceCost",
    "CommReport",
    "Communicator",
    "CoreShare",
    "Cost",
    "Group",
    "GroupTimes",
    "Launch",
    "MergedAllReduce",
    "NoSynchronizer",
    "Plan",
    "Reducer",
    "Segment",
    "SingleCommunicator",
    "Synchronizer",
    "ThreadedCommunicator",
    "Waiting",
    "agree_times",
    "connect",
    "cost_from_json",
    "detect",
    "find_share",
    "handshake",
    "make_plan",
    "measure_allreduce",
    "ready_times",
    "run_guarded",
    "run_ranks",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
