"""The flags of `engine train` about its timeline."""

from __future__ import annotations

import argparse

from mgcaffe.tools.flags.parsing import FlagParser


def add_timeline_flags(flags: FlagParser) -> None:
    """Add `--timeline` and `--timeline_iterations`."""
    flags.flag(
        "timeline",
        "write when everything happened in some iterations, on all ranks, to this file (JSON for ui.perfetto.dev "
        "and engine report)",
        metavar="FILE",
    )
    flags.flag(
        "timeline_iterations",
        "iterations to record: from A up to, not including, B (default: eight, once the plan is found)",
        type=iteration_range,
        metavar="A:B",
    )


def iteration_range(text: str) -> tuple[int, int]:
    """Read `20:28`."""
    first, colon, end = text.partition(":")
    if not (colon and first.isdigit() and end.isdigit() and int(first) < int(end)):
        raise argparse.ArgumentTypeError(f"'{text}' is no range of iterations like 20:28, the first before the end")
    return int(first), int(end)
