"""Standard error as a terminal, which may hang up while the run goes on."""

from __future__ import annotations

import sys
from typing import IO, Any, cast

from rich.console import Console


class _LastingStream:
    """A stream that drops what cannot be written, such as to a terminal whose connection is gone."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, or drop the text; return its length."""
        try:
            return self._stream.write(text)
        except OSError:
            return len(text)

    def flush(self) -> None:
        """Write what is left, or drop it."""
        try:
            self._stream.flush()
        except OSError:
            return


def terminal_console() -> Console:
    """Make a console of standard error that never fails."""
    return Console(file=cast("IO[str]", _LastingStream(sys.stderr)))
