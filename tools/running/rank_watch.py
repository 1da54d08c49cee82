"""What keeps an eye on one rank of `engine train`: its record, the watching thread, signals and the stop file.

It loads neither torch nor MPI, so that it is there before either can hang or crash.
"""

from __future__ import annotations

import faulthandler
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from mgcaffe.comm.supervision import leftovers, record_folders
from mgcaffe.comm.supervision import status as statuses
from mgcaffe.comm.supervision.standard_streams import say
from mgcaffe.comm.supervision.watch import JobWatch
from mgcaffe.comm.transport import ulfm
from mgcaffe.comm.transport.environment import detect
from mgcaffe.tools.running.signals import Requests, StopFile

if TYPE_CHECKING:
    from mgcaffe.tools.flags.parsing import Flags


class RankWatch:
    """Opens this rank's record and starts watching; to be made before MPI is initialised, and closed at the very end.

    Args:
        flags: of `engine train`.

    Attributes:
        requests: what signals and the stop file asked for.
        status: this rank's record.
    """

    def __init__(self, flags: Flags) -> None:
        launch = detect()
        self.launched = record_folders.FOLDER_VARIABLE in os.environ
        has_record = self.launched or launch.size > 1
        if launch.local_rank in (None, 0) and not record_folders.is_launchers():
            # The launcher tidies up on its own host.
            leftovers.sweep()
        self.status = record_folders.open_status(
            record_folders.job_folder() if has_record else None, launch.rank, launch.size
        )
        statuses.use(self.status)
        self.requests = Requests()
        if has_record and not faulthandler.is_enabled():
            # A crash in a library then shows where in our code it was called.
            faulthandler.enable()
        self._watch = JobWatch(
            self.status,
            say,
            stall_timeout_s=flags.stall_timeout,
            parent=os.getppid() if launch.size > 1 else None,
            survives=ulfm.is_enabled(),
            tasks=[self.requests.log_pending],
        )
        self._watch.start()
        if threading.current_thread() is threading.main_thread():
            self.requests.listen(
                flags.sigint_effect, flags.sighup_effect, launched=self.launched, has_peers=launch.size > 1
            )
        statuses.doing("setting up: loading libraries and joining the other ranks")

    def look_for(self, stop_file: Path) -> None:
        """Have a file stop the run.

        Raises:
            UsageError: it is there already.
        """
        self._watch.add_task(StopFile(stop_file, self.requests).look)

    def add_task(self, task: Callable[[], None]) -> None:
        """Call `task` about twice a second, on the watching thread."""
        self._watch.add_task(task)

    def close(self, *, process_ends: bool = False) -> None:
        """Stop watching; the record stays for the launcher, if there is one.

        Args:
            process_ends: whether signals stay as the end of the run has left them (`Requests.end`).
        """
        self.requests.log_pending(include_delayed=True)
        self._watch.close()
        if not process_ends:
            self.requests.restore()
        statuses.use(statuses.Status())
