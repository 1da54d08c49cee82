"""The wheel, installed where no checkout is: `engine train` on the digits example, and what the wheel holds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow

# What a build reads; copied, so that it neither finds leftovers of other builds nor leaves its own.
SOURCES = ("setup.py", "pyproject.toml", "README.md", "LICENSE")


def run(*command: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(
        [str(word) for word in command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built with the setuptools at hand."""
    source, output = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    folders = [file.parent.name for file in ROOT.glob("*/__init__.py")]
    for name in {*SOURCES, *folders}:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source)
    build = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index")
    run(sys.executable, *build, "--wheel-dir", output, source, folder=source)
    (found,) = output.glob("*.whl")
    return found


def test_every_file_of_the_packages_is_in_the_wheel(wheel):
    with zipfile.ZipFile(wheel) as files:
        held = {name for name in files.namelist() if ".dist-info/" not in name}
    packages = [file.parent.name for file in ROOT.glob("*/__init__.py") if file.parent.name != "mgcaffe"]
    on_disk = {
        path.relative_to(ROOT).as_posix()
        for package in packages
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert held == {"mgcaffe/__init__.py", "mgcaffe/py.typed"} | {f"mgcaffe/{name}" for name in on_disk}


def test_the_wheel_trains_the_digits_without_the_checkout(wheel, tmp_path):
    environment = tmp_path / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", environment, folder=tmp_path)
    python = environment / "bin" / "python"
    install = ("-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", "--no-compile")
    run(sys.executable, *install, wheel, folder=tmp_path)
    # The packages that it needs come from this environment. Its own .pth files, which lead to the checkout, are
    # not read there.
    (site,) = (environment / "lib").glob("python*/site-packages")
    (site / "needs.pth").write_text("".join(f"{sysconfig.get_path(kind)}\n" for kind in ("purelib", "platlib")))
    shutil.copytree(ROOT / "examples" / "digits", tmp_path / "examples" / "digits")
    where = run(python, "-c", "import mgcaffe.solvers; print(mgcaffe.solvers.__file__)", folder=tmp_path)
    assert Path(where.stdout.strip()).is_relative_to(environment)
    solver = "examples/digits/solver.prototxt"
    trained = run(environment / "bin" / "engine", "train", solver, "--max_iter=250", folder=tmp_path)
    assert "Iteration 250, Testing net (#0)" in trained.stderr
    assert (tmp_path / "examples/digits/snapshots/digits_iter_250.caffemodel").is_file()
