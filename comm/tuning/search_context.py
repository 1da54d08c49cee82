"""What all phases of a search for a plan share: the ranks, the exchange, the layers, and the settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mgcaffe.comm.exchange.synchronizer import Synchronizer
from mgcaffe.comm.planning.cost import AffineCost, Cost
from mgcaffe.comm.planning.plan import Plan, Segment
from mgcaffe.comm.planning.schedules import make_plan
from mgcaffe.comm.transport.communicator import Communicator
from mgcaffe.comm.tuning.settings import TunerSettings


@dataclass(frozen=True)
class SearchContext:
    """What all phases of a search share.

    Attributes:
        communicator: the ranks; used between iterations.
        synchronizer: exchanges the gradients by the plan that it is given.
        segments: the layers with gradients.
        settings: how to look for a plan.
    """

    communicator: Communicator
    synchronizer: Synchronizer
    segments: Sequence[Segment]
    settings: TunerSettings

    @property
    def total_bytes(self) -> int:
        """The size of all gradients."""
        return sum(segment.count for segment in self.segments) * self.settings.element_bytes

    def make_plan(self, schedule: str, ready: Sequence[float], cost: Cost, bucket_bytes: float) -> Plan:
        """Return a schedule's plan for these layers; arguments as for `schedules.make_plan`."""
        element_bytes = self.settings.element_bytes
        return make_plan(schedule, self.segments, ready, cost, element_bytes=element_bytes, bucket_bytes=bucket_bytes)

    def plan_by_size(self, schedule: str, bucket_bytes: float, *, blocking: bool) -> Plan:
        """Return a plan of a schedule that merges by the layers' sizes alone, so that nothing need be measured."""
        plan = self.make_plan(schedule, [0.0] * len(self.segments), AffineCost(0.0, 0.0), bucket_bytes)
        return replace(plan, blocking=blocking)
