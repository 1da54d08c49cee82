"""Runs the commands that stand beside `engine` under the names and with the flags that Caffe's scripts have."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from mgcaffe.comm.supervision.guard import run_guarded
from mgcaffe.errors import UsageError
from mgcaffe.tools.flags.parsing import FlagParser, Flags


def run_script(
    parser: FlagParser, run: Callable[[Flags], int], arguments: Sequence[str] | None, least: int, *, more: bool = False
) -> int:
    """Read a command line, and run what it asks for.

    Args:
        parser: its flags.
        run: does the work; returns the exit code.
        arguments: the command line; None: this process's.
        least: how many words it takes besides flags.
        more: it takes any further number of them.

    Returns:
        The exit code.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)

    def main() -> int:
        flags = parser.parse(words)
        count = len(flags.files)
        if count < least or (count > least and not more):
            raise UsageError(
                f"{parser.prog} takes {least}{' or more' if more else ''} words, not {count}",
                hint=f"usage: {parser.usage}",
            )
        return run(flags)

    return run_guarded(main, lambda: None)
