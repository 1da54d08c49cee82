"""The tables of `benchmarks/pytorch.py`: a row for each job, in results/pytorch.md."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from pytorch_worker import ALONE, AUTO, DEFAULT
from pytorch_workloads import MODELS

RESULTS = Path(__file__).resolve().parent / "results" / "pytorch.md"
ONE_HOST = "none"
HEAD = (
    "| model | MB | step alone, ms | DDP default, ms | DDP by bucket size in MiB, ms | auto, ms (groups) "
    "| auto / default | predicted | auto / best DDP | predicted | search |\n" + 11 * "|---" + "|"
)


class Measured:
    """The figures of a job.

    Args:
        model: what was trained.
        found: what the worker wrote.
    """

    def __init__(self, model: str, found: dict[str, Any]) -> None:
        self.model = model
        self.found = found
        self.turns: dict[str, list[float]] = found["turns"]
        self.ddp = [name for name in self.turns if name not in (AUTO, ALONE)]
        self.best = min((name for name in self.ddp), key=self.seconds)

    def seconds(self, name: str) -> float:
        """Return the median seconds of a step."""
        return statistics.median(self.turns[name])

    def ratio(self, other: str) -> float:
        """Return `auto`'s time over another's, the median over the rounds."""
        return statistics.median(a / b for a, b in zip(self.turns[AUTO], self.turns[other], strict=True))

    def spread(self, other: str) -> float:
        """Return half the range of the middle half of these ratios, of three rounds or more."""
        ratios = sorted(a / b for a, b in zip(self.turns[AUTO], self.turns[other], strict=True))
        quarter = len(ratios) // 4
        return (ratios[-1 - quarter] - ratios[quarter]) / 2

    def predicted(self, name: str) -> float:
        """Return the seconds of a step that the simulation predicts."""
        rest = max(0.0, self.seconds(ALONE) - self.found["backward_s"])
        seconds: float = rest + self.found["end_s"][name]
        return seconds

    def row(self) -> str:
        """Return the table's row; predictions in brackets."""

        def cell(name: str) -> str:
            return f"{1e3 * self.seconds(name):.0f} ({1e3 * self.predicted(name):.0f})"

        groups, searched = self.found["groups"][AUTO], self.found["search"]
        others = ", ".join(f"{name}: {cell(name)}" for name in self.ddp if name != DEFAULT)
        best = "default" if self.best == DEFAULT else f"{self.best} MiB"
        expected = [self.predicted(AUTO) / self.predicted(name) for name in (DEFAULT, self.best)]
        return (
            f"| {self.model} | {self.found['bytes'] / 1e6:.1f} | {1e3 * self.seconds(ALONE):.0f} | {cell(DEFAULT)} "
            f"| {others} | {cell(AUTO)}, {groups} | {self.ratio(DEFAULT):.3f} +- {self.spread(DEFAULT):.3f} "
            f"| {expected[0]:.3f} | {self.ratio(self.best):.3f} +- {self.spread(self.best):.3f} ({best}) "
            f"| {expected[1]:.3f} | {searched['iterations']} steps, {searched['seconds']:.0f} s |"
        )


def title(link: str, hosts: int) -> str:
    """Return the heading of a section."""
    return f"{hosts} ranks on one host" if link == ONE_HOST else f"{hosts} hosts, {link}"


def write(row: str, model: str, heading: str) -> None:
    """Put a model's row into the page, in the place of what it had under this heading."""
    page = RESULTS.read_text(encoding="utf-8")
    if f"## {heading}\n" not in page:
        page = f"{page.rstrip()}\n\n## {heading}\n\n{HEAD}\n"
    before, found, after = page.partition(f"## {heading}\n")
    section, _, rest = after.partition("\n## ")
    lines = [line for line in section.rstrip().split("\n") if not line.startswith(f"| {model} |")]
    starts = [f"| {name} |" for name in MODELS]

    def place(line: str) -> int:
        return next((number for number, start in enumerate(starts) if line.startswith(start)), -1)

    text = "\n".join(sorted([*lines, row], key=place))  # stable: what is no row stays in front
    RESULTS.write_text(before + found + text + "\n" + (f"\n## {rest}" if rest else ""), encoding="utf-8")
