"""`engine train` as a launcher whose ranks run a program of a test instead of `engine`."""

from __future__ import annotations

import sys
from pathlib import Path

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
