"""The flags that say what to compute on, and how: processor, precision, choices and recomputation."""

from __future__ import annotations

import argparse

from mgcaffe.errors.file_names import shown_name, what_is_wrong_with_name
from mgcaffe.tools.flags.parsing import FlagParser, number_from

MAX_THREADS = 4096
"""The most compute threads of a rank: OpenMP ends the process where it cannot start them."""


def add_machine_flags(parser: FlagParser) -> None:
    """Add the flags that say what to compute on."""
    parser.flag("gpu", "GPU to use, 'all', or with several ranks a list with one for each local rank", metavar="ID")
    parser.flag(
        "threads", "compute threads of each rank; otherwise OMP_NUM_THREADS, or cores over local ranks",
        type=number_from(1, MAX_THREADS), metavar="N",
    )  # fmt: skip
    parser.flag("dtype", "type of blobs", choices=("float32", "float64"), default="float32")


def add_precision_flag(parser: FlagParser) -> None:
    """Add `--precision`."""
    parser.flag(
        "precision",
        "how exact the operands of products are: float32; bf16 or, for GPUs, fp16: rounded to 16 bits, with sums, "
        "weights and statistics in float32; on GPUs also tf32 (default: float32)",
        choices=("float32", "bf16", "fp16", "tf32"),
    )  # fmt: skip


def add_autotune_flag(parser: FlagParser) -> None:
    """Add `--autotune`."""
    parser.flag(
        "autotune",
        "how convolutions and inner products are computed: off: by rule; on: as is fastest here, measured before the "
        "first iteration and kept in the user's cache folder; or a file that keeps what was measured (default: off)",
        metavar="off|on|FILE", type=_file_or_word,
    )  # fmt: skip


def add_recompute_flag(parser: FlagParser) -> None:
    """Add `--recompute`."""
    parser.flag(
        "recompute",
        "layers of the training net that backward computes a second time, so that their values need not be kept: "
        "off; auto: as many as it takes for the lowest peak of memory; or ranges of layers, each computed again as one "
        "(default: off)",
        metavar="off|auto|FIRST..LAST,...",
    )  # fmt: skip


def add_winograd_flag(parser: FlagParser) -> None:
    """Add `--winograd`."""
    parser.flag(
        "winograd",
        "whether --autotune may choose convolutions that multiply less and round more: safe: where they differ by at "
        "most 1e-5 of the largest value, as measured once with random values; fast: 1e-4 (default: off)",
        choices=("off", "safe", "fast"),
    )


def _file_or_word(text: str) -> str:
    if problem := what_is_wrong_with_name(text):
        raise argparse.ArgumentTypeError(f"'{shown_name(text)}' is no file: {problem}")
    return text
