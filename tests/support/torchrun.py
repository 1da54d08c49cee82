"""Runs a program on two ranks under torchrun that need neither an installation nor a name of this host."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.paths import PROGRAMS, ROOT


def run_two_ranks(program: str, *words: object) -> str:
    """Return what both ranks of a program of tests/support/programs print; fail where one does."""
    # By default the ranks look for each other under this host's name, which not every network knows.
    options = ["--standalone", "--local-addr=127.0.0.1", "--nproc_per_node=2"]
    command = [sys.executable, "-m", "torch.distributed.run", *options, str(PROGRAMS / program), *map(str, words)]
    places = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
    variables = {**os.environ, "PYTHONPATH": places}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
