"""`engine train` as a launcher: its flags, and programs of a test that its ranks run instead of `engine`."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from mgcaffe.tools.commands import train
from mgcaffe.tools.flags.parsing import Flags

_LAUNCH = """
import sys
from mgcaffe.tools import main
from mgcaffe.tools.launcher import launcher
program = sys.argv[1:3]
launcher.launch = lambda flags, launch=launcher.launch: launch(flags, program)
sys.exit(main.main(["train", *sys.argv[3:]]))
"""


def launch_command(program: Path, *words: str) -> list[str]:
    """Return the command for `engine train WORDS`, whose ranks run a Python program with their part of the words."""
    return [sys.executable, "-c", _LAUNCH, sys.executable, str(program), *words]


_RANK = """
import os, signal, sys, time
from pathlib import Path
from mgcaffe.comm.supervision import record_folders, status
record = record_folders.open_status(record_folders.job_folder(), 0, 1)
heard = []
for number in (signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, lambda got, frame: heard.append(signal.Signals(got).name))
record.iteration(4)
record.doing(status.encode("forward, layer 'a'"))
Path("words").write_text(" ".join(sys.argv[1:]))
Path("started").open("a").write("x")
BODY
"""


def parse(*words: str) -> Flags:
    """Return the flags of `engine train WORDS solver.prototxt`."""
    return train.parser().parse([*words, "solver.prototxt"])


def rank_script(body: str) -> str:
    """Return a program for a job of one rank: it opens its record, notes its words and signals, and runs `body`."""
    return _RANK.replace("BODY", textwrap.dedent(body))
