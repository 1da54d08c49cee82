"""Prints what a run for click-through rates came to, as one line, from its JSON log.

    python examples/ctr/scores.py build/ctr/run.json
    examples/s 30000, gap 1.52, normalized entropy 0.7541, AUC 0.8254

Examples per second are those of all trainers together up to the last update; gap is the iterations of a trainer for
each of its synchronizations; the scores are those of the last test, whose tops are called normalized_entropy and auc.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def line(finish: dict[str, Any]) -> str:
    """Return the line for the `finish` event of a log."""
    gap = finish["gap"]
    return (
        f"examples/s {finish['examples_per_s']:.0f}, gap {'none' if gap is None else f'{gap:.2f}'},"
        f" normalized entropy {finish['normalized_entropy']:.4f}, AUC {finish['auc']:.4f}"
    )


def main(words: Sequence[str] | None = None) -> None:
    """Read the command line and the log."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path, help="what --json_log of `engine train` wrote")
    log = parser.parse_args(words).log
    try:
        events = [json.loads(text) for text in log.read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        parser.exit(65, f"error: '{log}' cannot be read: {error.strerror}\n")
    except ValueError:
        parser.exit(65, f"error: '{log}' is no JSON log of `engine train`\n")
    ends = [event for event in events if isinstance(event, dict) and event.get("event") == "finish"]
    if not ends or not {"gap", "normalized_entropy", "auc"} <= set(ends[-1]):
        parser.exit(65, f"error: '{log}' holds no finished run with tests of normalized_entropy and auc\n")
    print(line(ends[-1]))


if __name__ == "__main__":
    main()
