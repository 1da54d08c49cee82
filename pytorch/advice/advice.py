"""What `advise` returns: the figures, and a report of them."""

from __future__ import annotations

from dataclasses import dataclass

from mgcaffe.comm.planning.cost import Cost
from mgcaffe.pytorch.advice.predictions import Prediction
from mgcaffe.tools.table import format_table

_NO_GAIN = 0.01
"""The share of an iteration below which a difference between two times says nothing."""


@dataclass(frozen=True)
class Advice:
    """What bucket sizes cost, predicted from what was measured; equal on all ranks. `str(advice)` is a report.

    Attributes:
        module: the class of the module.
        ranks: how many.
        transport: over what gradients travelled while it was measured.
        parameters: how many values train.
        bytes: of the gradients.
        forward_s, backward_s: the passes of the slowest rank, without communication.
        cost: of an all-reduce beside the backward pass.
        slowdown: the seconds that each second of communication adds to the backward pass beside it.
        present: the module as it is wrapped.
        default: without `bucket_cap_mb`.
        caps: for `bucket_cap_mb` of 1, 5, 25 and 100.
        best: for the best `bucket_cap_mb` that was looked at; of those that were tried, by what was measured.
        searched: how many different sets of buckets these were.
        mgwfbp, optimal, auto: by `MergedGradientParallel` with these schedules; `auto` is the best of all of them.
        warnings: what is to be known of the figures.
    """

    module: str
    ranks: int
    transport: str
    parameters: int
    bytes: int
    forward_s: float
    backward_s: float
    cost: Cost
    slowdown: float
    present: Prediction
    default: Prediction
    caps: tuple[Prediction, ...]
    best: Prediction
    searched: int
    mgwfbp: Prediction
    optimal: Prediction
    auto: Prediction
    warnings: tuple[str, ...] = ()

    @property
    def gain(self) -> float:
        """The share of the present iteration that the best `bucket_cap_mb` would save, 0 if none."""
        best, present = self.best.measured_s, self.present.measured_s
        if best is not None and present is not None:
            return max(0.0, 1 - best / present)
        return max(0.0, 1 - self.best.iteration_s / self.present.iteration_s)

    def __str__(self) -> str:
        a, b, _ = self.cost.affine()
        lines = [
            *self.warnings,
            f"{self.module} in DistributedDataParallel on {self.ranks} ranks over {self.transport}: {self.parameters:,}"
            f" parameters, {self.bytes / 2**20:.2f} MiB of gradients",
            f"forward {_ms(self.forward_s)}, backward {_ms(self.backward_s)} alone; an all-reduce takes about {_ms(a)}"
            f" + {b * 2**20 * 1e3:.3g} ms per MiB,",
            f"and each second of it adds {self.slowdown:.2f} s to the backward pass beside it",
            "",
            self._table(),
            "",
            self._verdict(),
        ]
        return "\n".join(lines)

    def _table(self) -> str:
        headers: tuple[str, ...] = ("predicted", "buckets", "iteration", "backward", "waiting for communication")
        if self.present.measured_s is not None:
            headers += ("measured",)
        rows = [_row("present: ", self.present)]
        if self.present.name != self.default.name:
            rows.append(_row("", self.default))
        rows += [_row("", each) for each in self.caps if each.name != self.present.name]
        rows.append(_row(f"best of {self.searched}: ", self.best))
        rows += [_row("MergedGradientParallel, ", each) for each in (self.mgwfbp, self.optimal, self.auto)]
        return format_table(headers, [row[: len(headers)] for row in rows], right=headers[1:])

    def _verdict(self) -> str:
        if self.gain < _NO_GAIN:
            text = f"The present buckets ({self.present.name}) are within 1 % of the best"
        else:
            text = (
                f"{self.best.name} would take {100 * self.gain:.0f} % less time per iteration than {self.present.name}"
            )
        return f"{text}; merged groups that are planned {self._ours()}."

    def _ours(self) -> str:
        """Compare our groups with the best buckets: by what was measured of these, if it was."""
        buckets = (self.best, self.present, self.default, *self.caps)
        ours = self.auto.iteration_s
        tried = [each.measured_s for each in buckets if each.measured_s is not None]
        best = min(tried or [each.iteration_s for each in buckets])
        share = 1 - ours / best
        if not tried and share < _NO_GAIN:
            return "would not take less"
        if not tried:
            return f"({self.auto.name}) {100 * share:.0f} % less than the best buckets"
        less = "no gain over" if share < _NO_GAIN else f"{100 * share:.0f} % less than"
        measured = f"the {_ms(best)} measured with the best buckets"
        return f"({self.auto.name}) are predicted to take {_ms(ours)}, {less} {measured}"


def _row(prefix: str, each: Prediction) -> tuple[str, ...]:
    times = (_ms(seconds) for seconds in (each.iteration_s, each.backward_s, each.exposed_s))
    measured = "" if each.measured_s is None else _ms(each.measured_s)
    return (f"{prefix}{each.name}", str(len(each.sizes)), *times, measured)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"
