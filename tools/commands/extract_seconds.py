"""`extract_seconds LOG OUT`: the time of every line about an iteration (Caffe: tools/extra/extract_seconds.py)."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from mgcaffe.errors import EXIT_OK
from mgcaffe.errors.whole_files import write_output
from mgcaffe.tools.flags.parsing import FlagParser, Flags
from mgcaffe.tools.scripts import run_script


def parser() -> FlagParser:
    """Return the flags of `extract_seconds`."""
    return FlagParser(
        "extract_seconds",
        "Write for each line of a log that holds the word 'Iteration' the seconds since the line 'Solving ...'.",
        files=("LOG", "OUT"),
        alone=True,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (default: this process's) and return its exit code."""
    return run_script(parser(), _run, arguments, least=2)


def _run(flags: Flags) -> int:
    from mgcaffe.tools.logs.seconds import iteration_seconds

    source, target = flags.files
    seconds, without = iteration_seconds(source)
    if without:
        lines = "line that holds" if without == 1 else "lines that hold"
        print(f"{source}: {without} {lines} 'Iteration' but no time left out", file=sys.stderr)
    write_output(target, (f"{value:f}\n" for value in seconds))
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
