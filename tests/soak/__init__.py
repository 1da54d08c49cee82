"""Long checks of what must never break: `python -m tests.soak` runs all in full, `make test` a seeded sample.

A module here has NAME, `run(full) -> list[Row]` and a test beside it (`test_<module>.py`) that runs it with
`full=False`; where that takes too long (`torchrun.py`), the module says what the suite has in its place.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field


@dataclass
class Row:
    """One line of the table.

    Attributes:
        check: what was checked.
        cases: how often.
        failures: what went wrong, a line each.
        note: what else is worth saying.
        seconds: how long it took.
    """

    check: str
    cases: int = 0
    failures: list[str] = field(default_factory=list)
    note: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        verdict = "passed" if not self.failures else f"{len(self.failures)} FAILED"
        return f"| {self.check} | {self.cases} | {verdict} | {self.note} | {self.seconds:.0f} s |"


HEADER = "| check | cases | result | note | time |\n|---|---|---|---|---|"


def count(check: str, cases: Iterable[tuple[str, Callable[[], str | None]]], note: str = "") -> Row:
    """Runs cases and counts those that fail.

    Args:
        check: what is checked.
        cases: (name, a function that returns what went wrong, or None).
        note: what else is worth saying.
    """
    row, began = Row(check, note=note), time.monotonic()
    for name, case in cases:
        row.cases += 1
        problem = case()
        if problem is not None:
            row.failures.append(f"{name}: {problem}")
    row.seconds = time.monotonic() - began
    return row
