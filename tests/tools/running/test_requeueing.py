"""Under Slurm: when a job is requeued."""

from __future__ import annotations

import os

import pytest

from mgcaffe.errors import UsageError
from mgcaffe.tools.commands import train
from mgcaffe.tools.running import requeueing
from mgcaffe.tools.running.session import Session
from tests.support.launcher import parse

pytestmark = pytest.mark.usefixtures("no_job")


def test_requeueing_needs_slurm_and_a_way_to_go_on(monkeypatch):
    with pytest.raises(UsageError, match="SLURM_JOB_ID is not set"):
        requeueing.check_requeue("auto")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    with pytest.raises(UsageError, match="--snapshot=auto"):
        requeueing.check_requeue(None)
    requeueing.check_requeue("auto")
    with pytest.raises(UsageError, match="--snapshot=auto"):  # without the launcher too
        train.run(parse("--requeue"), Session())


@pytest.mark.parametrize(("cause", "asked"), [("SIGUSR1", "requeue 17"), ("SIGTERM", "requeue 17"), ("SIGINT", "")])
def test_only_slurms_signals_requeue_the_job(tmp_path, monkeypatch, cause, asked):
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\n')
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    requeueing.requeue(cause)
    path = tmp_path / "asked"
    assert (path.read_text().strip() if path.exists() else "") == asked
