"""A log file for each rank, in the folder that `--log_dir` names, as glog writes them.

One run of one rank is `engine.rank1.node7.anna.log.INFO.20260101-120000.4711`, with glog's three lines of head;
`engine.rank1.INFO` is a link to the newest.
"""

from __future__ import annotations

import getpass
import logging
import os
import platform
import sys
import time
from contextlib import suppress
from pathlib import Path

from mgcaffe.comm.supervision.standard_streams import say
from mgcaffe.errors import EXIT_CANNOT_WRITE, EngineError

_PROGRAM = "engine"
_HEAD = (
    "Log file created at: {time}\nRunning on machine: {host}\n"
    "Log line format: [IWEF]mmdd hh:mm:ss.uuuuuu threadid file:line] msg\n"
)


class LogFile(logging.FileHandler):
    """A rank's file. When it cannot be written any more, that is said once, and the run goes on without it."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Close the file for good."""
        problem = sys.exc_info()[1]
        reason = getattr(problem, "strerror", None) or problem
        logging.getLogger("mgcaffe").removeHandler(self)
        with suppress(OSError):  # what is left in its buffer cannot be written either
            self.close()
        say(f"warning: cannot write {self.baseFilename} any more: {reason}")


def open_log_file(folder: str, rank: int) -> LogFile:
    """Create this rank's file; the folder is made where it is missing.

    Raises:
        EngineError: (exit code 73) it cannot be written.
    """
    host = platform.node().partition(".")[0] or "unknown"
    now = time.localtime()
    stem = f"{_PROGRAM}.rank{rank}"
    name = f"{stem}.{host}.{_user()}.log.INFO.{time.strftime('%Y%m%d-%H%M%S', now)}.{os.getpid()}"
    path = Path(folder) / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_HEAD.format(time=time.strftime("%Y/%m/%d %H:%M:%S", now), host=host), encoding="utf-8")
        handler = LogFile(path, encoding="utf-8")
    except FileExistsError:
        raise EngineError(f"--log_dir {folder} is no folder", exit_code=EXIT_CANNOT_WRITE) from None
    except OSError as error:
        raise EngineError(f"cannot write the log file {path}: {error.strerror}", exit_code=EXIT_CANNOT_WRITE) from None
    _link(path.with_name(f"{stem}.INFO"), name)
    return handler


def _link(link: Path, name: str) -> None:
    """Point the link to the file; some file systems have no links, and the log does not need them."""
    try:
        link.unlink(missing_ok=True)
        link.symlink_to(name)
    except OSError:
        return


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user without a name
        return str(os.getuid())
