"""Trains the digits net in two trees of this project and compares the final weights to the bit.

    python benchmarks/compare_trees.py HEAD~1 .                # a revision, and this checkout as it is
    python benchmarks/compare_trees.py BEFORE AFTER --ranks 2 --schedules wfbp,auto --solvers Adam

BEFORE and AFTER are folders with a checkout, or revisions of this repository, which are exported to a temporary
folder. Each tree trains the digits net of BEFORE (`examples/digits`) with every solver type, number of ranks and
schedule, from the same seed; its packages are imported from its own folder, whatever is installed. The blobs of the
final caffemodels are compared. Exit code 1 if any differ.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy
from compare_trees_worker import SOLVERS

from mgcaffe import Schedule
from mgcaffe.prototxt import NetParameter, blob_array, read_binary

ROOT = Path(__file__).resolve().parents[1]
WORKER = Path(__file__).resolve().parent / "compare_trees_worker.py"
ITERATIONS = 50
LIMIT_S = 1200


class TreeError(Exception):
    """A tree that cannot be used, or whose training failed."""


@dataclass(frozen=True)
class Tree:
    """One tree.

    Attributes:
        name: what the command line calls it.
        folder: the checkout.
        packages: a folder to import `mgcaffe` from.
    """

    name: str
    folder: Path
    packages: Path


@dataclass(frozen=True)
class Row:
    """One training in both trees.

    Attributes:
        solver, ranks, schedule: which.
        losses: of the first and the last iteration, in AFTER.
        plans: the plans that were found, in both trees together, and "still trying" where `auto` had not ended.
        difference: what differs; empty where every blob is equal to the bit.
    """

    solver: str
    ranks: int
    schedule: str
    losses: tuple[float, float]
    plans: tuple[str, ...]
    difference: str


def open_tree(name: str, scratch: Path) -> Tree:
    """Return the tree of a folder or revision, with links in `scratch` under which its packages can be imported.

    Raises:
        TreeError: neither a folder nor a revision, or without packages.
    """
    folder = Path(name).resolve()
    if not folder.is_dir():
        folder = scratch / "checkout"
        _export(name, folder)
    links = scratch / "packages" / "mgcaffe"
    links.mkdir(parents=True)
    packages = [file.parent for file in folder.glob("*/__init__.py") if file.parent.name != "mgcaffe"]
    if not packages:
        raise TreeError(f"{name}: {folder} is no checkout of this project: no folder there holds a package")
    for package in packages:
        (links / package.name).symlink_to(package)
    # A tree from before the package mgcaffe/ gets an empty one, so that an installed one can't take its place.
    entry = folder / "mgcaffe" / "__init__.py"
    if entry.exists():
        (links / "__init__.py").symlink_to(entry)
    else:
        (links / "__init__.py").touch()
    return Tree(name, folder, links.parent)


def _export(revision: str, folder: Path) -> None:
    archive = subprocess.run(["git", "archive", "--format=zip", revision], cwd=ROOT, capture_output=True)
    if archive.returncode:
        said = archive.stderr.decode(errors="replace").strip()
        raise TreeError(f"{revision}: neither a folder nor a revision of {ROOT}: {said}")
    with zipfile.ZipFile(io.BytesIO(archive.stdout)) as files:
        files.extractall(folder)


def train(tree: Tree, ranks: int, job: dict[str, Any], cwd: Path, output: Path) -> dict[str, Any]:
    """Run all trainings of one number of ranks in one process a rank; returns the worker's report.

    Raises:
        TreeError: a training failed, or all took longer than LIMIT_S seconds.
    """
    output.mkdir()
    arguments = json.dumps({**job, "packages": str(tree.packages), "output": str(output)})
    command = [sys.executable, str(WORKER), arguments]
    if ranks > 1:
        command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), *command]
    environment = dict(os.environ)
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    environment["PYTHONPATH"] = str(tree.packages)
    environment["OMP_NUM_THREADS"] = "1"
    environment["OMPI_ALLOW_RUN_AS_ROOT"] = environment["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    with subprocess.Popen(command, cwd=cwd, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            _, said = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.terminate()  # mpirun ends its ranks
            raise TreeError(f"{tree.name}, {ranks} rank(s): not done after {LIMIT_S} s") from None
    if process.returncode:
        raise TreeError(f"{tree.name}, {ranks} rank(s): exit code {process.returncode}\n{said[-3000:]}")
    report: dict[str, Any] = json.loads((output / "report.json").read_text())
    return report


def compare(before: Path, after: Path) -> str:
    """Return what differs between two caffemodels, or "" if every blob of every layer has the same bits."""
    blobs = [_blobs(before), _blobs(after)]
    if blobs[0].keys() != blobs[1].keys():
        return f"only in one tree: {', '.join(sorted(blobs[0].keys() ^ blobs[1].keys()))}"
    differences = []
    for name, one in blobs[0].items():
        other = blobs[1][name]
        if one.shape != other.shape:
            differences.append(f"{name}: shapes {one.shape} and {other.shape}")
        elif count := int(numpy.count_nonzero(_bits(one) != _bits(other))):
            largest = numpy.nanmax(numpy.abs(one - other), initial=0)
            differences.append(f"{name}: {count} of {one.size} numbers, by up to {largest:.3g}")
    return "; ".join(differences)


def _blobs(path: Path) -> dict[str, numpy.ndarray]:
    """Return the blobs of a caffemodel by "layer #number"."""
    net = read_binary(path, NetParameter)
    found = {
        f"{layer.name} #{index}": blob_array(blob) for layer in net.layer for index, blob in enumerate(layer.blobs)
    }
    if not found:
        raise TreeError(f"{path}: no weights")
    return found


def _bits(values: numpy.ndarray) -> numpy.ndarray:
    """Return the same numbers as integers, in which NaN equals itself and -0 is not 0."""
    return numpy.ascontiguousarray(values).view(f"u{values.itemsize}")


def run(before: str, after: str, ranks: list[int], job: dict[str, Any], scratch: Path) -> Iterator[Row]:
    """Train in both trees and compare, one row for each training."""
    trees = []
    for place, name in (("before", before), ("after", after)):
        (scratch / place).mkdir()
        trees.append(open_tree(name, scratch / place))
    for count in ranks:
        outputs = [scratch / place / f"ranks{count}" for place in ("before", "after")]
        reports = [
            train(tree, count, job, trees[0].folder, output) for tree, output in zip(trees, outputs, strict=True)
        ]
        for solver, schedule in product(job["solvers"], job["schedules"]):
            name = f"{solver}-{schedule}"
            first, last = reports[1][name]["losses"]
            plans = {plan for report in reports for plan in report[name]["plans"]}
            file = f"{name}_iter_{job['iterations']}.caffemodel"
            difference = compare(*(output / file for output in outputs))
            if not (math.isfinite(last) and last != first):
                difference = difference or f"nothing was learned: loss {first:g}, then {last:g}"
            yield Row(solver, count, schedule, (first, last), tuple(sorted(plans)), difference)


def main() -> int:
    """Print the table and return the exit code."""
    schedules = [schedule.value for schedule in Schedule]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", metavar="BEFORE")
    parser.add_argument("after", metavar="AFTER")
    parser.add_argument("--solvers", type=lambda text: text.split(","), default=list(SOLVERS))
    parser.add_argument("--ranks", type=lambda text: [int(word) for word in text.split(",")], default=[1, 2])
    parser.add_argument("--schedules", type=lambda text: text.split(","), default=schedules)
    parser.add_argument("--iterations", type=int, default=ITERATIONS)
    given = parser.parse_args()
    if unknown := [*({*given.solvers} - {*SOLVERS}), *({*given.schedules} - {*schedules})]:
        parser.error(f"unknown: {', '.join(unknown)}; solvers: {', '.join(SOLVERS)}; schedules: {', '.join(schedules)}")
    job = {"solvers": given.solvers, "schedules": given.schedules, "iterations": given.iterations}
    print(f"{'solver':<9} {'ranks':>5}  {'schedule':<10} {'loss':<16}  {'weights':<8}  plans")
    failed = rows = 0
    try:
        with tempfile.TemporaryDirectory(prefix="compare-trees-") as scratch:
            for row in run(given.before, given.after, given.ranks, job, Path(scratch)):
                rows += 1
                failed += bool(row.difference)
                losses = f"{row.losses[0]:.4f} -> {row.losses[1]:.4f}"
                verdict = f"DIFFER  {row.difference}" if row.difference else f"{'equal':<8}  {', '.join(row.plans)}"
                print(f"{row.solver:<9} {row.ranks:>5}  {row.schedule:<10} {losses:<16}  {verdict}", flush=True)
    except TreeError as error:
        print(f"compare_trees: {error}", file=sys.stderr)
        return 1
    print(f"{rows - failed} of {rows} trainings of {given.iterations} iterations end with the same weights to the bit")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
