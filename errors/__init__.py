"""Every error that the engine raises on purpose, and the exit code that each one ends the process with.

    EngineError                 1   anything a user can cause and that fits nowhere below
    +-- UsageError              2   a wrong flag, or flags that exclude each other
    +-- PrototxtError          65   text or binary that does not parse, an unknown field under strict
    +-- NetError               65   a net that cannot be built: types, blobs, shapes, weights
    +-- DataError              65   a data source that is missing, empty or damaged
    +-- SolverError            65   a solver that cannot run: policies, fields that exclude each other
    +-- NotFiniteError         71   a loss or gradient that is not finite (inf or NaN)
    +-- SnapshotError          73   a snapshot that cannot be written (65 where one cannot be read)
    +-- CommError               1   the ranks cannot work together
        +-- RankDisagreement   76   ranks were given different command lines, nets, solvers or plans
        +-- PeerFailure        69   another rank failed

What every package needs of files stands here as well: `checked_json`, `file_names` and `whole_files`.
This package imports nothing; every other package may import it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_BAD_INPUT = 65
EXIT_PEER_FAILED = 69
EXIT_STALLED = 70
EXIT_NOT_FINITE = 71
EXIT_CANNOT_WRITE = 73
EXIT_STOPPED_BY_SIGNAL = 75
EXIT_RANKS_DISAGREE = 76


@dataclass(frozen=True)
class Location:
    """A place in a user's file. Lines and columns count from 1; line 0 means the file as a whole."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


def describe_exception(error: BaseException) -> str:
    """Return the class and the text of an exception in a line; it may be a user's, whose `__str__` raises."""
    name = type(error).__name__
    try:
        text = str(error)
    except BaseException as failure:
        return f"{name} (its __str__ raises {type(failure).__name__})"
    return f"{name}: {text}" if text else name


class EngineError(Exception):
    """The root of the tree. `str(error)` is the whole message: where, what, what to do.

    Args:
        message: what is wrong, with names and numbers.
        location: where, if it lies in a file of the user's.
        hint: what to do about it.
        exit_code: overrides the class's own exit code.
    """

    exit_code: int = EXIT_FAILED

    def __init__(
        self,
        message: str,
        *,
        location: Location | None = None,
        hint: str | None = None,
        exit_code: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.location = location
        self.hint = hint
        if exit_code is not None:
            self.exit_code = exit_code

    def __str__(self) -> str:
        where = f"{self.location}: " if self.location else ""
        hint = f"\n  {self.hint}" if self.hint else ""
        return f"{where}{self.message}{hint}"


class UsageError(EngineError):
    """A wrong flag, or flags that exclude each other."""

    exit_code = EXIT_USAGE


class PrototxtError(EngineError):
    """Text or binary that does not parse."""

    exit_code = EXIT_BAD_INPUT


class NetError(EngineError):
    """A net that cannot be built, reshaped or filled with the given weights."""

    exit_code = EXIT_BAD_INPUT


class DataError(EngineError):
    """A data source that is missing, empty or damaged."""

    exit_code = EXIT_BAD_INPUT


class SolverError(EngineError):
    """A solver that cannot run as written."""

    exit_code = EXIT_BAD_INPUT


class NotFiniteError(EngineError):
    """A loss or gradient that is not finite (inf or NaN); no weight was updated by it."""

    exit_code = EXIT_NOT_FINITE


class SnapshotError(EngineError):
    """A snapshot that cannot be written, or (exit code 65) read."""

    exit_code = EXIT_CANNOT_WRITE


class CommError(EngineError):
    """Ranks that cannot work together."""


class RankDisagreement(CommError):
    """Ranks that were given different nets, solvers or plans."""

    exit_code = EXIT_RANKS_DISAGREE


class PeerFailure(CommError):
    """Another rank failed, and this one ends because of it.

    Args:
        message: as for EngineError.
        failed: the ranks known to be gone, where MPI tells.
    """

    exit_code = EXIT_PEER_FAILED

    def __init__(self, message: str, *, failed: frozenset[int] = frozenset(), **options: Any) -> None:
        super().__init__(message, **options)
        self.failed = failed
