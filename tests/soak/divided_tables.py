"""Tables divided among ranks: 200 iterations equal one process, for each solver that can train tables.

Threads are the ranks. Weights, whole tables, their histories and all losses agree to 1e-12 in float64.
"""

from __future__ import annotations

import tempfile
from functools import partial
from itertools import product
from pathlib import Path

from tests.soak import Row, count
from tests.support.tablekit import KINDS, LOADS, differences, loads, table_net, train_tables, write_table_data

NAME = "tables"
ITERATIONS = 200
_CASES = tuple(product(KINDS, ("SUM", "MEAN"), (2, 3), LOADS))


def run(full: bool) -> list[Row]:
    """Trains in all cases, or in one."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_table_data(folder)
        chosen = _CASES if full else _CASES[13:14]
        cases = [(" ".join(map(str, case)), partial(_compare, folder, *case)) for case in chosen]
        return [count("divided tables equal one process", cases, f"{ITERATIONS} iterations each")]


def _compare(folder: Path, kind: str, mode: str, size: int, how: str) -> str | None:
    alone = train_tables(1, folder, table_net(folder, 1, mode=mode), KINDS[kind], ITERATIONS)
    fields = KINDS[kind] + loads(folder, how)
    divided = train_tables(size, folder, table_net(folder, size, mode=mode), fields, ITERATIONS)
    if len(divided[1]) != ITERATIONS:
        return f"{len(divided[1])} iterations"
    return differences(divided, alone)
