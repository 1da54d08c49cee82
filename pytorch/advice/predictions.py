"""Predicts an iteration with buckets of DistributedDataParallel, and with merged groups of `MergedGradientParallel`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mgcaffe.comm import Plan, Segment, make_plan
from mgcaffe.comm.planning.plan import Group
from mgcaffe.comm.planning.prediction import Channel, predict_plan
from mgcaffe.comm.planning.schedules import SCHEDULES
from mgcaffe.pytorch.advice.bucket_rules import MIB, BucketRules, Gradient
from mgcaffe.pytorch.advice.measurement import Measurement

_STEPS_PER_OCTAVE = 4
_LEAST_CAP_MB = 1 / 16


@dataclass(frozen=True)
class Prediction:
    """An iteration, from its forward pass until all gradients are means; without the optimizer.

    Attributes:
        name: of the buckets or groups: `bucket_cap_mb=5`, `mgwfbp`.
        bucket_cap_mb: what to give DistributedDataParallel; None: nothing, or something else (`name`).
        sizes: the bytes of each bucket or group, in the order of their all-reduces.
        iteration_s: seconds in all.
        exposed_s: the seconds of it in which there is only communication.
        backward_s: the seconds of the backward pass, longer than alone where communication slows it down.
        measured_s: seconds of an iteration with DistributedDataParallel itself; None: it was not tried.
    """

    name: str
    bucket_cap_mb: float | None
    sizes: tuple[int, ...]
    iteration_s: float
    exposed_s: float
    backward_s: float
    measured_s: float | None = None


class Predictor:
    """Predictions from one measurement.

    Args:
        measured: what was measured.
        names: the parameters that train, in the module's order.
        gradients: what DistributedDataParallel sends of each.
        merged_bytes: what `MergedGradientParallel` sends of each.
    """

    def __init__(
        self, measured: Measurement, names: Sequence[str], gradients: Sequence[Gradient], merged_bytes: Sequence[int]
    ) -> None:
        self._measured = measured
        self._gradients = gradients
        self._merged_bytes = merged_bytes
        number_of = {name: number for number, name in enumerate(names)}
        self._order = [number_of[name] for name in measured.order]
        self._ready = dict(zip(self._order, measured.ready, strict=True))

    def buckets(self, rules: BucketRules, cap_mb: float | None = None) -> Prediction:
        """Return what buckets by these rules would take."""
        buckets = rules.buckets(self._gradients, self._order)
        sizes = [sum(self._gradients[number].bytes for number in bucket) for bucket in buckets]
        # A bucket is reduced when its gradients are there, and those before it have been handed over.
        ready, latest = [], 0.0
        for bucket in buckets:
            latest = max(latest, *(self._ready[number] for number in bucket))
            ready.append(latest)
        return self._predict(rules.name, cap_mb, sizes, ready)

    def caps(self, by_readiness: bool) -> list[Prediction]:
        """Return predictions for a fine grid of `bucket_cap_mb`; of values that give the same buckets the largest."""
        total_mb = sum(each.bytes for each in self._gradients) / MIB
        found: dict[tuple[int, ...], Prediction] = {}
        cap, step = _LEAST_CAP_MB, 2 ** (1 / _STEPS_PER_OCTAVE)
        while True:
            rounded = float(f"{cap:.2g}")
            prediction = self.buckets(BucketRules.capped(rounded, by_readiness), rounded)
            found[prediction.sizes] = prediction
            if len(prediction.sizes) == 1 or cap > 2 * total_mb:
                return list(found.values())
            cap *= step

    def auto(self) -> Prediction:
        """Return what the best of all schedules would take, which `auto` looks for."""
        best = min((self.merged(name) for name in SCHEDULES), key=lambda each: (each.iteration_s, len(each.sizes)))
        return replace(best, name=f"auto ({best.name})")

    def merged(self, schedule: str) -> Prediction:
        """Return what the groups of a schedule would take."""
        timings, channel = self._measured.decision.timings, self._channel
        lowest_first = self._order[::-1]
        segments, offset = [], 0
        for name, number in zip(reversed(self._measured.order), lowest_first, strict=True):
            segments.append(Segment(name, offset, self._merged_bytes[number]))
            offset += self._merged_bytes[number]
        ready = [self._ready[number] for number in lowest_first]
        plan = make_plan(schedule, segments, ready, channel.beside, element_bytes=1, backward_end=timings.total)
        plan = predict_plan(plan, timings.backward_times, timings.tail, channel)
        return self._prediction(schedule, None, plan)

    @property
    def _channel(self) -> Channel:
        return self._measured.decision.channels[0]

    def _predict(self, name: str, cap_mb: float | None, sizes: Sequence[int], ready: Sequence[float]) -> Prediction:
        """Predict buckets, each of which is handed over at a time."""
        count = len(sizes)
        groups = tuple(
            Group(count - 1 - place, count - 1 - place, 0, size, size, 0.0, 0.0, 0.0)
            for place, size in enumerate(sizes)
        )
        steps = [later - earlier for earlier, later in zip([0.0, *ready], ready, strict=False)]
        tail = max(0.0, self._measured.backward_s - ready[-1])
        plan = predict_plan(Plan(name, count, groups, 0.0), steps[::-1], tail, self._channel)
        return self._prediction(name, cap_mb, plan)

    def _prediction(self, name: str, cap_mb: float | None, plan: Plan) -> Prediction:
        iteration = self._measured.forward_s + plan.backward_end + plan.exposed
        sizes = tuple(group.bytes for group in plan.groups)
        return Prediction(name, cap_mb, sizes, iteration, plan.exposed, plan.backward_end)
