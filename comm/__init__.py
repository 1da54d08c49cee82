"""Communication: communicators, the cost of an all-reduce, schedules, the background reducer.

It knows tensors and times, not nets, and imports nothing of this project but `mgcaffe.errors`. Names are
loaded when first used, so that importing this package loads neither torch nor MPI.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mgcaffe.comm.exchange.comm_report import CommReport, GroupTimes
    from mgcaffe.comm.exchange.merged_all_reduce import MergedAllReduce
    from mgcaffe.comm.exchange.reducer import Reducer
    from mgcaffe.comm.exchange.synchronizer import NoSynchronizer, Synchronizer
    from mgcaffe.comm.planning.cost import AffineCost, AllReduceCost, Cost, cost_from_json
    from mgcaffe.comm.planning.networks import Network, parse_network
    from mgcaffe.comm.planning.plan import Group, Plan, Segment, ready_times
    from mgcaffe.comm.planning.plan_file import PlanBasis, plan_text, read_plan
    from mgcaffe.comm.planning.schedules import SCHEDULES, make_plan
    from mgcaffe.comm.planning.simulator import Result, simulate
    from mgcaffe.comm.planning.trace import Trace, TraceLayer, read_trace, write_trace
    from mgcaffe.comm.supervision.guard import run_guarded
    from mgcaffe.comm.transport.communicator import Communicator, SingleCommunicator, Waiting
    from mgcaffe.comm.transport.connect import connect
    from mgcaffe.comm.transport.environment import Launch, detect
    from mgcaffe.comm.transport.handshake import handshake
    from mgcaffe.comm.transport.threaded import ThreadedCommunicator, run_ranks
    from mgcaffe.comm.tuning.calibration import agree_times, measure_allreduce

_NAMES_OF_MODULE = {
    "tuning.calibration": ("agree_times", "measure_allreduce"),
    "exchange.comm_report": ("CommReport", "GroupTimes"),
    "transport.communicator": ("Communicator", "SingleCommunicator", "Waiting"),
    "transport.connect": ("connect",),
    "planning.cost": ("AffineCost", "AllReduceCost", "Cost", "cost_from_json"),
    "supervision.guard": ("run_guarded",),
    "transport.handshake": ("handshake",),
    "transport.environment": ("Launch", "detect"),
    "planning.networks": ("Network", "parse_network"),
    "planning.plan": ("Group", "Plan", "Segment", "ready_times"),
    "planning.plan_file": ("PlanBasis", "plan_text", "read_plan"),
    "planning.schedules": ("SCHEDULES", "make_plan"),
    "exchange.reducer": ("Reducer",),
    "planning.simulator": ("Result", "simulate"),
    "exchange.merged_all_reduce": ("MergedAllReduce",),
    "exchange.synchronizer": ("NoSynchronizer", "Synchronizer"),
    "transport.threaded": ("ThreadedCommunicator", "run_ranks"),
    "planning.trace": ("Trace", "TraceLayer", "read_trace", "write_trace"),
}
_MODULE_OF = {name: module for module, names in _NAMES_OF_MODULE.items() for name in names}

__all__ = [
    "SCHEDULES",
    "AffineCost",
    "AllReduceCost",
    "CommReport",
    "Communicator",
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


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
