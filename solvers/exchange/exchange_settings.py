"""What a solver's parameters ask of the exchange of gradients: schedule, plan file, type, link, overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mgcaffe.comm import AffineCost, Communicator, Plan, Segment, make_plan, read_plan
from mgcaffe.comm.exchange.emulation import parse_link
from mgcaffe.comm.exchange.sums.base import TransferSettings
from mgcaffe.comm.exchange.sums.hierarchy import number_hosts
from mgcaffe.comm.exchange.transports import choose_transport, device_name, has_nccl
from mgcaffe.comm.planning.forward_overlap import Overlap, overlapping, waiting
from mgcaffe.comm.planning.schedules import check_schedule
from mgcaffe.comm.tuning.settings import AUTO, TunerSettings, TunerSteps
from mgcaffe.prototxt import SolverParameter
from mgcaffe.solvers.events import Emit, Noted, Warned

if TYPE_CHECKING:
    import torch

# Schedules that merge by the layers' sizes alone; the others start as `single`.
_NEED_NO_MEASURING = ("single", "wfbp", "threshold")


class ExchangeSettings:
    """The settings of one net's exchange.

    Args:
        param: the SolverParameter message.
        schedule: how gradients are merged (`comm.planning.schedules.SCHEDULES`, or `auto`); None: as the solver says.
        on_host: whether gradients lie in the host's memory.
        divides: whether sums are divided by the number of ranks.

    Attributes:
        schedule: how gradients are merged.
        overlap: whether the last groups may travel beside the next forward pass.
        transfer: in which type and over which link gradients travel.
        cost_file: the file that holds the costs of an all-reduce; empty: none.
        prevents_measuring: the setting by which nothing is measured; empty: plans are measured.

    Raises:
        CommError: an unknown schedule.
        UsageError: an emulated link that is not understood.
    """

    def __init__(self, param: SolverParameter, schedule: str | None, on_host: bool, *, divides: bool = True) -> None:
        self._comm = param.comm_param
        self._clips: bool = param.clip_gradients >= 0
        self._on_host = on_host
        self.schedule = str(schedule or requested_schedule(param))
        self.overlap = self._requested_overlap()
        check_schedule(self.schedule, AUTO)
        link = parse_link(self._comm.emulate_link) if self._comm.emulate_link else None
        allreduce_type = type(self._comm).WireType.Name(self._comm.allreduce_type).lower()
        self.transfer = TransferSettings(allreduce_type, self._comm.hierarchical, link=link, divides=divides)
        self.cost_file: str = self._comm.cost_file
        self.prevents_measuring = ""
        if self._comm.deterministic:
            self.prevents_measuring = "deterministic is set"
        elif self._comm.calibration_iterations <= 0:
            self.prevents_measuring = "calibration_iterations is 0"

    @property
    def first_schedule(self) -> str:
        """By which schedule gradients travel until something is measured."""
        return self.schedule if self.schedule in _NEED_NO_MEASURING else "single"

    def first_plan(self, segments: Sequence[Segment], element_bytes: int) -> Plan:
        """Return the plan of `first_schedule`, which needs no measuring."""
        nothing = [0.0] * len(segments)
        plan = make_plan(
            self.first_schedule, segments, nothing, AffineCost(0.0, 0.0),
            element_bytes=element_bytes, bucket_bytes=self._bucket_bytes,
        )  # fmt: skip
        return overlapping(plan) if self.overlap is Overlap.ALWAYS else plan

    def merges_as(self, plan: Plan, segments: Sequence[Segment], element_bytes: int) -> bool:
        """Return whether a plan of this schedule has the groups that these settings make, as far as sizes alone say."""
        if self.schedule != self.first_schedule:
            return True
        due = self.first_plan(segments, element_bytes).groups
        return [(each.offset, each.count) for each in plan.groups] == [(each.offset, each.count) for each in due]

    def read_plan(self, communicator: Communicator, segments: Sequence[Segment], element_bytes: int) -> Plan | None:
        """Return rank 0's plan file for every rank, None where there is none; a collective call.

        One rank alone checks it as well, though it has no use for it.

        Raises:
            CommError: (on rank 0) it doesn't fit the net.
            DataError: (on rank 0) it cannot be read.
        """
        if not self._comm.plan_file:
            return None
        plan = None
        if communicator.rank == 0:
            plan = read_plan(self._comm.plan_file, segments, element_bytes)
        return communicator.broadcast_object(plan)

    def allowed(self, plan: Plan) -> Plan:
        """Return a plan that was found elsewhere with what this solver says of `overlap_forward`, if anything."""
        if self._clips or self._comm.HasField("overlap_forward"):
            return overlapping(plan) if self.overlap is Overlap.ALWAYS else waiting(plan)
        return plan

    def tuner_settings(self, element_bytes: int) -> TunerSettings:
        """Return how to look for a plan."""
        iterations = self._comm.calibration_iterations
        steps = TunerSteps(blocking_calls=self.transfer.transport not in ("gloo", "nccl"))
        return TunerSettings(
            self.schedule, element_bytes, iterations, self._bucket_bytes, self._on_host, self.overlap, steps
        )

    def transport(self, dtype: str) -> str:
        """Return how gradients of a type travel, as the key of a cost file says it."""
        text = f"{'host memory' if self._on_host else 'staged from a GPU'}, {dtype}"
        if self.transfer.transport == "nccl":
            text = f"GPU memory over NCCL, {dtype}"
        elif self.transfer.transport == "gloo":
            text += ", gloo"
        if self.transfer.type != "float32":
            text += f" as {self.transfer.type}"
        if self.transfer.hierarchical:
            text += ", hierarchical"
        if self.transfer.link is not None:
            text += f", emulated link {self._comm.emulate_link}"
        return text

    def choose_transport(self, communicator: Communicator, device: torch.device, emit: Emit) -> None:
        """Decide over what gradients travel, and say so where it isn't the ranks' own transport; a collective call.

        Raises:
            UsageError: (on all ranks) what the solver asks for cannot be done here.
        """
        asked = AUTO
        if self._comm.HasField("transport"):
            asked = type(self._comm).Transport.Name(self._comm.transport).lower()
        plain = self.transfer.type == "float32" and not self.transfer.hierarchical
        name = device_name(device)
        chosen = choose_transport(asked, communicator, name, is_plain=plain, has_nccl=bool(name) and has_nccl())
        self.transfer = replace(self.transfer, transport=chosen)
        if chosen != communicator.transport:
            emit(Noted(f"Gradients travel over {chosen}, everything else over {communicator.transport}"))

    def announce(self, communicator: Communicator, emit: Emit, pinned: Plan | None = None) -> None:
        """Say that a link is emulated, and warn of what was asked for and has no effect; a collective call.

        Args:
            communicator: the ranks.
            emit: takes the events.
            pinned: the plan file's plan, as it stands there.
        """
        if self._comm.emulate_link:
            text = "each all-reduce of gradients sleeps until it has taken a + bM seconds; times of this run are no"
            emit(Noted(f"EMULATED LINK {self._comm.emulate_link}: {text} measurements of a network"))
        if self.transfer.hierarchical:
            hosts = len(set(number_hosts(communicator, self.transfer.hosts)))
            if hosts == 1 or hosts == communicator.size:
                where = "all ranks run on one host" if hosts == 1 else "each rank runs on a host of its own"
                emit(Warned(f"hierarchical has no effect: {where}"))
        overlaps: bool = self._comm.overlap_forward
        if pinned is not None and not self._comm.HasField("overlap_forward"):
            overlaps = pinned.overlaps_forward
        if overlaps and self._clips:
            why = "clip_gradients needs all gradients before the first update"
            emit(Warned(f"overlap_forward has no effect: {why}"))

    def warn_of_schedule(self, emit: Emit) -> None:
        """Warn where the schedule needs times and nothing is measured."""
        if self.first_schedule != self.schedule:
            why = f"{self.prevents_measuring}, so schedule '{self.schedule}' has nothing to plan with"
            emit(Warned(f"{why}: gradients are sent as by '{self.first_schedule}'"))

    @property
    def _bucket_bytes(self) -> float:
        return float(self._comm.bucket_mb * 2**20)

    def _requested_overlap(self) -> Overlap:
        """Return whether the last groups may travel beside the next forward pass; by default `auto` tries it."""
        if self._clips:
            return Overlap.NEVER
        if self._comm.HasField("overlap_forward"):
            return Overlap.ALWAYS if self._comm.overlap_forward else Overlap.NEVER
        return Overlap.TRY if self.schedule == AUTO and self._on_host else Overlap.NEVER


def requested_schedule(param: SolverParameter) -> str:
    """Return the schedule that a solver asks for; Caffe's `layer_wise_reduce: false` means one at the end."""
    comm = param.comm_param
    if not comm.HasField("schedule") and not param.layer_wise_reduce:
        return "single"
    return str(type(comm).Schedule.Name(comm.schedule)).lower()
