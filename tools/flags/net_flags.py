"""The flags that say which net a subcommand is about, and how its prototxt is read."""

from __future__ import annotations

from mgcaffe.tools.flags.parsing import MAX_INT32, FlagParser, blob_shape, number_from, words_list


def add_model_flags(parser: FlagParser) -> None:
    """Add the flags of every subcommand that runs a net without a solver."""
    parser.flag("model", "the net (prototxt)", metavar="FILE")
    add_state_flags(parser)


def add_state_flags(parser: FlagParser) -> None:
    """Add the flags that say how a net's prototxt is read."""
    parser.flag("level", "level of the net's state, in place of its own", type=number_from(-MAX_INT32 - 1), metavar="N")
    parser.flag("stage", "stages of the net's state, separated by commas", type=words_list, default=[])
    parser.switch("strict", "refuse unknown fields in prototxt files instead of warning")


def add_shape_flag(parser: FlagParser) -> None:
    """Add `--input_shape`, for nets whose data is not at hand."""
    parser.flag(
        "input_shape",
        "shape of a blob that the net would read from a data source, as data=1,3,227,227; may be repeated. "
        "Without a name it holds for the first blob of each data source. Four numbers set the batch size as well; "
        "others are the shape of a record",
        type=blob_shape,
        action="append",
        default=[],
        metavar="[BLOB=]N,C,H,W",
    )
