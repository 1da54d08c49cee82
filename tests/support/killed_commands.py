"""Commands of `engine` that are killed at any moment.

They are forked from a process that has imported what they need, so a moment falls into their work and not into the
interpreter's start, which takes longer than the work of a test.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

_FORKS = """
import json, os, sys
import PIL.JpegImagePlugin, PIL.PngImagePlugin
import mgcaffe.engine.data.dataset_writer, mgcaffe.tools.datasets.mnist_files
from mgcaffe.tools.commands import convert_cifar_data, convert_imageset, convert_mnist_data, convert_mnist_siamese_data
from mgcaffe.tools.main import main
print("ready", flush=True)
for line in sys.stdin:
    process = os.fork()
    if not process:
        os._exit(main(json.loads(line)))
    print(process, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
"""


class KilledCommands:
    """Runs commands in `folder`, one after the other, as a context that leaves no process."""

    def __init__(self, folder: Path) -> None:
        self._forks = subprocess.Popen(
            [sys.executable, "-c", _FORKS],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
        )
        assert self._read() == "ready"

    def run(self, *words: str, kill_after_s: float | None = None) -> tuple[int, float]:
        """Run a command, and kill it after some time.

        Returns:
            Its exit code (minus the signal's number), and how many seconds it took.
        """
        began = time.perf_counter()
        assert self._forks.stdin is not None
        self._forks.stdin.write(json.dumps(words) + "\n")
        process = int(self._read())
        if kill_after_s is not None:
            time.sleep(kill_after_s)
            with contextlib.suppress(ProcessLookupError):  # it has ended already
                os.kill(process, signal.SIGKILL)
        return int(self._read()), time.perf_counter() - began

    def _read(self) -> str:
        assert self._forks.stdout is not None
        return self._forks.stdout.readline().strip()

    def __enter__(self) -> KilledCommands:
        return self

    def __exit__(self, *_: object) -> None:
        self._forks.kill()
        self._forks.communicate()
