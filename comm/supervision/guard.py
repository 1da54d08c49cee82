"""The entry point's guard: however a rank ends, the whole job ends, with one message and the right exit code.

Without it a rank that raises leaves the others waiting in a collective call for ever. Three cases:

- All ranks end alike (the same bad prototxt, a handshake that failed): they meet first, since the launcher kills
  the rest as soon as one rank exits non-zero; rank 0 alone prints the message, and the job's exit code is the
  error's.
- Some ranks fail and the rest end too: they meet; rank 0 prints each different message with the ranks it came
  from.
- One rank fails while others compute or communicate: it waits a moment for them, then prints its message,
  with its rank and host, and ends the job with the error's exit code.

Before `connect()` there is no other rank to meet. Rank 0 then prints at once; the others wait a second first, in
which its exit ends them if they failed alike.
"""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import NoReturn

from mgcaffe.comm.supervision import record_folders, status
from mgcaffe.comm.supervision.processes import is_alive
from mgcaffe.comm.supervision.standard_streams import (
    FAILED_WRITES,
    flush_output,
    flush_quietly,
    open_missing_streams,
    say,
)
from mgcaffe.comm.supervision.verdict import describe_place
from mgcaffe.comm.transport import ulfm
from mgcaffe.comm.transport.communicator import Communicator, name_ranks
from mgcaffe.comm.transport.environment import detect
from mgcaffe.errors import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_PEER_FAILED,
    CommError,
    DataError,
    EngineError,
    PeerFailure,
    describe_exception,
)
from mgcaffe.errors.checked_json import parse_json

PATIENCE_S = 0.5
"""How long a failed rank waits to see whether all fail alike."""

_ALONE_PATIENCE_S = 1.0
_LAST_CALL_S = 2.0


@dataclass(frozen=True)
class Outcome:
    """How one rank's main function ended.

    Attributes:
        code: the exit code.
        message: what to tell the user, or None where all has been said.
        raised: whether an exception ended it; its unfinished business then forbids an orderly end of MPI.
        host: where it ran, behind its role if it has one.
    """

    code: int
    message: str | None = None
    raised: bool = False
    host: str = ""

    def to_bytes(self) -> bytes:
        """Return it as the message that ranks exchange."""
        return json.dumps(asdict(self) | {"code": int(self.code)}).encode()

    @classmethod
    def of_bytes(cls, message: bytes) -> Outcome:
        """Return what a rank has sent: anybody may write into the store through which ranks meet without MPI."""
        try:
            record = parse_json(message, "outcome", "a rank has not said how it ended")
            text = record.get("message")
            return cls(
                record["code"].integer(),
                text.text() if text is not None else None,
                record["raised"].flag(),
                record["host"].text(),
            )
        except DataError as error:
            return cls(EXIT_FAILED, error.message, raised=True)


def run_guarded(
    main: Callable[[], int | None],
    communicator: Callable[[], Communicator | None],
    *,
    print_message: Callable[[str], None] | None = None,
    leave: Callable[[int], NoReturn] = os._exit,
    patience_s: float = PATIENCE_S,
) -> int:
    """Run `main` and see to it that the whole job ends as it should.

    Args:
        main: the rank's work; returns its exit code (None: 0), and may raise anything.
        communicator: returns the communicator once main has connected, None before.
        print_message: prints a message for the user, by default "error: ..." on standard error.
        leave: ends the process at once; another one in tests.
        patience_s: how long to wait for other ranks that fail as well, in seconds.

    Returns:
        The exit code to leave the process with, unless the process has been ended here.
    """
    open_missing_streams()
    outcome = _run(main)
    print_message = print_message or _print_error
    ranks = communicator()
    if ranks is not None and ranks.size > 1:
        return _end_together(outcome, ranks, print_message, leave, patience_s)
    record_folders.end(status.ENDED, outcome.code)
    if outcome.message is not None:
        _end_unconnected(outcome, print_message, leave)
    flush_quietly()
    return outcome.code


def _run(main: Callable[[], int | None]) -> Outcome:
    outcome = _run_unflushed(main)
    try:
        flush_output()
    except EngineError as error:
        return outcome if outcome.raised else Outcome(error.exit_code, str(error), raised=True)
    return outcome


def _run_unflushed(main: Callable[[], int | None]) -> Outcome:
    try:
        return Outcome(main() or EXIT_OK)
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return Outcome(error.code or EXIT_OK, None, raised=bool(error.code))
        return Outcome(EXIT_FAILED, str(error.code), raised=True)
    except KeyboardInterrupt:
        return Outcome(EXIT_FAILED, "interrupted", raised=True)
    except EngineError as error:
        return Outcome(error.exit_code, str(error), raised=True)
    except BaseException as error:
        if isinstance(error, OSError) and error.errno in FAILED_WRITES:
            try:
                flush_output(probe=b"\n")
            except EngineError as lost:
                return Outcome(lost.exit_code, str(lost), raised=True)
        missing = (error.name or "") if isinstance(error, ModuleNotFoundError) else ""
        if missing.partition(".")[0] not in ("", "mgcaffe"):
            text = f"the Python module '{missing}' is not installed"
            return Outcome(EXIT_FAILED, f"{text}\n  python -m pip check says which packages are missing", raised=True)
        # Anything else is a mistake of ours, and its traceback what a report of it needs.
        text = "".join(traceback.format_exception(error)).rstrip()
        return Outcome(EXIT_FAILED, f"internal error: {describe_exception(error)}\n{text}", raised=True)


