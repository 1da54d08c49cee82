"""`python -m mgcaffe.pycaffe script.py [arguments]`: runs a script that was written for pycaffe, unchanged."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from mgcaffe.engine.user_errors import old_program_hint
from mgcaffe.errors import EXIT_FAILED, EXIT_USAGE, EngineError
from mgcaffe.pycaffe import alias

USAGE = """usage: python -m mgcaffe.pycaffe SCRIPT [arguments]

Runs a Python script in which `import caffe` finds mgcaffe.pycaffe."""


def main(arguments: Sequence[str]) -> int:
    """Run the script that `arguments` begins with.

    Returns:
        0, or the exit code of the error that ended the script, which `sys.excepthook` has shown.
    """
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if arguments else EXIT_USAGE
    script = Path(arguments[0])
    if not script.is_file():
        print(f"there is no file '{script}'", file=sys.stderr)
        return EXIT_USAGE
    alias.install()
    sys.argv = list(arguments)
    sys.path.insert(0, str(script.resolve().parent))
    try:
        runpy.run_path(str(script), run_name="__main__")
    except EngineError as error:
        print(_told(error), file=sys.stderr)
        return error.exit_code
    except Exception as error:
        trace = _from_the_script_on(error.__traceback__)
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        hint = old_program_hint(error)
        if hint is not None:
            print(hint, file=sys.stderr)
        return EXIT_FAILED
    return 0


def _from_the_script_on(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames that lead to the script: this module's and runpy's."""
    files = (main.__code__.co_filename, runpy.run_path.__code__.co_filename)
    while trace is not None and trace.tb_frame.f_code.co_filename in files:
        trace = trace.tb_next
    return trace


def _told(error: EngineError) -> str:
    """Return the lines of the user's own code that led to the error, and its message."""
    packages = Path(__file__).resolve().parents[1]
    ours = tuple(str(packages / name) for name in ("comm", "engine", "prototxt", "pycaffe", "solvers", "tools"))
    frames = [
        frame
        for frame in traceback.extract_tb(_from_the_script_on(error.__traceback__))
        if not frame.filename.startswith((*ours, "<frozen"))
    ]
    return f"{''.join(traceback.format_list(frames))}{error}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
