"""The wire: communicators, the cost of an all-reduce, schedules, the background reducer.

It knows tensors and times, not nets, and imports nothing of this project but `mgcaffe.errors`. Names are
loaded when first used, so that importing this package loads neither torch nor MPI.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mgcaffe.comm.calibration import agree_times, measure_allreduce
    from mgcaffe.comm.comm_report import CommReport, GroupTimes
    from mgcaffe.comm.communicator import Communicator, SingleCommunicator, Waiting, connect
    from mgcaffe.comm.cores import CoreShare, find_share
    from mgcaffe.comm.cost import AffineCost, AllReduceCost, Cost, cost_from_json
    from mgcaffe.comm.guard import run_guarded
    from mgcaffe.comm.handshake import handshake
    from mgcaffe.comm.launch import Launch, detect
    from mgcaffe.comm.networks import Network, parse_network
    from mgcaffe.comm.plan import Group, Plan, Segment, ready_times
    from mgcaffe.comm.plan_file import PlanBasis, plan_text, read_plan
    from mgcaffe.comm.planners import SCHEDULES, make_plan
    from mgcaffe.comm.reducer import Reducer
    from mgcaffe.comm.simulator import Result, simulate
    from mgcaffe.comm.synchronizer import MergedAllReduce, NoSynchronizer, Synchronizer
    from mgcaffe.comm.threaded import ThreadedCommunicator, run_ranks
    from mgcaffe.comm.trace import Trace, TraceLayer, read_trace, write_trace

_HOMES = {
    "calibration": ("agree_times", "measure_allreduce"),
    "comm_report": ("CommReport", "GroupTimes"),
    "communicator": ("Communicator", "SingleCommunicator", "Waiting", "connect"),
    "cores": ("CoreShare", "find_share"),
    "cost": ("AffineCost", "AllReduceCost", "Cost", "cost_from_json"),
    "guard": ("run_guarded",),
    "handshake": ("handshake",),
    "launch": ("Launch", "detect"),
    "networks": ("Network", "parse_network"),
    "plan": ("Group", "Plan", "Segment", "ready_times"),
    "plan_file": ("PlanBasis", "plan_text", "read_plan"),
    "planners": ("SCHEDULES", "make_plan"),
    "reducer": ("Reducer",),
    "simulator": ("Result", "simulate"),
    "synchronizer": ("MergedAllReduce", "NoSynchronizer", "Synchronizer"),
    "threaded": ("ThreadedCommunicator", "run_ranks"),
    "trace": ("Trace", "TraceLayer", "read_trace", "write_trace"),
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
    "Network",
    "NoSynchronizer",
    "Plan",
    "PlanBasis",
    "Reducer",
    "Result",
    "Segment",
    "SingleCommunicator",
    "Synchronizer",
    "ThreadedCommunicator",
    "Trace",
    "TraceLayer",
    "Waiting",
    "agree_times",
    "connect",
    "cost_from_json",
    "detect",
    "find_share",
    "handshake",
    "make_plan",
    "measure_allreduce",
    "parse_network",
    "plan_text",
    "read_plan",
    "read_trace",
    "ready_times",
    "run_guarded",
    "run_ranks",
    "simulate",
    "write_trace",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
