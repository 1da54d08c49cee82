"""`import mgcaffe`: its names, its version, and the quick start in the README."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import mgcaffe
import mgcaffe.errors
from mgcaffe.comm.planning.schedules import SCHEDULES
from mgcaffe.comm.tuning.settings import AUTO
from mgcaffe.prototxt import read_net
from mgcaffe.solvers import Solver

ROOT = Path(__file__).parents[1]


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=120)


def test_names_are_those_of_the_packages():
    assert mgcaffe.Solver is Solver
    assert mgcaffe.read_net is read_net
    assert mgcaffe.__version__ == version("mgcaffe")
    assert dir(mgcaffe) == sorted(mgcaffe.__all__)
    assert all(getattr(mgcaffe, name) is not None for name in mgcaffe.__all__)


def test_every_error_is_there():
    errors = {
        name
        for name, value in vars(mgcaffe.errors).items()
        if inspect.isclass(value) and issubclass(value, mgcaffe.errors.EngineError)
    }
    assert errors <= set(mgcaffe.__all__)
    assert all(getattr(mgcaffe, name) is getattr(mgcaffe.errors, name) for name in errors)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'mgcaffe' has no attribute 'Slover'"):
        mgcaffe.Slover  # noqa: B018


def test_schedules_are_those_that_can_be_planned_and_auto():
    assert [str(schedule) for schedule in mgcaffe.Schedule] == [*SCHEDULES, AUTO]
    assert f"{mgcaffe.Schedule.WFBP}" == mgcaffe.Schedule.WFBP == "wfbp"


@pytest.mark.slow
def test_names_load_nothing_but_what_they_need(tmp_path):
    code = (
        "import sys, mgcaffe; mgcaffe.read_net, mgcaffe.EngineError, mgcaffe.Schedule, mgcaffe.__version__\n"
        "assert not {'torch', 'mpi4py'} & set(sys.modules); mgcaffe.Net; assert 'torch' in sys.modules"
    )
    result = run(code, tmp_path)
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
def test_the_quick_start_of_the_readme_trains_the_digits_net(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len([line for line in code.splitlines() if line]) <= 10
    shutil.copytree(ROOT / "examples" / "digits", tmp_path / "examples" / "digits")
    result = run(code, tmp_path)
    assert result.returncode == 0, result.stderr
    scores = dict(line.split() for line in result.stdout.splitlines())
    assert float(scores["accuracy"]) > 0.96
    assert set(scores) == {"accuracy", "loss"}
