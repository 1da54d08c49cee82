"""How fast a net's data layers are when nobody else computes, stage by stage, and what keeps them from more."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mgcaffe.engine.data.stages import ADVICE, NAMES, STAGES, StageTotals, bottleneck, share_of

if TYPE_CHECKING:
    from mgcaffe.engine.data.data_layer import DataLayer
    from mgcaffe.engine.net import Net

_MOST_SECONDS = 3.0
_LEAST_BATCHES = 2


@dataclass(frozen=True)
class DataTimes:
    """What was measured of a data layer that runs alone.

    Attributes:
        name, type: the layer's.
        batch_size: records in a batch.
        threads: how many load records at a time.
        batches: how many were taken.
        seconds: wall time until the last of them was there.
        totals: the stages of the batches that were made.
    """

    name: str
    type: str
    batch_size: int
    threads: int
    batches: int
    seconds: float
    totals: StageTotals

    @property
    def records_per_s(self) -> float:
        """Records that come in a second."""
        return self.batches * self.batch_size / self.seconds

    def stage_ms(self, stage: str) -> float:
        """Mean milliseconds of a record in a stage."""
        return 1e3 * self.totals.stages[stage] / max(1, self.totals.records)

    @property
    def thread_ms(self) -> float:
        """Mean milliseconds of a thread that a record takes in all stages."""
        return sum(self.stage_ms(stage) for stage in STAGES)

    def lines(self, net_s: float | None) -> list[str]:
        """Return what was found, as lines of a log.

        Args:
            net_s: how long the net's other layers take for a batch, forward and backward; None to compare with nothing.
        """
        at_a_time = f"{self.threads} thread{'s' * (self.threads != 1)}"
        batch_ms = 1e3 * self.seconds / self.batches
        alone = f"{self.records_per_s:.1f} images/s with {at_a_time}, {batch_ms:.3f} ms a batch of {self.batch_size}"
        lines = [f"Data layer {self.name} alone: {alone}"]
        stages = ", ".join(f"{NAMES[stage]} {self.stage_ms(stage):.3f} ms" for stage in STAGES)
        slowest = bottleneck(self.totals.stages)
        if slowest is not None:
            lines.append(f"{self.name:>10}\tan image: {stages}; {self.thread_ms:.3f} ms of a thread in all")
            lines.append(self._conclusion(slowest, net_s))
        return lines

    def _conclusion(self, slowest: str, net_s: float | None) -> str:
        named = f"{NAMES[slowest]}, {share_of(self.totals.stages, slowest):.0f} % of making a batch"
        if net_s is None or net_s <= 0:
            return f"Bottleneck of the data: {named}. To speed it up: {ADVICE[slowest]}."
        wanted = self.batch_size / net_s
        if wanted < self.records_per_s:
            return f"The layers take {wanted:.1f} images/s, so data are not waited for. Slowest in them: {named}."
        threads = wanted * self.thread_ms / 1e3
        return (
            f"The layers could take {wanted:.1f} images/s, about {threads:.1f} threads' work, so data are waited for. "
            f"Bottleneck: {named}. To speed it up: {ADVICE[slowest]}."
        )

    def figures(self) -> dict[str, object]:
        """Return the figures for machines."""
        return {
            "name": self.name,
            "type": self.type,
            "batch_size": self.batch_size,
            "threads": self.threads,
            "batches": self.batches,
            "images_per_s": self.records_per_s,
            "record_ms": {stage: self.stage_ms(stage) for stage in STAGES},
            "bottleneck": bottleneck(self.totals.stages),
        }


def measure_data(net: Net, batches: int) -> list[DataTimes]:
    """Take batches from each data layer of the net in turn, while nothing else runs.

    Args:
        net: it has run. Its data layers go on where they are.
        batches: how many to take; fewer where they take more than 3 s.
    """
    return [_measure(layer, batches) for layer in net.data_layers]


def _measure(layer: DataLayer, batches: int) -> DataTimes:
    layer.seek(layer.position())  # what was made ahead does not count
    before, began, taken, seconds = layer.stages.totals, time.perf_counter(), 0, 0.0
    while taken < batches and (seconds < _MOST_SECONDS or taken < _LEAST_BATCHES):
        layer.forward([])
        taken += 1
        seconds = time.perf_counter() - began
    totals = layer.stages.totals.since(before)
    return DataTimes(layer.name, layer.type, layer.batch_size, layer.stages.threads, taken, seconds, totals)
