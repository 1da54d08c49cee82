"""Where the time of a data layer goes: the stages of making a batch, added up over the threads that make it.

Reading takes a record from its source (with its sum, where there is a sum file), decoding takes it apart and decodes
its image, transforming is transform_param's, and batching is the rest of what the prefetching thread does: choosing
records, random numbers, memory for the batch and labels. Times are wall time, so a thread that waits for a processor or
for the disk counts as well.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

Item = TypeVar("Item")

READ, DECODE, TRANSFORM, BATCH = STAGES = ("read", "decode", "transform", "batch")
NAMES = {READ: "reading", DECODE: "decoding", TRANSFORM: "transforming", BATCH: "batching"}
ADVICE = {
    READ: "a faster disk helps, or a database that fits into memory",
    DECODE: "data_param { parser_threads: N } decodes more images at a time, where there are processors for it; "
    "records with pixels (engine convert_imageset without --encoded) need no decoding, and seven times the space",
    TRANSFORM: "resizing takes most of a transformation: records that already have their size need none",
    BATCH: "larger batches have less of it for each record",
}


@dataclass(frozen=True)
class StageTotals:
    """What making batches has taken so far.

    Attributes:
        records: in the batches that were made.
        made_s: wall time of making them.
        stages: seconds of each of STAGES, added up over the threads, so that their sum may be above `made_s`.
    """

    records: int = 0
    made_s: float = 0.0
    stages: Mapping[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))

    def since(self, before: StageTotals) -> StageTotals:
        """Return what was added since these totals."""
        stages = {stage: seconds - before.stages[stage] for stage, seconds in self.stages.items()}
        return StageTotals(self.records - before.records, self.made_s - before.made_s, stages)


class StageTimes:
    """Adds up the stages of one layer's batches, which are made one after the other, each by several threads.

    Attributes:
        threads: how many there are.
    """

    def __init__(self) -> None:
        self.threads = 1
        self._lock = threading.Lock()
        self._begin_batch()
        self._totals = StageTotals()

    @property
    def totals(self) -> StageTotals:
        """What the batches took that are complete."""
        return self._totals

    def add(self, *, read: float = 0.0, decode: float = 0.0, transform: float = 0.0) -> None:
        """Count a thread's seconds for the batch that is being made."""
        with self._lock:
            self._batch[READ] += read
            self._batch[DECODE] += decode
            self._batch[TRANSFORM] += transform

    def share_out(self, function: Callable[..., Item], *arguments: object) -> Item:
        """Call what has the threads count their stages; its own time belongs to none besides."""
        began = time.perf_counter()
        try:
            return function(*arguments)
        finally:
            self._shared_s += time.perf_counter() - began

    def transforming(self, run: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        """Return `run`, which calls a function in threads, so that those calls count as transforming."""

        def timed(function: Callable[[Any], Any], item: object) -> Any:
            began = time.perf_counter()
            try:
                return function(item)
            finally:
                self.add(transform=time.perf_counter() - began)

        return lambda function, items: self.share_out(run, partial(timed, function), items)

    def batch_made(self, records: int, seconds: float) -> None:
        """Add a batch of so many records, which took so long, to the totals."""
        with self._lock:
            self._batch[BATCH] += max(0.0, seconds - self._shared_s)
            before = self._totals
            stages = {stage: before.stages[stage] + self._batch[stage] for stage in STAGES}
            self._totals = StageTotals(before.records + records, before.made_s + seconds, stages)
            self._begin_batch()

    def _begin_batch(self) -> None:
        self._batch = dict.fromkeys(STAGES, 0.0)
        self._shared_s = 0.0


def bottleneck(stages: Mapping[str, float]) -> str | None:
    """Return the stage that takes the most; None where nothing was made, or the layer does not tell stages apart."""
    if not any(stages.get(stage) for stage in (READ, DECODE, TRANSFORM)):
        return None
    return max(STAGES, key=lambda stage: stages[stage])


def share_of(stages: Mapping[str, float], stage: str) -> float:
    """Return a stage's percentage of all of them."""
    return 100 * stages[stage] / sum(stages.values())


def sum_stages(*several: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of each stage in all of these."""
    result = dict.fromkeys(STAGES, 0.0)
    for stages in several:
        for stage, seconds in stages.items():
            result[stage] += seconds
    return result
