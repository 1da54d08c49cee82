"""benchmarks/compare_trees.py finds a difference of one bit, between blobs and between trees."""

from __future__ import annotations

import re
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
    rules = tmp_path / "solvers" / "update" / "rules.py"
    text = rules.read_text()
    rules.write_text(text.replace("mul_(eta * correction)", "mul_(0.999 * eta * correction)"))
    assert rules.read_text() != text
    result = run(ROOT, tmp_path, "--solvers", "SGD,Adam", "--schedules", "single", "--ranks", "1", "--iterations", "3")
    assert result.returncode == 1, result.stdout + result.stderr
    assert re.search(r"^SGD .* equal *$", result.stdout, re.M) and "DIFFER  conv1 #0: " in result.stdout
    assert "1 of 2 trainings of 3 iterations end with the same weights to the bit" in result.stdout


@pytest.mark.parametrize(("difference", "code"), [("", 0), ("conv1 #0: 1 of 3 numbers", 1)])
def test_the_exit_code_says_whether_all_are_equal(difference, code, monkeypatch, capsys):
    rows = [compare_trees.Row("SGD", 1, "single", (2.0, 1.0), (), each) for each in ("", difference)]
    monkeypatch.setattr(compare_trees, "run", lambda *_: iter(rows))
    monkeypatch.setattr(sys, "argv", ["compare_trees.py", "before", "after"])
    assert compare_trees.main() == code
    assert f"{2 - code} of 2 trainings" in capsys.readouterr().out
