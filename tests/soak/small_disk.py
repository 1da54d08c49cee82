"""A disk that is too small: the run goes on, older snapshots stay whole, the message says how much was missing.

Three ways to get there: a limit on the size of files, a file system of 1 MiB (in full, where it may be mounted), and a
folder that disappears.
"""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch

from mgcaffe.errors import EXIT_CANNOT_WRITE, SnapshotError
from mgcaffe.prototxt import parse_solver
from mgcaffe.solvers import Solver
from mgcaffe.solvers.events import Event, IterationDone, Warned
from mgcaffe.solvers.events.snapshots import SnapshotWritten
from mgcaffe.solvers.snapshots.store import stored_snapshots
from tests.soak import Row, count

NAME = "disk"
ITERATIONS = 16
_FORMS = ("BINARYPROTO", "HDF5")

# Weights and history have 160 kB each.
_SOLVER = """
base_lr: 0.001 momentum: 0.9 lr_policy: "fixed" max_iter: {iterations} random_seed: 3 solver_mode: CPU
snapshot: 2 snapshot_prefix: "{folder}/net" snapshot_format: {form} snapshot_after_train: false {fields}
net_param {{
  layer {{ name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {{
    shape {{ dim: 2 dim: 200 }} shape {{ dim: 2 dim: 200 }} data_filler {{ type: "gaussian" }} }} }}
  layer {{ name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
    inner_product_param {{ num_output: 200 weight_filler {{ type: "xavier" }} }} }}
  layer {{ name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "label" top: "loss" }}
}}
"""


class _Listener:
    """Counts iterations, keeps warnings, and does something after one of the snapshots."""

    def __init__(self, deeds: dict[int, Callable[[], None]]) -> None:
        self.iterations = 0
        self.written: list[int] = []
        self.warnings: list[str] = []
        self._deeds = deeds

    def on_event(self, event: Event) -> None:
        if isinstance(event, IterationDone):
            self.iterations += 1
            self._deeds.get(event.iteration, lambda: None)()
        elif isinstance(event, SnapshotWritten):
            self.written.append(event.iteration)
        elif isinstance(event, Warned):
            self.warnings.append(event.text)


def train(folder: Path, form: str, fields: str = "", **deeds: Callable[[], None]) -> tuple[_Listener, int]:
    """Trains to the end; returns what its listener received and the exit code that the run would have.

    Args:
        folder: where the snapshots go.
        form: snapshot_format.
        fields: more fields of the solver.
        deeds: what to do in an iteration, `at_<number>`.
    """
    torch.set_num_threads(1)
    text = _SOLVER.format(folder=folder, form=form, iterations=ITERATIONS, fields=fields)
    source = parse_solver(text, file="solver.prototxt")
    received = _Listener({int(name.removeprefix("at_")): deed for name, deed in deeds.items()})
    with Solver(source.param, source=source, listeners=[received]) as solver:
        try:
            solver.solve()
        except SnapshotError as error:
            return received, error.exit_code
    return received, 0


def _faults(folder: Path, received: _Listener, code: int, *, failed: int, expected_code: int) -> str | None:
    """What is not as it has to be."""
    if received.iterations != ITERATIONS:
        return f"the run ended after {received.iterations} iterations"
    if len(received.warnings) != failed or len(received.written) != ITERATIONS // 2 - failed:
        return f"{len(received.warnings)} warnings and {received.written} written: {received.warnings[:1]}"
    if code != expected_code:
        return f"exit code {code}"
    if list(folder.glob("*.tmp")):
        return "temporary files are left"
    stored = stored_snapshots(folder / "net")
    if sorted(each.iteration for each in stored) != received.written:
        return f"on disk are {[each.iteration for each in stored]}"
    for each in stored:
        each.check()
    return None


