"""Writes docs/ddp_tests.md, the table of PyTorch's tests of DDP, out of a run of ours.

`python -m docs.generate.ddp_tests` prints the page, as if all passed; with `--write` ours run first (a minute), and the
page is written with what failed marked so. A test fails until that was done after a change.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path

from tests.support.torch_ddp_tests import GPU, INTERNAL, PART, REFUSED, ROWS, RUNS, Row, count, needed

PAGE = Path(__file__).resolve().parents[1] / "ddp_tests.md"

_INTRODUCTION = f"""# PyTorch's own tests of DDP

What PyTorch's tests of DDP ask, asked of `MergedGradientParallel` ([pytorch.md](pytorch.md)). Their names are those of
`distributed_test` in torch.testing._internal.distributed of PyTorch 2.13, as far as they are about DDP, and of the
class DistributedDataParallelTest in `test_c10d_common`, `test_c10d_gloo` and `test_c10d_nccl` of PyTorch's folder
test/distributed, of versions close to 2.13. Other files (communication hooks, replicate, dynamo) were not gone through.

None of PyTorch's code runs here: {len(needed())} tests of our own (`tests/support/ddp_behaviour.py` and its neighbours,
and `tests/support/ddp_checks.py`, which compares with DDP to the bit) stand for theirs, variants sharing one. They run
on two ranks of gloo with modules on the CPU, also where PyTorch's ask for GPUs but not because of what they test.
`passes`: ours asserts what PyTorch's source does, in users' view; wordings of errors are our own. `passes in part`:
ours asserts less (fewer models, types or options), or was written for what the name says and not compared with the
source. Run them by `python -m tests.soak ddp-tests`.
"""


def render(failed: Collection[str] = ()) -> str:
    """Return the page.

    Args:
        failed: the names of our tests that failed.
    """
    lines = [_INTRODUCTION, "| of PyTorch's tests | number |", "|---|---|"]
    lost = [row for row in ROWS if row.outcome in (RUNS, PART) and row.here in failed]
    for outcome in (RUNS, PART):
        number = count(outcome) - sum(len(row.names) for row in lost if row.outcome == outcome)
        lines.append(f"| {outcome} | {number} |")
    if lost:
        lines.append(f"| fails | {sum(len(row.names) for row in lost)} |")
    lines += [
        f"| test what does not exist here, and is refused or ignored for the reason given | {count(REFUSED)} |",
        f"| need GPUs because of what they test; not run | {count(GPU)} |",
        f"| test DDP's internals | {count(INTERNAL)} |",
        f"| in all | {sum(len(row.names) for row in ROWS)} |",
        "",
        "| file | PyTorch's tests | here |",
        "|---|---|---|",
        *(f"| `{row.file}` | {_names(row)} | {_answer(row, failed)} |" for row in ROWS),
    ]
    return "\n".join(lines) + "\n"


def _names(row: Row) -> str:
    """Return the names; of a variant of the first one only what it adds."""
    first, *others = row.names
    shown = [name.removeprefix(first) if name.startswith(f"{first}_") else name for name in others]
    return ", ".join(f"`{name}`" for name in (first, *shown))


def _answer(row: Row, failed: Collection[str]) -> str:
    if row.outcome not in (RUNS, PART):
        return row.here if row.outcome == REFUSED else f"{row.outcome}: {row.here}"
    said = "**fails**" if row.here in failed else row.outcome
    return said if row.here == row.names[0] else f"{said} (`{row.here}`)"


def main(words: list[str]) -> int:
    """Print the page, or run the tests and write it."""
    if words != ["--write"]:
        print(render(), end="")
        return 0
    from tests.soak.ddp_tests import failed
    from tests.support.torch_ddp_tests import needed

    found = failed(needed())
    for name, text in found.items():
        print(f"{name}: {text}", file=sys.stderr)
    PAGE.write_text(render(found), encoding="utf-8")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
