"""A thread of each rank that knows, over connections of its own, whether the other ranks live and what ended them.

Ranks send their `RankRecord` to rank 0 about twice a second, and rank 0 sends to all what it makes of them
(`troubles.py`). So each rank knows within two seconds whose process is gone, within `timeout_s` which one is stopped,
and at once who failed by which exception. Nothing of that is an error by itself: only a rank that waits for others
gives up (`check`, `Alarm`). A rank that computes for long keeps its thread, and so is waited for; after ten seconds a
warning says which ones are.
"""

from __future__ import annotations

import atexit
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, NoReturn

from mgcaffe.comm.supervision.connection import Connection
from mgcaffe.comm.supervision.standard_streams import say
from mgcaffe.comm.supervision.troubles import RankRecord, Seen, Trouble, behind, first_waiting
from mgcaffe.comm.transport.communicator import Communicator
from mgcaffe.comm.transport.host_addresses import LOOPBACK, addresses_for_other_hosts, addresses_of_gloo, chosen_address
from mgcaffe.comm.transport.listener import Address, Listener, await_answer, greet
from mgcaffe.errors import EXIT_PEER_FAILED, CommError, DataError, PeerFailure
from mgcaffe.errors.checked_json import Json

TICK_S = 0.5
_SUSPENDED_S = 5 * TICK_S
_WARN_S = 10.0
_CONNECT_S = 2.0
_ANSWER_S = 10.0
_LEAVE_S = 2.0
"""For so long after a failure a call may go on waiting, before the process is ended: MPI's and NCCL's never give up.

Four times what gloo's need to hear of it, and with `TICK_S` for each of three steps short enough that with
`pytorch.failures.PEER_TIMEOUT_S` before it nobody waits for ten seconds.
"""


