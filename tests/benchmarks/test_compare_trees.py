"""benchmarks/compare_trees.py finds a difference of one bit, between blobs and between trees."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import compare_trees
import numpy as np
import pytest

from mgcaffe.prototxt import NetParameter, fill_blob, write_binary

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "compare_trees.py"
PACKAGES = ("errors", "prototxt", "comm", "engine", "solvers")


def caffemodel(path: Path, **blobs: np.ndarray) -> Path:
    net = NetParameter()
    for name, values in blobs.items():
        fill_blob(net.layer.add(name=name).blobs.add(), values)
    write_binary(net, path)
    return path


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, arguments)], capture_output=True, text=True, timeout=120
    )


def test_blobs_are_compared_to_the_bit(tmp_path):
    values = np.array([1.0, 0.0, np.nan], np.float32)
    one = caffemodel(tmp_path / "one", conv=values)
    assert compare_trees.compare(one, caffemodel(tmp_path / "same", conv=values)) == ""
    changed = np.array([1.0, -0.0, np.nan], np.float32)
    assert compare_trees.compare(one, caffemodel(tmp_path / "changed", conv=changed)) == (
        "conv #0: 1 of 3 numbers, by up to 0"
    )
    longer = caffemodel(tmp_path / "longer", conv=np.ones(4, np.float32))
    assert compare_trees.compare(one, longer) == "conv #0: shapes (3,) and (4,)"
    other = caffemodel(tmp_path / "other", ip=values)
    assert compare_trees.compare(one, other) == "only in one tree: conv #0, ip #0"


def test_a_caffemodel_without_weights_is_refused(tmp_path):
    empty = caffemodel(tmp_path / "empty")
    with pytest.raises(compare_trees.TreeError, match="no weights"):
        compare_trees.compare(empty, empty)


@pytest.mark.slow
def test_what_is_no_tree_is_refused(tmp_path):
    for name, said in ((str(tmp_path), "no folder there holds a package"), ("no-such", "neither a folder nor")):
        result = run(name, ROOT)
        assert (result.returncode, result.stderr.count("Traceback")) == (1, 0)
        assert said in result.stderr


@pytest.mark.slow
def test_a_tree_that_computes_something_else_is_found(tmp_path):
    for package in (*PACKAGES, "mgcaffe"):
        shutil.copytree(ROOT / package, tmp_path / package)
    options = ("--solvers", "SGD", "--schedules", "single", "--ranks", "1", "--iterations", "3")
    result = run(ROOT, tmp_path, *options)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "1 of 1 trainings of 3 iterations end with the same weights to the bit" in result.stdout
    policies = tmp_path / "solvers" / "rates" / "policies.py"
    text = policies.read_text()
    policies.write_text(text.replace("    def rate(self, iteration: int) -> float:", SLOWER, 1))
    assert policies.read_text() != text
    result = run(ROOT, tmp_path, *options)
    assert result.returncode == 1
    assert "DIFFER  conv1 #0: " in result.stdout


SLOWER = """    def rate(self, iteration: int) -> float:
        return 0.999 * self.original_rate(iteration)

    def original_rate(self, iteration: int) -> float:"""
