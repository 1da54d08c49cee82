"""The last block of a job that a rank brought down: which rank, on which host, at which iteration, doing what.

```
error: rank 1 of 3 on node7 (process 4711) was killed by signal 9 (SIGKILL)
  iteration: 120
  doing:     backward, layer 'conv1'
  the other ranks end with it
```
"""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from mgcaffe.comm.supervision.status import FAILED, Place
from mgcaffe.errors import DataError
from mgcaffe.errors.checked_json import parse_json

UNEXPLAINED = "exited without an error message: killed, crashed, or ended by a library"
"""What is said of a rank whose end has no known cause."""

RECORD_SEPARATOR = "\x1e"
"""What begins a record in the output of a rank."""

END_MESSAGE = "end message"
"""The file, beside the records, in which a rank that ends the job leaves code and message to the launcher."""


def describe_place(place: Place) -> list[str]:
    """Return the lines on where a rank was."""
    if place.is_server:
        return [f"  doing:     {place.doing}"]
    iteration = str(place.iteration) if place.iteration >= 0 else "before the first"
    return [f"  iteration: {iteration}", f"  doing:     {place.doing}"]


def name_process(place: Place) -> str:
    """`rank 1 of 3 on node7 (process 4711)`; with a role `rank 2 of 3, synchronization server, on node7 (...)`."""
    role = f", {place.role}," if place.role else ""
    return f"rank {place.rank} of {place.size}{role} on {place.host} (process {place.pid})"


def lost_block(place: Place, how: str = "") -> str:
    """Return the block on a rank that has died.

    Args:
        place: its last record.
        how: what ended it, where that is known: `was killed by signal 9 (SIGKILL)`.
    """
    if not how:
        how = f"failed with exit code {place.code}" if place.state == FAILED else UNEXPLAINED
    lines = [f"{name_process(place)} {how}", *describe_place(place)]
    if place.size > 1:
        lines.append("  the other ranks end with it")
    return "\n".join(lines)


def attached_record(place: Place) -> str:
    """Return a record as a rank appends it to the block that it prints, for a launcher on another host.

    It is a JSON text sequence's element (RFC 7464): a record separator, then JSON; the end of the line ends it. The
    launcher removes it from what it passes on (`read_attached_record`).
    """
    return RECORD_SEPARATOR + json.dumps(asdict(place))


def read_attached_record(text: str) -> Place | None:
    """Return the record that `attached_record` wrote, without its separator; None where it is damaged."""
    try:
        record = parse_json(text, "output", "this is no record")
        return Place(
            rank=record["rank"].integer(),
            size=record["size"].integer(),
            pid=record["pid"].integer(),
            host=record["host"].text(),
            state=record["state"].integer(),
            code=record["code"].integer(),
            terminated=record["terminated"].flag(),
            iteration=record["iteration"].integer(),
            beat=record["beat"].integer(),
            doing=record["doing"].text(),
            started=record["started"].integer(),
            role=record["role"].text(),
        )
    except DataError:
        return None


def name_signal(number: int) -> str:
    """`signal 9 (SIGKILL)`."""
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def stall_block(
    places: Mapping[int, Place], stopped: Sequence[int], seconds: float, size: int, ends: bool, what: str = "progress"
) -> str:
    """Return the warning, or the last block, on a job that makes no progress.

    Args:
        places: the records of this host's ranks.
        stopped: those of them that a signal has stopped.
        seconds: for how long nothing has moved.
        size: how many ranks the job has.
        ends: whether the job ends now.
        what: what there was none of. Beside training, nothing is known of who is behind.
    """
    elsewhere, all_wait = size - len(places), all(map(_waits, places.values()))
    suspects = [rank for rank in stopped if rank in places]
    if not suspects and what == "progress" and not (elsewhere and all_wait):
        suspects = behind(places)
    lines = [f"no {what} for {seconds:.0f} s" + (", so the job ends (--stall_timeout)" if ends else "")]
    for rank in suspects:
        place = places[rank]
        why = "is stopped by a signal (SIGSTOP or the like)" if rank in stopped else "is behind the others"
        if len(places) == 1 and rank not in stopped:
            why = "does not go on"
        lines += [f"{name_process(place)} {why}", *describe_place(place)]
    others = [rank for rank in places if rank not in suspects]
    lines += [f"  {_short_name(places[rank])}: {places[rank].describe()}" for rank in others]
    if elsewhere:
        run = "rank runs on another host, whose record" if elsewhere == 1 else "ranks run on other hosts, whose records"
        lines.append(f"  {elsewhere} more {run} cannot be seen here")
        if places and not suspects and what == "progress" and all_wait:
            lines.append("  those here wait, so see there who is behind, and whether the hosts reach each other")
    return "\n".join(lines)


def _short_name(place: Place) -> str:
    return f"rank {place.rank}" + (f" ({place.role})" if place.role else "")


def behind(places: Mapping[int, Place]) -> list[int]:
    """Return the ranks for which the others wait: those that wait for none, or else those of the lowest iteration."""
    busy = [rank for rank, place in places.items() if not _waits(place)]
    if busy and len(busy) < len(places):
        return busy
    counted = {rank: place.iteration for rank, place in places.items() if not place.is_server}
    lowest = min(counted.values(), default=-1)
    late = [rank for rank, iteration in counted.items() if iteration == lowest]
    return late if len(late) < len(counted) or len(places) == 1 else []


def _waits(place: Place) -> bool:
    return place.doing.startswith("waiting")
