"""The flags of `engine train` for bad records and for looking into the net, and what they set in the solver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mgcaffe.tools.flags.parsing import FlagParser, Flags, number_from

if TYPE_CHECKING:
    from mgcaffe.prototxt import SolverParameter

_BAD_RECORD = ("stop", "skip")


def add_data_flags(parser: FlagParser) -> None:
    """Add `--bad_record`, `--bad_record_limit` and `--debug_info`."""
    parser.flag(
        "bad_record", "what a damaged record does: stop the run, or be skipped for the next good one (default: stop)",
        choices=_BAD_RECORD,
    )  # fmt: skip
    parser.flag(
        "bad_record_limit", "how many different records of a source may be skipped (default: 100)",
        type=number_from(0), metavar="N",
    )  # fmt: skip
    parser.switch("debug_info", "show the mean size of every blob and gradient at each display, as debug_info does")


def apply_data_flags(solver: SolverParameter, flags: Flags) -> None:
    """Set the solver's fields that the flags give."""
    from mgcaffe.prototxt import DataParameter

    if flags.debug_info:
        solver.debug_info = True
    if flags.bad_record:
        solver.bad_record = DataParameter.BadRecord.Value(flags.bad_record.upper())
    if flags.bad_record_limit is not None:
        solver.bad_record_limit = flags.bad_record_limit