def limited_files(folder: Path, form: str) -> str | None:
    """Files may have 100,000 bytes from the second snapshot on, until shortly before the last one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (100_000, before[1]))
    lift = partial(resource.setrlimit, resource.RLIMIT_FSIZE, before)
    try:
        received, code = train(folder, form, "snapshot_background: false", at_4=limit, at_14=lift)
    finally:
        lift()
    problem = _faults(folder, received, code, failed=5, expected_code=0)
    if problem:
        return problem
    for text in received.warnings:
        match = re.search(r"needs (\d+) bytes, and files may have 100000 .*: (\d+) bytes are missing", text)
        if match is None or int(match[1]) - 100_000 != int(match[2]):
            return f"said {text}"
    return None


def full_disk(folder: Path, form: str) -> str | None:
    """A file system of 1 MiB, which is full after the third snapshot."""
    with _tmpfs(folder):
        received, code = train(folder, form)
        problem = _faults(folder, received, code, failed=5, expected_code=EXIT_CANNOT_WRITE)
        free = shutil.disk_usage(folder).free
    for text in received.warnings:
        match = re.search(r"needs (\d+) bytes, and (\d+) are free: (\d+) bytes are missing", text)
        if match is None or int(match[2]) != free or int(match[1]) - free != int(match[3]):
            return f"said {text}"
    return problem


def full_disk_kept_small(folder: Path, form: str) -> str | None:
    """The same disk, of which snapshot_keep leaves enough."""
    with _tmpfs(folder):
        received, code = train(folder, form, "snapshot_keep: 1")
        received.written = received.written[-1:] if len(received.written) == ITERATIONS // 2 else []
        left = [each.iteration for each in stored_snapshots(folder / "net")]
    return None if (received.warnings, code, left) == ([], 0, [ITERATIONS]) else f"{received.warnings}, {code}, {left}"


def vanished_folder(folder: Path, form: str) -> str | None:
    """The folder is renamed after two snapshots, and comes back."""
    away = folder.with_name("away")
    received, code = train(
        folder, form, "snapshot_background: false",
        at_4=lambda: folder.rename(away) and None, at_14=lambda: away.rename(folder) and None,
    )  # fmt: skip
    return _faults(folder, received, code, failed=5, expected_code=0) or (
        None
        if all("No such file or directory" in text for text in received.warnings)
        else f"said {received.warnings[0]}"
    )


def stops_if_asked(folder: Path, form: str) -> str | None:
    """With snapshot_errors: STOP the run ends after the iteration in which the failure is noticed."""
    away = folder.with_name("away")
    received, code = train(
        folder, form, "snapshot_background: false snapshot_errors: STOP", at_4=lambda: folder.rename(away) and None
    )
    away.rename(folder)
    expected = (7, [2, 4], EXIT_CANNOT_WRITE)
    found = (received.iterations, received.written, code)
    return None if found == expected else f"iterations, snapshots, exit code {found} instead of {expected}"


@contextmanager
def _tmpfs(folder: Path) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True, capture_output=True)


def _may_mount() -> bool:
    with tempfile.TemporaryDirectory() as name:
        try:
            with _tmpfs(Path(name)):
                return True
        except (OSError, subprocess.CalledProcessError):
            return False


def run(full: bool) -> list[Row]:
    """All ways in both formats; without the mounted ones unless full."""
    ways = [limited_files, vanished_folder, stops_if_asked]
    note = ""
    if full:
        may_mount = _may_mount()
        ways += [full_disk, full_disk_kept_small] if may_mount else []
        note = "" if may_mount else "no file system of 1 MiB: mounting is not allowed here"

    def cases(parent: Path) -> Iterator[tuple[str, partial[str | None]]]:
        for way in ways:
            for form in _FORMS:
                folder = parent / way.__name__ / form
                folder.mkdir(parents=True)
                yield f"{way.__name__}, {form}", partial(way, folder, form)

    with tempfile.TemporaryDirectory() as name:
        return [count("a disk too small: the run goes on, older snapshots whole", cases(Path(name)), note)]
