"""How a job ended: its exit code, and the last block on the rank that brought it down.

| what happened                                            | exit code                      |
|----------------------------------------------------------|--------------------------------|
| all ranks ended alike                                    | theirs: 0, 65, 73, 75, ...     |
| one rank failed and said why, here or on another host    | its own                        |
| a rank was killed, crashed, or was ended by a library    | 69                             |
| nothing moved for --stall_timeout                        | 70                             |
| mpirun itself was killed                                 | 69                             |
| mpirun was told to end by a signal                       | 69; 75 where all have stopped  |
| mpirun could not start the ranks                         | 1                              |
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mgcaffe.comm.supervision.status import ENDED, FAILED, RUNNING, STARTING, Place
from mgcaffe.comm.supervision.verdict import END_MESSAGE, lost_block, name_signal
from mgcaffe.errors import (
    EXIT_BAD_INPUT,
    EXIT_CANNOT_WRITE,
    EXIT_FAILED,
    EXIT_NOT_FINITE,
    EXIT_OK,
    EXIT_PEER_FAILED,
    EXIT_RANKS_DISAGREE,
    EXIT_STALLED,
    EXIT_STOPPED_BY_SIGNAL,
)

# A shell's, and mpirun's, exit code of a process that a signal ended is the first number plus the signal's, which is
# below the second one: mpirun has greater codes of its own.
_FIRST_SIGNAL_CODE, _SIGNALS = 128, 32
# What a rank ends with that did not bring the job down itself.
_NO_CAUSES = (EXIT_OK, EXIT_PEER_FAILED, EXIT_STOPPED_BY_SIGNAL)
# What mpirun returns only after a rank did, which has said why. Where mpirun itself cannot start the ranks, it returns
# 1, what ssh (255) or a shell on the other host (126, 127) returned, or a number of its own (181, 183, 213, 250).
_CAUSES = (EXIT_BAD_INPUT, EXIT_STALLED, EXIT_NOT_FINITE, EXIT_CANNOT_WRITE, EXIT_RANKS_DISAGREE)

_SIGNALLED = "mpirun was told to end, by SIGINT, SIGTERM or SIGHUP, and"
_KILLED = (
    f"{_SIGNALLED} killed the ranks before they had stopped\n"
    "  send signals to the launcher or to one rank: then all stop after a snapshot"
)
_STOPPED = f"{_SIGNALLED} passed on no more of what the ranks said, which have stopped as on any signal"


@dataclass(frozen=True)
class Ending:
    """The exit code, and the block to print; empty where all has been said."""

    code: int
    block: str = ""


def read_end_message(folder: Path) -> Ending | None:
    """Return what a rank that ended the job left to be said (`comm/supervision/job_end.py`)."""
    try:
        code, _, text = (folder / END_MESSAGE).read_text(encoding="utf-8").partition("\n")
        return Ending(int(code), text)
    except (OSError, ValueError):
        return None


def judge(
    returncode: int,
    lost: Sequence[Place],
    places: Mapping[int, Place],
    end_message: Ending | None,
    *,
    is_mpirun: bool,
    named: str = "",
    may_lose_trainers: bool = False,
) -> Ending:
    """Decide what the job's end was.

    Args:
        returncode: of mpirun, or of the only rank; negative: minus the signal that ended it.
        lost: the ranks of this host that went before they said so, the first one first.
        places: the records of this host's ranks.
        end_message: what a rank said before it ended the job.
        is_mpirun: whether the return code is mpirun's.
        named: the block on the rank that went first, as ranks on other hosts reported it (`notices`).
        may_lose_trainers: whether trainers but rank 0 may go without an end of the job (--on_trainer_loss=continue).
    """
    if end_message is not None:
        return end_message
    failed = next((place for place in lost if place.state == FAILED), None)
    if failed is not None:
        return Ending(failed.code, lost_block(failed))
    said = [place.code for place in places.values() if place.state == ENDED and place.code not in _NO_CAUSES]
    if said:
        # It has printed why; the others were ended because of it.
        return Ending(said[0])
    if is_mpirun and returncode < 0:
        return Ending(EXIT_PEER_FAILED, f"mpirun was ended by {name_signal(-returncode)}, and the ranks with it")
    if is_mpirun and returncode in _CAUSES and _are_elsewhere(places):
        # Not one of this host's ranks gave it, so one on another host has, and has printed why.
        return Ending(returncode)
    if named:
        # A rank of this host that is gone too may only have lost its connection to that one.
        return Ending(EXIT_PEER_FAILED, named)
    silent = [place for place in lost if place.state == RUNNING]
    # mpirun returns 0 where the others have gone on without it (--on_trainer_loss=continue).
    by_signal = is_mpirun and 0 < returncode - _FIRST_SIGNAL_CODE < _SIGNALS
    unseen = by_signal and _are_elsewhere(places) and all(place.doing == STARTING for place in silent)
    if silent and not unseen and not (is_mpirun and returncode == EXIT_OK):
        cause = next((place for place in silent if not (may_lose_trainers and _may_go(place))), silent[0])
        return Ending(EXIT_PEER_FAILED, lost_block(cause, _how(returncode)))
    if returncode == EXIT_OK:
        return Ending(max((place.code for place in places.values()), default=EXIT_OK))
    if is_mpirun and returncode == EXIT_FAILED and _were_told_to_end(places):
        return _told_to_end(list(places.values()))
    if returncode == EXIT_FAILED or not is_mpirun:
        return Ending(returncode)
    if by_signal:
        signalled = next((place for place in places.values() if place.terminated and place.state == RUNNING), None)
        if signalled is not None and not _are_elsewhere(places):
            return Ending(EXIT_PEER_FAILED, lost_block(signalled, _how(returncode)))
        how = f"a rank that was starting, or is on another host, {_how(returncode)}"
        return Ending(EXIT_PEER_FAILED, f"{how}; mpirun's notice above names it")
    if not places and returncode not in _NO_CAUSES:
        return Ending(EXIT_FAILED, f"mpirun could not start the ranks (its exit code is {returncode})")
    if returncode > _FIRST_SIGNAL_CODE:
        whose = "its own, or that of a rank on another host" if _are_elsewhere(places) else "one of its own"
        return Ending(EXIT_PEER_FAILED, f"mpirun ended with exit code {returncode}, {whose}; it says why above")
    return Ending(returncode)


def _may_go(place: Place) -> bool:
    """Return whether a job that may lose trainers goes on without this rank, once it trains."""
    return place.rank > 0 and not place.is_server and place.iteration >= 0


def _were_told_to_end(places: Mapping[int, Place]) -> bool:
    """Return whether mpirun sent the ranks SIGTERM, which all are on this host, but for those that had ended well."""
    untold = [(each.state, each.code) for each in places.values() if not _was_told_to_end(each)]
    return len(untold) < len(places) and {*untold} <= {(ENDED, EXIT_OK)} and not _are_elsewhere(places)


def _was_told_to_end(place: Place) -> bool:
    return place.terminated or (place.state, place.code) == (ENDED, EXIT_STOPPED_BY_SIGNAL)


def _told_to_end(places: Sequence[Place]) -> Ending:
    """Return the end of a job whose mpirun was told to end, and has passed nothing on since."""
    failed = next((place for place in places if place.state == FAILED), None)
    if failed is not None:
        return Ending(failed.code, lost_block(failed))
    codes = {place.code if place.state == ENDED else EXIT_PEER_FAILED for place in places}
    if EXIT_PEER_FAILED in codes:
        return Ending(EXIT_PEER_FAILED, _KILLED)
    return Ending(EXIT_STOPPED_BY_SIGNAL, _STOPPED) if EXIT_STOPPED_BY_SIGNAL in codes else Ending(EXIT_OK)


def _are_elsewhere(places: Mapping[int, Place]) -> bool:
    """Return whether some ranks have no record on this host."""
    return len(places) < max((place.size for place in places.values()), default=1)


def _how(returncode: int) -> str:
    """Return what a return code says of the process that ended first."""
    number = -returncode if returncode < 0 else returncode - _FIRST_SIGNAL_CODE
    if 0 < number < (signal.NSIG if returncode < 0 else _SIGNALS):
        verb = "was killed" if number in (signal.SIGKILL, signal.SIGTERM) else "was ended"
        return f"{verb} by {name_signal(number)}"
    if returncode in (EXIT_OK, EXIT_FAILED, EXIT_PEER_FAILED):
        return ""
    return f"ended with exit code {returncode} without saying why"
