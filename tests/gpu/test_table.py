"""What `make gpu` makes of its parts' results; no part runs here."""

import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

gpu = importlib.import_module("tests.gpu.__main__")


def test_a_part_finds_a_checkout_that_is_not_installed(tmp_path):
    site = tmp_path / "packages"  # all that is installed but mgcaffe
    site.mkdir()
    for each in Path(pytest.__file__).parents[1].iterdir():
        if "mgcaffe" not in each.name:
            (site / each.name).symlink_to(each)
    (site / "tests").mkdir()  # another package's, which Python prefers to a folder without this file
    (site / "tests" / "__init__.py").touch()
    gpu.link_packages(tmp_path)
    test = tmp_path / "test_import.py"
    test.write_text(
        "from importlib.metadata import version\n\ndef test_it():\n    import mgcaffe\n    import mgcaffe.errors\n"
        "    import tests.support.paths\n"
        "    assert mgcaffe.__version__ == version('mgcaffe') != ''\n"
    )
    program, *words, _ = gpu.command(gpu.Part("golden", [], 10.0), tmp_path, 10.0)
    variables = gpu.environment(tmp_path, gpu.Part("golden", [], 10.0))
    variables["PYTHONPATH"] += os.pathsep + str(site)
    words = ["-S", *words, "-c", str(gpu.ROOT / "pyproject.toml"), str(test)]
    done = subprocess.run([program, *words], env=variables, cwd=gpu.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_failures_come_with_their_first_line_and_end_no_other_part(tmp_path):
    part = gpu.Part("layers", [], 10.0)
    rows = [("test.py::test_a", "passed", ""), ("test.py::test_b", "failed", "\nAssertionError: 3 | 4\nmore")]
    lines = [json.dumps({"test": name, "outcome": outcome, "s": 1, "message": text}) for name, outcome, text in rows]
    (tmp_path / "layers.jsonl").write_text("\n".join(lines))
    gpu.judge(part, tmp_path, None, "")
    assert part.has_failed
    assert part.outcome.endswith("1 passed, 1 failed") and part.outcome.startswith("killed")
    other = gpu.Part("golden", [], 10.0)
    gpu.judge(other, tmp_path, 4, "collected\nImportError: no module")
    assert "failed with code 4" in other.outcome
    text = gpu.table([part, other], "a GPU")
    assert "| layers | test_b: AssertionError: 3 / 4 |" in text and "ImportError: no module" in text


def test_steps_are_shown_with_the_share_of_the_limit(tmp_path):
    row = {"model": "lenet", "batch": 64, "precision": "tf32", "side": "ours", "median_ms": 2.0, "time_ratio": 0.5}
    row |= {"gflops": 30.0, "limit_gflops": 120.0, "peak_mib": 10.0}
    (tmp_path / "step.json").write_text(json.dumps([row]))
    part = gpu.Part("step", [], 10.0, measures=True)
    gpu.judge(part, tmp_path, 0, "lenet: compile: not ready within 70 s")
    assert part.outcome == "measured, a side LEFT OUT"
    text = gpu.table([part], "a GPU")
    assert "| lenet | 64 | tf32 | ours | 2.00 | 0.500 | 25.0% | 10 |" in text and "not ready" in text


@pytest.mark.parametrize(
    ("code", "said", "outcome", "failed", "left_out"),
    [
        (0, "", "measured", False, False),
        (0, "lenet: compile: not ready within 75 s", "measured, a side LEFT OUT", False, True),
        (0, "lenet: ours: ended with code 1", "measured, a side FAILED", True, False),
        (1, "nothing was measured", "failed with code 1", True, False),
        (None, "", "killed after 0 s; failed", True, False),
    ],
)
def test_a_side_that_is_missing_is_said(tmp_path, code, said, outcome, failed, left_out):
    part = gpu.Part("step", [], 10.0, measures=True)
    gpu.judge(part, tmp_path, code, said)
    assert (part.outcome, part.has_failed, part.is_left_out) == (outcome, failed, left_out)
    assert said == "" or said in part.notes


@pytest.mark.parametrize(
    ("measures", "said", "outcome", "failed"),
    [
        (True, "", "killed after 0 s; LEFT OUT", False),
        (True, "lenet: ours: ended with code 1", "killed after 0 s; LEFT OUT, a side FAILED", True),
        (False, "passed", "killed after 0 s; 1 passed, the rest LEFT OUT", False),
        (False, "failed", "killed after 0 s; 0 passed, 1 failed, the rest LEFT OUT", True),
    ],
)
def test_a_part_that_the_end_of_all_time_cut_is_left_out(tmp_path, measures, said, outcome, failed):
    row = {"test": "test.py::test_1", "outcome": said, "s": 0, "message": ""}
    (tmp_path / "part.jsonl").write_text("" if measures else json.dumps(row))
    part = gpu.Part("part", [], 10.0, measures=measures)
    gpu.judge(part, tmp_path, None, said, is_cut=True)
    assert (part.outcome, part.has_failed, part.is_left_out) == (outcome, failed, True)


def test_what_a_part_prints_comes_with_the_results(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "command", lambda *_: [sys.executable, "-c", "print('a line'); raise SystemExit(3)"])
    results, work = tmp_path / "results", tmp_path / "work"
    for each in (results, work):
        each.mkdir()
    for name in ("golden", "layers"):
        gpu.run(gpu.Part(name, [], 30.0), work, time.monotonic() + 60, results / "gpu_results.jsonl")
    text = (results / "gpu_output.txt").read_text()
    assert text.count("a line\n") == 2 and "==== layers: 0 passed, failed with code 3\n" in text


def test_sides_have_the_time_that_their_part_leaves_them(tmp_path):
    part = next(part for part in gpu.parts() if part.name == "step-resnet50-bf16")
    assert part.words[-1] == "compile"
    for limit, seconds in ((260.0, 150), (100.0, 60)):
        assert f"--start_limit={seconds}" in gpu.command(part, tmp_path, limit)


def test_what_does_not_apply_is_said_and_is_no_failure(tmp_path):
    rows = [
        {"test": f"test.py::test_{number}", "outcome": "skipped", "s": 0, "message": "no NCCL"} for number in (1, 2)
    ]
    (tmp_path / "nccl.jsonl").write_text("\n".join(map(json.dumps, rows)))
    part = gpu.Part("nccl", [], 10.0)
    gpu.judge(part, tmp_path, 0, "")
    assert (part.outcome, part.notes) == ("does not apply here: no NCCL", [])
    (tmp_path / "nccl.jsonl").write_text("\n".join(map(json.dumps, [rows[0], rows[1] | {"outcome": "passed"}])))
    gpu.judge(part, tmp_path, 0, "")
    assert (part.outcome, part.notes) == ("1 passed, 1 skipped", ["test_1: skipped: no NCCL"])
    assert gpu.conclude([part]) == 0


def test_a_part_that_was_left_out_ends_with_its_own_exit_code_and_a_failure_counts_more(tmp_path, capsys):
    late, broken, fine = (gpu.Part(name, [], 10.0) for name in ("layers", "golden", "ranks"))
    gpu.run(late, tmp_path, time.monotonic(), tmp_path / "log")
    assert "layers: LEFT OUT: no time left" in capsys.readouterr().out
    assert json.loads((tmp_path / "log").read_text())["outcome"] == late.outcome
    assert gpu.conclude([fine, late]) == 3
    assert (
        'LEFT OUT, at least in part, for lack of time: layers; run make gpu GPU_ARGS="layers"'
        in capsys.readouterr().err
    )
    broken.has_failed = True
    assert gpu.conclude([late, broken]) == 1
    assert "FAILED: golden\nLEFT OUT" in capsys.readouterr().err


def test_every_check_of_this_folder_is_a_part():
    checks = {f"test_{part.name}.py" for part in gpu.parts() if not part.measures}
    files = {path.name for path in (gpu.ROOT / "tests" / "gpu").glob("test_*.py")}
    assert checks == files - {"test_table.py"}


def test_unknown_parts_and_a_missing_gpu_are_said(capsys, monkeypatch, tmp_path):
    assert gpu.main(["steps"]) == 2
    assert "no such part: steps; there are golden, layers" in capsys.readouterr().err
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho '2.0|'\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(SystemExit) as ended:
        gpu.main([])
    assert ended.value.code == 2
    assert "PyTorch 2.0 finds none; another Python: make gpu GPU_PYTHON=" in capsys.readouterr().err
