"""`make ctr`: a short run, its last line, and one message where there is nothing to say."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import sysconfig

import pytest
import scores

from mgcaffe.prototxt import read_solver
from tests.support.jobs import RunningJob
from tests.support.paths import ROOT

FINISH = {"event": "finish", "examples_per_s": 12345.6, "gap": 4.25, "normalized_entropy": 0.75432, "auc": 0.8}


def test_the_line_holds_what_the_last_run_in_the_log_came_to(tmp_path, capsys):
    log = tmp_path / "run.json"
    events = [FINISH | {"auc": 0.5}, {"event": "start"}, FINISH]
    log.write_text("".join(json.dumps(event) + "\n" for event in events))
    scores.main([str(log)])
    assert capsys.readouterr().out == "examples/s 12346, gap 4.25, normalized entropy 0.7543, AUC 0.8000\n"


def test_one_trainer_has_no_gap(capsys):
    assert scores.line(FINISH | {"gap": None}).startswith("examples/s 12346, gap none, ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read: No such file or directory"),
        ("not JSON\n", "is no JSON log of `engine train`"),
        ('{"event": "start"}\n[]\n', "holds no finished run with tests of normalized_entropy and auc"),
        ('{"event": "finish", "gap": 1, "auc": 0.5}\n', "holds no finished run with tests of"),
    ],
)
def test_a_log_without_scores_is_one_message(tmp_path, capsys, text, said):
    log = tmp_path / "run.json"
    if text is not None:
        log.write_text(text)
    with pytest.raises(SystemExit) as caught:
        scores.main([str(log)])
    error = capsys.readouterr().err
    assert caught.value.code == 65 and error.startswith(f"error: '{log}' ") and said in error
    assert error.count("\n") == 1


def test_two_trainers_see_every_generated_row_about_once():
    solver = read_solver(ROOT / "examples/ctr/solver.prototxt", strict=True)
    assert 0 <= 2 * 128 * solver.max_iter - 200_000 < 256
    assert solver.net == "models/dlrm_small/train_val.prototxt"
    assert solver.max_iter % solver.test_interval == 0


@pytest.mark.mpi
@pytest.mark.slow
def test_make_ctr_ends_with_its_line(tmp_path):
    for folder in ("examples/ctr", "models/dlrm_small"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    path = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
    command = [
        "make", "-f", ROOT / "Makefile", f"VENV={sys.prefix}", "-o", f"{sys.prefix}/.installed",
        "CTR_ROWS=5000", "CTR_ARGS=--max_iter=20", "ctr",
    ]  # fmt: skip
    environment = {"PATH": path, "MAKELEVEL": "0", "MAKEFLAGS": ""}  # as in test_tour.py
    with RunningJob(command, environment=environment, cwd=tmp_path) as job:
        made = job.end(120)
    assert made.returncode == 0, made.describe()
    lines = made.stdout.splitlines()
    assert [line.startswith("5000 generated rows in build/ctr/") for line in lines].count(True) == 1
    assert re.fullmatch(
        r"examples/s \d+, gap \d+\.\d\d, normalized entropy \d\.\d{4}, AUC 0\.\d{4}", lines[-1]
    ), made.stdout  # fmt: skip
    assert sum(line.startswith("examples/s") for line in lines) == 1
