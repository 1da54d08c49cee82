"""Standard input, output and error, which may be closed when the process begins and may break before it ends."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import TextIO

from mgcaffe.errors import EXIT_CANNOT_WRITE, EXIT_FAILED, EngineError

FAILED_WRITES = frozenset([errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF])
"""What a write to a stream fails with where its other end is gone or its disk is full."""


def open_missing_streams() -> None:
    """Open /dev/null in place of each stream that is closed, under the stream's number.

    A file would otherwise be given that number, and what a library writes to standard error.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.dup2(descriptor, number)
            if descriptor != number:
                os.close(descriptor)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode))


def say(text: str) -> None:
    """Print a line on standard error; where that takes nothing, the run goes on, and its exit code still tells."""
    if sys.stderr is None:  # closed when the process began
        return
    try:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        return


def flush_output(probe: bytes = b"") -> None:
    """Write what is left of standard output; what it doesn't take is dropped, so that Python doesn't try again.

    Args:
        probe: is written behind it, to find out whether a write that failed was one to standard output.

    Raises:
        EngineError: it is closed at the other end (exit code 1), or can't be written (73).
    """
    try:
        sys.stdout.flush()
        if probe:
            os.write(sys.stdout.fileno(), probe)
    except ValueError:
        return  # closed, or no file
    except OSError as error:
        _discard(sys.stdout)
        if isinstance(error, BrokenPipeError):
            raise EngineError(
                "standard output was closed before everything was printed", exit_code=EXIT_FAILED
            ) from None
        raise EngineError(
            f"cannot write to standard output: {error.strerror or error}", exit_code=EXIT_CANNOT_WRITE
        ) from None


def flush_quietly() -> None:
    """Write what is left of both; what they don't take is dropped, since the exit code still tells."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except ValueError:
            continue
        except OSError:
            _discard(stream)


def _discard(stream: TextIO) -> None:
    """Give what a stream holds, and what follows, to /dev/null; Python would exit with code 120 over it."""
    with contextlib.suppress(OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)
