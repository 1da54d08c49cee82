"""The `engine` command as a process: instant help, the version, unknown commands."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mgcaffe.tools.main import COMMANDS, PROGRAMS
from mgcaffe.tools.running.session import Session
from tests.support.paths import ROOT

pytestmark = pytest.mark.slow

_PROBE = """
import sys
from mgcaffe.tools.main import main
try:
    code = main({words!r})
except SystemExit as end:
    code = end.code
heavy = sorted({{"torch", "mpi4py", "numpy", "rich", "google.protobuf"}} & set(sys.modules))
sys.exit(f"imported {{heavy}}" if heavy else code)
"""


def _engine(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _PROBE.format(words=list(words))], capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("words", [("--help",), ("-h",), ("train", "--help"), ("summary", "-help"), ("--version",)])
def test_help_and_version_are_answered_without_heavy_imports(words):
    result = _engine(*words)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(("usage: engine", "engine 0."))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_complete_help(command, capsys):
    from importlib import import_module

    with pytest.raises(SystemExit):
        import_module(f"mgcaffe.tools.commands.{command}").parser().parse(["--help"])
    text = capsys.readouterr().out
    assert f"usage: engine {command}" in text
    assert "one dash or two" in text


def test_without_arguments_it_shows_help_and_fails():
    result = _engine()
    assert result.returncode == 2
    assert "commands:" in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("trainn",), "unknown command 'trainn'; did you mean 'train'?"),
        (("parse_log", "x.log", "."), "'parse_log' is a program of its own"),
        (("--solver=x",), "'--solver=x' stands where the command belongs"),
        (("train",), "the solver is missing"),
        (("train", "--solvr=x"), "did you mean '--solver'?"),
    ],
)
def test_mistakes_end_with_code_2_and_no_traceback(words, message):
    result = _engine(*words)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 512 bytes."),
            ": tried to allocate 512 bytes",
        ),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.50 GiB (GPU 0)"), ": tried to allocate 2.50 GiB"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), "out of memory"),
        (RuntimeError("could not execute a primitive"), "out of memory"),
        (MemoryError(), "out of memory"),
    ],
)
def test_memory_that_is_not_there_is_no_mistake_of_ours(monkeypatch, capsys, error, message):
    from mgcaffe.tools.commands import summary
    from mgcaffe.tools.main import main

    def fail(*arguments: object) -> int:
        raise error

    monkeypatch.setattr(summary, "run", fail)
    assert main(["summary", "net.prototxt"]) == 1
    said = capsys.readouterr().err
    assert message in said
    assert "lower batch_size" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("code", [None, 0])
def test_a_run_that_is_left_by_sys_exit_is_not_taken_for_complete(monkeypatch, capsys, code):
    from mgcaffe.tools.commands import train
    from mgcaffe.tools.main import main

    def leave(flags: object, session: Session) -> int:
        session.connect()
        sys.exit(code)

    monkeypatch.setattr(train, "run", leave)
    assert main(["train", "solver.prototxt"]) == 1
    assert capsys.readouterr().err == "error: sys.exit was called before the end of the run\n"


def test_the_programs_beside_engine_are_those_that_are_installed():
    lines = (ROOT / "pyproject.toml").read_text().partition("[project.scripts]\n")[2].partition("\n\n")[0].splitlines()
    assert {line.split(" = ")[0] for line in lines} == {"engine", *PROGRAMS}