class RankWatch:
    """Watches the ranks of a communicator; making one is a collective call.

    Args:
        ranks: the ranks; used here alone.
        timeout_s: after how many seconds of silence a rank counts as dead; 0: never.
        warn: prints a warning.
        leave: ends the process, with an exit code; another one in tests.

    Attributes:
        timeout_s: as the argument; may be changed.
        unwatched: the ranks that cannot connect to rank 0.
    """

    def __init__(
        self,
        ranks: Communicator,
        timeout_s: float,
        warn: Callable[[str], None],
        leave: Callable[[int], NoReturn] = os._exit,
    ) -> None:
        self.timeout_s = timeout_s
        self._warn = warn
        self._leave = leave
        self._own = RankRecord(ranks.rank, ranks.size)
        self._lock = threading.RLock()
        self._seen: dict[int, Seen] = {}
        self._connections: dict[Connection, int] = {}
        self._selector = selectors.DefaultSelector()
        self._told: list[Trouble] = []
        self._behind: list[str] = []
        self._speaker = -1
        self._trouble: Trouble | None = None
        self._troubled_at = self._waits_at = 0.0
        self._has_warned = False
        self._closing = threading.Event()
        self._listener: Listener | None = None
        self._thread = threading.Thread(target=self._run, name="mgcaffe rank watch", daemon=True)
        try:
            self.unwatched = self._connect(ranks)
        except BaseException:
            self.leave()
            raise
        atexit.register(self.leave)

    def _connect(self, ranks: Communicator) -> list[int]:
        offer: Address | str = ""
        if ranks.rank == 0:
            try:
                self._listener = _listen(ranks)
                self._selector.register(self._listener, selectors.EVENT_READ)
                self._thread.start()
                offer = self._listener.address
            except CommError as error:
                offer = error.message  # the others wait for it
        offer = ranks.broadcast_object(offer)
        if isinstance(offer, str):
            raise CommError(offer)
        if ranks.rank > 0:
            self._greet(offer)
        known = ranks.allgather((replace(self._own), ranks.rank == 0 or bool(self._connections)))
        with self._lock:
            self._take_known([record for record, is_connected in known if is_connected])
        if self._connections and not self._thread.is_alive():
            self._thread.start()
        return [record.rank for record, is_connected in known if not is_connected]

    def _greet(self, address: Address) -> None:
        """Connect to rank 0 at the first of its addresses where it answers, if there is one."""
        for host in address.hosts:
            try:
                connected = greet(address, self._own.rank, _CONNECT_S, host)
            except OSError:
                continue
            try:
                await_answer(connected, address, _ANSWER_S)
            except OSError:
                connected.close()
                continue
            self._add(connected, 0)
            return

    def _add(self, connected: socket.socket, rank: int) -> None:
        connection = Connection(connected)
        self._connections[connection] = rank
        self._selector.register(connection, selectors.EVENT_READ)

    def _take_known(self, records: list[RankRecord]) -> None:
        """Count on the ranks that are connected from now on, and let nobody else connect."""
        now = time.monotonic()
        for record in records:
            if record.rank != self._own.rank and 0 in (record.rank, self._own.rank):
                seen = self._seen.setdefault(record.rank, Seen(record, now))
                if record.rank not in self._connections.values():
                    seen.close(now)
        self._stop_listening()

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None

    # -- called by the ranks' own threads ----------------------------------------------------------------------

    def check(self) -> None:
        """Make sure that no rank is known that should not be waited for.

        Raises:
            PeerFailure: there is one.
        """
        trouble = self._trouble
        if trouble is not None:
            raise PeerFailure(
                f"rank {self._own.rank} cannot go on: {trouble.text}", failed=frozenset({trouble.rank})
            ) from None

    def await_cause(self, patience_s: float) -> None:
        """Wait until it is known why another rank failed, for some seconds at most; errors as for `check`."""
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline and self._thread.is_alive():
            self.check()
            time.sleep(TICK_S / 10)
        self.check()

    def begin_wait(self) -> None:
        """Take note that this rank begins to communicate with all others."""
        self._waits_at = time.monotonic()
        self._has_warned = False
        self._own.rounds += 1
        self._own.waits = True
        self.note_raised("")

    def end_wait(self) -> None:
        """Take note that it has done so."""
        self._own.waits = False

    def note_raised(self, text: str) -> None:
        """Say that an exception ended a forward or backward pass; empty: that another one has begun."""
        if text != self._own.raised:
            self._own.raised = text
            self._tell()

    def note_end(self, text: str, *, follows: bool) -> None:
        """Say by which exception this process ends, and whether that comes of another rank's failure."""
        self._own.ended, self._own.follows = text, follows
        self._tell()

    def leave(self) -> None:
        """Say that this process leaves, and end the thread; harmless when repeated."""
        if self._closing.is_set():
            return
        self._closing.set()
        atexit.unregister(self.leave)
        self._own.left = True
        self._tell()
        with self._lock:
            for connection in self._connections:
                connection.close()
            self._stop_listening()

    # -- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        looked_at = ticked_at = time.monotonic()
        while not self._closing.is_set():
            events = self._selector.select(max(0.0, ticked_at + TICK_S - time.monotonic()))
            now = time.monotonic()
            with self._lock:
                if self._closing.is_set():
                    return
                if now - looked_at > TICK_S + _SUSPENDED_S:
                    for seen in self._seen.values():
                        seen.heard_at = now  # this process was stopped
                looked_at = now
                for key, _ in events:
                    self._read(key.fileobj, now)
            if now >= ticked_at + TICK_S:
                ticked_at = now
                self._tell()
            self._judge(now)

    def _read(self, source: Any, now: float) -> None:
        if isinstance(source, Listener):
            if source is self._listener:
                for rank, connected in source.poll(0.0):
                    self._add(connected, rank)
            return
        try:
            messages = source.receive()
            for message in messages or ():
                self._take(source, message, now)
        except DataError:
            messages = None  # from then on nothing of it is understood
        if messages is None:
            self._selector.unregister(source)
            source.close()
            rank = self._connections.pop(source)
            if rank in self._seen and rank not in self._connections.values():
                self._seen[rank].close(now)

    def _take(self, connection: Connection, message: Json, now: float) -> None:
        rank = self._connections[connection]
        record = RankRecord.of_json(message["record"])
        self._seen.setdefault(rank, Seen(record, now)).hear(record, now)
        if self._own.rank > 0:
            self._told = [Trouble.of_json(each) for each in message["troubles"].elements()]
            self._behind = [each.text() for each in message["behind"].elements()]
            self._speaker = message["speaker"].integer()
        elif record.ended:
            self._tell()

    def _troubles(self, now: float) -> list[Trouble]:
        """Return the troubles of all ranks but this one, the likeliest cause of the others first."""
        found = [seen.trouble(now, self.timeout_s) for seen in self._seen.values()]
        known = [*(each for each in found if each is not None), *self._told]
        return sorted((each for each in known if each.rank != self._own.rank), key=lambda each: each.kind)

    def _tell(self) -> None:
        with self._lock:
            message: dict[str, Any] = {"record": asdict(self._own)}
            if self._own.rank == 0:
                records = [self._own, *(seen.record for seen in self._seen.values() if seen.closed_at is None)]
                self._behind = [record.name() for record in behind(records)]
                self._speaker = first_waiting(records)
                troubles = [asdict(each) for each in self._troubles(time.monotonic())]
                message |= {"troubles": troubles, "behind": self._behind, "speaker": self._speaker}
            for connection in self._connections:
                connection.send(message)

    def _judge(self, now: float) -> None:
        with self._lock:
            trouble = next(iter(self._troubles(now)), None)
            if trouble is None:
                self._trouble = None
            elif self._trouble is None or trouble.kind != self._trouble.kind:
                self._trouble, self._troubled_at = trouble, now
                if self._own.rank == 0:
                    self._tell()  # at once: the others wait as well
        if not self._own.waits:
            return
        waited_s = now - self._waits_at
        if trouble is not None and now - max(self._troubled_at, self._waits_at) > _LEAVE_S:
            say(f"error: rank {self._own.rank} cannot go on: {trouble.text}")
            self._leave(EXIT_PEER_FAILED)
        if waited_s > _WARN_S and not self._has_warned and self._speaker == self._own.rank and self._behind:
            self._has_warned = True
            names = ", ".join(self._behind[:10])
            self._warn(f"rank {self._own.rank} has waited for {waited_s:.0f} s to average gradients with {names}")


def _listen(ranks: Communicator) -> Listener:
    """Return where rank 0 listens: where gloo does, or for the ranks of its host, or everywhere.

    MPI does not say by which network its ranks reach each other.
    """
    if chosen_address() is None and ranks.local_size == ranks.size:
        return Listener([LOOPBACK])
    if chosen_address() is not None or ranks.transport == "gloo":
        return Listener(addresses_of_gloo())
    return Listener([""], addresses_for_other_hosts())
