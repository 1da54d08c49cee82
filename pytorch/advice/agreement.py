"""What a rank does alone, and all ranks fail by where one does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mgcaffe.comm import Communicator
from mgcaffe.errors import CommError, EngineError, UsageError, describe_exception

T = TypeVar("T")


def on_all_ranks(communicator: Communicator, function: Callable[[], T], what: str = "a pass on the sample batch") -> T:
    """Return a function's result, or raise the error of the first rank that fails on all ranks; a collective call.

    The message names the rank, unless all of them fail alike.

    A function that waits for other ranks keeps them waiting where it fails on this one: only its own time-out ends
    that. A CommError is raised at once, since ranks that cannot reach each other cannot agree.

    Args:
        communicator: the ranks.
        function: what this rank does, which may be code of a user's.
        what: says what it does.

    Raises:
        UsageError: on all ranks alike, from this rank's own exception if it has one.
    """
    result: list[T] = []
    failure: Exception | None = None
    try:
        result.append(function())
    except CommError:
        raise
    except Exception as error:
        failure = error
    texts = communicator.allgather(None if failure is None else _said(failure, what))
    for rank, text in enumerate(texts):
        if text is not None:
            where = "" if all(each == text for each in texts) else f"on rank {rank}: "
            raise UsageError(where + text[0], hint=text[1]) from failure
    return result[0]


def _said(failure: Exception, what: str) -> tuple[str, str | None]:
    if isinstance(failure, EngineError):
        return failure.message, failure.hint
    return f"{what} fails: {describe_exception(failure)}", "the traceback is in that rank's error"
