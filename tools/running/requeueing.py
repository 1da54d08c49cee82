"""Slurm's requeueing: a job whose time is nearly up stops after a snapshot and asks to be started again."""

from __future__ import annotations

import logging
import os
import subprocess

from mgcaffe.errors import UsageError
from mgcaffe.tools.running.signals import REQUEUE_SIGNALS

_log = logging.getLogger(__name__)


def check_requeue(snapshot: str | None) -> None:
    """Make sure that `--requeue` can do what it promises.

    Raises:
        UsageError: outside of Slurm, or without a flag that makes the requeued job go on.
    """
    if "SLURM_JOB_ID" not in os.environ:
        raise UsageError(
            "--requeue asks Slurm to start this job again, but SLURM_JOB_ID is not set",
            hint="use it inside a Slurm job, or leave it out",
        )
    if snapshot != "auto":
        raise UsageError(
            "--requeue without --snapshot=auto: the requeued job would not go on where this one stops",
            hint="add --snapshot=auto, which goes on from the newest valid snapshot, if there is one",
        )


def requeue(cause: str) -> None:
    """Have Slurm start this job again if a signal of Slurm's stopped it; to be the last thing that is done.

    Args:
        cause: what stopped the run (`Requests.cause`).
    """
    # One that came to another rank is followed by where.
    if cause.partition(" ")[0] not in REQUEUE_SIGNALS:
        return
    job = os.environ.get("SLURM_JOB_ID", "")
    try:
        result = subprocess.run(["scontrol", "requeue", job], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        _log.warning("job %s could not be requeued: %s", job, error)
        return
    if result.returncode:
        _log.warning("job %s could not be requeued: %s", job, (result.stderr or result.stdout).strip())
    else:
        _log.warning("%s: job %s is requeued and goes on from this snapshot", cause, job)