def _end_unconnected(outcome: Outcome, print_message: Callable[[str], None], leave: Callable[[int], NoReturn]) -> None:
    assert outcome.message is not None
    try:
        launch = detect()
    except CommError:
        # What cannot be understood about the launcher is then the very message to print.
        print_message(outcome.message)
        return
    if launch.size == 1:
        print_message(outcome.message)
        return
    if launch.rank == 0:
        print_message(outcome.message)
    else:
        time.sleep(_ALONE_PATIENCE_S)
        print_message(f"rank {launch.rank}: {outcome.message}")
    flush_quietly()
    leave(outcome.code)


def _end_together(
    outcome: Outcome,
    ranks: Communicator,
    print_message: Callable[[str], None],
    leave: Callable[[int], NoReturn],
    patience_s: float,
) -> int:
    failed = outcome.code != EXIT_OK
    record = status.current()
    role = record.read().role
    host = f"{role}, {ranks.host}" if role else ranks.host
    mine = Outcome(outcome.code, outcome.message, outcome.raised, host)
    met = _meet(ranks, mine, patience_s if failed else None)
    if met is None and outcome.code == EXIT_PEER_FAILED and ulfm.is_enabled():
        # Its last block is printed by whoever watches (`watch.py`); all that lives ends alike, the rescuer first.
        _await_lower_ranks(record)
        record_folders.end(status.ENDED, outcome.code)
        flush_quietly()
        leave(outcome.code)
    if met is None and outcome.code in (EXIT_OK, EXIT_PEER_FAILED) and ranks.transport == "gloo":
        # Over gloo a call fails as soon as a peer is gone. A peer of this host has said why, or the watch says so.
        if not _has_lost_peer(record):
            print_message(f"rank {ranks.rank} ({host}): {outcome.message or 'another rank has failed'}")
        record_folders.end(status.ENDED, EXIT_PEER_FAILED)
        flush_quietly()
        leave(EXIT_PEER_FAILED)
    if met is None:
        said = outcome.message or f"ended with exit code {outcome.code}"
        print_message("\n".join([f"rank {ranks.rank} ({host}): {said}", *_place(record)]))
        record_folders.end(status.FAILED, outcome.code)
        flush_quietly()
        ranks.abort(outcome.code)
    record_folders.end(status.ENDED, outcome.code)
    outcomes = [Outcome.of_bytes(each) for each in met]
    if ranks.rank == 0:
        message = describe(outcomes)
        if message is not None:
            print_message(message)
        flush_quietly()
    code = common_code(outcomes)
    if not any(each.raised for each in outcomes):
        # mpirun calls every code but 0 a failure; the launcher reads the real one in the record.
        code = EXIT_OK if record_folders.launcher_pid() is not None else code
        if ranks.has_shrunk:
            # MPI_Finalize may wait for the dead for ever. Who is gone too early would fail the others' last call.
            flush_quietly()
            time.sleep(_LAST_CALL_S)
            leave(code)
        return code
    # No rank leaves before rank 0 has printed its message. MPI_Finalize might then wait for calls that were cut short.
    ranks.meet(b"", patience_s)
    flush_quietly()
    leave(code)


def _has_lost_peer(record: status.Status) -> bool:
    """Return whether another rank of this host has failed, or is gone without an error message."""
    folder = record.path.parent if record.path is not None else None
    return any(
        place.state == status.FAILED or (place.state == status.RUNNING and not is_alive(place.pid))
        for place in record_folders.read_places(folder).values()
        if place.host == record.host and place.rank != record.rank
    )


def _await_lower_ranks(record: status.Status) -> None:
    """Wait until the lower ranks of this host are done: the lowest writes a snapshot, and mpirun ends it with us."""
    record.doing(status.encode("rescuing: waiting for the lowest rank's snapshot"))
    folder = record.path.parent if record.path is not None else None
    while any(
        place.rank < record.rank and place.state == status.RUNNING and is_alive(place.pid)
        for place in record_folders.read_places(folder).values()
        if place.host == record.host
    ):
        time.sleep(0.05)


def _meet(ranks: Communicator, mine: Outcome, patience_s: float | None) -> list[bytes] | None:
    """Return the outcomes of all ranks, or None if one of them does not come, or cannot come any more."""
    try:
        return ranks.meet(mine.to_bytes(), patience_s)
    except PeerFailure:
        return None


def _place(record: status.Status) -> list[str]:
    """Return where a rank that fails alone was, if it has kept a record of it."""
    return describe_place(record.read()) if record.path is not None else []


def common_code(outcomes: Sequence[Outcome]) -> int:
    """Return the job's exit code: the first failure's, consequences of others' failures aside."""
    codes = [outcome.code for outcome in outcomes if outcome.code != EXIT_OK]
    causes = [code for code in codes if code != EXIT_PEER_FAILED]
    return (causes or codes or [EXIT_OK])[0]


def describe(outcomes: Sequence[Outcome]) -> str | None:
    """Return the message for the user: what all say, or each different end; None: all has been said."""
    failures = {rank: outcome for rank, outcome in enumerate(outcomes) if outcome.code != EXIT_OK}
    if any(outcome.code != EXIT_PEER_FAILED for outcome in failures.values()):
        failures = {rank: each for rank, each in failures.items() if each.code != EXIT_PEER_FAILED}
    groups: dict[tuple[int, str | None], list[int]] = {}
    for rank, outcome in failures.items():
        groups.setdefault((outcome.code, outcome.message), []).append(rank)
    if len(groups) == 1 and len(failures) == len(outcomes):
        return next(message for _, message in groups)
    if not failures:
        return None
    return "\n".join(
        f"{name_ranks(who)} ({', '.join(dict.fromkeys(outcomes[rank].host for rank in who))}): "
        f"{message or f'ended with exit code {code}'}"
        for (code, message), who in groups.items()
    )


def _print_error(message: str) -> None:
    say(f"error: {message}")
