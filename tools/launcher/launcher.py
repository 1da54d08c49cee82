"""`engine train -np 4`: starts mpirun, stands between it and the user, and says in the end what brought the run down.

mpirun answers SIGINT and SIGTERM by killing all ranks within half a second. So it gets a session of its own, where
Ctrl-C does not reach it, and this process hands on what the user means: SIGUSR1 to stop, SIGUSR2 to snapshot. Both
wait until all ranks are up, since a signal that a process does not know yet kills it.

A rank that exits without an error message is noticed at once (`comm.supervision.peers`); its record says what it was
doing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from mgcaffe.comm.supervision import leftovers, record_folders
from mgcaffe.comm.supervision import status as statuses
from mgcaffe.comm.supervision.peers import Peers
from mgcaffe.comm.supervision.processes import is_alive
from mgcaffe.comm.transport.environment import detect
from mgcaffe.errors import EXIT_CANNOT_WRITE, EXIT_FAILED, EXIT_STOPPED_BY_SIGNAL, EngineError, UsageError
from mgcaffe.tools.flags.parsing import Flags
from mgcaffe.tools.launcher.command import PROGRAM, are_elsewhere, count_ranks, rank_command, rank_environment, survives
from mgcaffe.tools.launcher.ending import Ending, judge, read_end_message
from mgcaffe.tools.launcher.flags import words_for_ranks
from mgcaffe.tools.launcher.notices import Relay, cause_named, write_some
from mgcaffe.tools.launcher.restarts import Restarts
from mgcaffe.tools.listeners.glog import log_line, start_logging
from mgcaffe.tools.running.requeueing import requeue

_TICK_S = 0.25
_UNSEEN_READY_S = 20.0
"""After how long ranks on other hosts, whose records cannot be seen, count as ready for signals."""
_LOST_PATIENCE_S = 6.0
"""How long mpirun has for ending the others once a rank is gone; with --rescue and the like they end by themselves."""
_END_PATIENCE_S = 3.0
_RELAY_PATIENCE_S = 1.0


def launch(flags: Flags, program: Sequence[str] = PROGRAM) -> int:
    """Run the ranks, again if that was asked for, and return the exit code.

    Args:
        flags: of `engine train`.
        program: what runs `engine` in each rank.

    Raises:
        UsageError: this process is a rank already, or there is no mpirun.
        EngineError: (exit code 73) the limit on file sizes is too low for what the launcher or mpirun writes.
    """
    if record_folders.FOLDER_VARIABLE in os.environ or detect().size > 1:
        raise UsageError(
            "--np, -H and --max_restarts start ranks, and this process is one itself",
            hint="leave out mpirun (srun), or these flags",
        )
    start_logging(speaks=True)
    words = words_for_ranks(flags.words)
    ranks = count_ranks(flags)
    command = rank_command(flags, words, program)
    requests = _UserRequests(flags.sigint_effect, flags.sighup_effect)
    restarts = Restarts(flags.max_restarts)
    with requests:
        while True:
            ending = _Job(flags, command, ranks, requests).run()
            if ending.block:
                _say(ending.block if ending.code == EXIT_STOPPED_BY_SIGNAL else f"error: {ending.block}")
            delay = None if requests.stop else restarts.delay_after(ending.code)
            if delay is None:
                requests.log_unserved_requests()
                break
            log_line(restarts.announce(ending.code, delay))
            requests.sleep(delay)
            if requests.stop:
                log_line(f"{requests.cause}: not starting again")
                return EXIT_FAILED if requests.at_once else EXIT_STOPPED_BY_SIGNAL
            command = rank_command(flags, restarts.words(words), program)
    if reason := restarts.why_not(ending.code):
        log_line(reason)
    if flags.requeue and ending.code == EXIT_STOPPED_BY_SIGNAL:
        requeue(requests.cause)
    return ending.code


class _UserRequests:
    """What the user requested by signals; a context manager that handles these signals."""

    def __init__(self, sigint: str, sighup: str) -> None:
        self.stop = self.stop_is_handed_on = False
        self.at_once = False
        self.cause = ""  # the signal that asked for the stop
        self.snapshot = ""  # the signal that asks for a snapshot, until it is handed on
        self._effects = {
            signal.SIGINT: sigint,
            signal.SIGHUP: sighup,
            signal.SIGTERM: "stop",
            signal.SIGUSR1: "stop",
            signal.SIGUSR2: "snapshot",
            signal.SIGQUIT: "end",
        }
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> _UserRequests:
        for number in self._effects:
            self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def sleep(self, seconds: float) -> None:
        """Wait between two jobs; a stop ends the wait, a snapshot is requested of the next job."""
        deadline = time.monotonic() + seconds
        while not self.stop and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, _TICK_S))

    def log_unserved_requests(self) -> None:
        """Log the requests that came when no rank was running; no other job is started."""
        if self.snapshot:
            log_line(f"{self.snapshot}: no rank is running that could be asked for a snapshot")
        if self.stop and not self.stop_is_handed_on and not self.at_once:
            log_line(f"{self.cause}: no rank is running that could be asked to stop")

    def _take(self, received: int, frame: FrameType | None) -> None:
        number = signal.Signals(received)
        effect = self._effects[number]
        if effect == "snapshot":
            self.snapshot = number.name
        elif effect in ("stop", "end"):
            self.at_once = self.at_once or effect == "end" or (self.stop and number == signal.SIGINT)
            self.stop, self.cause = True, self.cause or number.name


class _Job:
    """One run of mpirun."""

    def __init__(self, flags: Flags, command: Sequence[str], ranks: int, requests: _UserRequests) -> None:
        self._command = list(command)
        self._ranks = ranks
        self._requests = requests
        self._elsewhere = are_elsewhere(flags)
        self._survives = survives(flags)
        self._may_lose_trainers = flags.on_trainer_loss == "continue"
        leftovers.sweep()
        self._folder = _new_folder()
        self._peers = Peers(self._folder, ranks)
        self._lost: list[statuses.Place] = []
        self._noted: set[str] = set()
        self._force_at: float | None = None

    def run(self) -> Ending:
        """Start it and wait for its end."""
        self._began = time.monotonic()
        try:
            with subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE if self._elsewhere else None,
                env=rank_environment(self._folder, self._command, are_elsewhere=self._elsewhere),
                start_new_session=True,
            ) as self._process:
                relay = Relay(self._process.stderr) if self._process.stderr is not None else None
                said = ""
                try:
                    while self._process.poll() is None:
                        self._watch(_TICK_S)
                except BaseException:
                    self._end()
                    raise
                finally:
                    if relay is not None:
                        said = relay.text(_RELAY_PATIENCE_S)
            self._watch(0.0)
            self._clear_up()
            return self._judge(said, relay.records if relay is not None else ())
        finally:
            self._peers.close()
            record_folders.remove_folder(self._folder)

    def _watch(self, seconds: float) -> None:
        for place in self._peers.wait(seconds):
            self._lose(place)
        if self._process.poll() is not None:
            return
        if self._requests.at_once:
            self._end()
        elif self._requests.snapshot or self._requests.stop != self._requests.stop_is_handed_on:
            self._hand_on()
        if self._force_at is not None and time.monotonic() > self._force_at:
            self._end()

    def _lose(self, place: statuses.Place) -> None:
        if place.state == statuses.ENDED or place.terminated:
            return
        self._lost.append(place)
        if self._force_at is None and not self._survives:
            self._force_at = time.monotonic() + _LOST_PATIENCE_S

    def _hand_on(self) -> None:
        requests = self._requests
        if not self._are_ready():
            self._note(*((requests.cause, "to stop") if requests.stop else (requests.snapshot, "for a snapshot")))
            return
        if (name := requests.snapshot) and self._send(signal.SIGUSR2):
            requests.snapshot = ""
            log_line(f"{name}: asking the ranks for a snapshot after this iteration")
        if requests.stop and not requests.stop_is_handed_on and self._send(signal.SIGUSR1):
            requests.stop_is_handed_on = True
            log_line(f"{requests.cause}: asking the ranks to stop after this iteration, with a snapshot")

    def _note(self, name: str, request: str) -> None:
        if request not in self._noted:
            self._noted.add(request)
            log_line(f"{name}: the ranks are asked {request} as soon as all of them are up")

    def _send(self, number: signal.Signals) -> bool:
        """Return whether mpirun was there to take the signal."""
        self._process.send_signal(number)
        return self._process.returncode is None

    def _are_ready(self) -> bool:
        """Return whether every rank knows what SIGUSR1 and SIGUSR2 mean."""
        places = self._peers.places()
        ready = [place for place in places.values() if place.doing != statuses.STARTING]
        if len(ready) == self._ranks or any(place.iteration >= 0 for place in ready):
            # Training begins together, so whoever trains knows that all are up.
            return True
        return self._elsewhere and len(ready) == len(places) and time.monotonic() - self._began > _UNSEEN_READY_S

    def _end(self) -> None:
        """End mpirun, which ends the ranks, and whoever is left."""
        self._process.terminate()
        try:
            self._process.wait(_END_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _clear_up(self) -> None:
        """Make sure that no rank of this host stays behind."""
        deadline = time.monotonic() + _END_PATIENCE_S
        while pids := [place.pid for place in self._peers.places().values() if is_alive(place.pid)]:
            if time.monotonic() > deadline:
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                return
            time.sleep(0.02)

    def _judge(self, said: str, lost: Sequence[statuses.Place]) -> Ending:
        if self._requests.at_once:
            return Ending(EXIT_FAILED, "interrupted")
        places = self._peers.places()
        return judge(
            self._process.returncode,
            self._lost,
            places,
            read_end_message(self._folder),
            is_mpirun=self._command[0] != sys.executable,
            named=cause_named(said, lost, places, self._ranks),
            may_lose_trainers=self._may_lose_trainers,
        )


def _new_folder() -> Path:
    try:
        return record_folders.new_folder()
    except OSError as error:
        raise EngineError(
            f"cannot write the ranks' records in {record_folders.records_folder()}: {error.strerror or error}",
            hint="make space there; `ulimit -f` shows the limit on file sizes",
            exit_code=EXIT_CANNOT_WRITE,
        ) from None


def _say(text: str) -> None:
    data = f"{text}\n".encode(errors="backslashreplace")
    with contextlib.suppress(OSError):
        sys.stderr.flush()
        while data:
            data = data[write_some(data) :]
