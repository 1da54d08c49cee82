"""`make tour` and `make demo`: short runs, the table, the page, and one message where something fails."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import sysconfig
from html.parser import HTMLParser

import pytest
import tour

from tests.support.jobs import RunningJob
from tests.support.paths import ROOT

_VOID = {"meta", "link", "br", "rect", "line", "circle", "polyline", "img"}


def json_log(folder, schedule, *, milliseconds, exposed, predicted=None, loss=0.25, iterations=20):
    """A JSON log of `iterations` iterations of one plan, found at iteration 5."""
    plan = {"event": "plan", "iter": 5, "schedule": schedule, "plan": schedule, "groups": [[1, 1, 8], [0, 0, 8]],
            "predicted": predicted}  # fmt: skip
    lines = [{"event": "start", "net": "tiny", "iter": 0}, plan]
    lines += [
        {"event": "iteration", "iter": number, "loss": loss, "seconds": milliseconds / 1e3, "comm_hidden_ms": 3.0,
         "comm_exposed_ms": exposed}
        for number in range(iterations)
    ]  # fmt: skip
    path = folder / f"{schedule}.json"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def results(tmp_path):
    logs = {
        "single": json_log(tmp_path, "single", milliseconds=10, exposed=4, predicted={"exposed_ms": 3.5}),
        "wfbp": json_log(tmp_path, "wfbp", milliseconds=8, exposed=1, predicted={"exposed_ms": 1.25}),
        "auto": json_log(tmp_path, "auto", milliseconds=7, exposed=0.5),
    }
    return [tour.measured(name, tour.read_run(path), tmp_path / "absent") for name, path in logs.items()]


class Tree(HTMLParser):
    """Checks that tags close, and collects what a page would load from elsewhere."""

    def __init__(self):
        super().__init__()
        self.open, self.loads = [], []

    def handle_starttag(self, tag, attributes):
        if tag not in _VOID:
            self.open.append(tag)
        self.loads += [value for name, value in attributes if name in ("src", "href")]

    def handle_endtag(self, tag):
        if tag not in _VOID:
            assert self.open.pop() == tag


def test_the_table_compares_measured_and_predicted(results):
    rows = [line.split() for line in tour.table(results).splitlines()[2:]]
    assert rows[0] == ["single", "2", "10.00", "9.50", "7.00", "ms", "43", "%", "0.25"]
    assert rows[1] == ["wfbp", "2", "8.00", "8.25", "4.00", "ms", "75", "%", "0.25"]
    assert rows[2] == ["auto", "2", "7.00", "-", "3.50", "ms", "86", "%", "0.25"]
    assert max(map(len, tour.table(results).splitlines())) <= 100


def test_the_page_is_whole_and_needs_nothing_from_elsewhere(results):
    html = tour.page.make_page(results, "a=1e-3,b=2e-9", 2)
    tree = Tree()
    tree.feed(html)
    assert not tree.open and not tree.loads
    assert "auto is the fastest with 7.00 ms per iteration; single takes 1.43 times as long (10.00 ms)" in html
    assert "All end with the same loss, to the bit." in html
    assert "a=1e-3,b=2e-9" in html
    assert html.count("<svg") == 1 and "too short to record an iteration" in html
    assert "predicted: 9.500 ms" in html and "hidden communication: 3.00 ms, 86 %" in html


def test_unlike_losses_are_not_called_the_same(results, tmp_path):
    other = json_log(tmp_path, "optimal", milliseconds=9, exposed=1, loss=0.26)
    results = [*results, tour.measured("optimal", tour.read_run(other), tmp_path / "absent")]
    assert "same loss" not in tour.page.verdict(results)


@pytest.mark.mpi
@pytest.mark.slow
def test_a_short_tour_on_two_ranks_ends_with_table_and_page(tmp_path, capsys):
    words = ["--iterations=24", "--schedules=wfbp,single", f"--output={tmp_path}", "--emulate_link=a=2e-3,b=1e-9"]
    assert tour.main(words) == 0, capsys.readouterr().err
    out = capsys.readouterr().out
    wfbp, single = (
        re.search(rf"^{name} +(\d) +(\S+) +(\S+) +(\S+) ms +\d+ %", out, re.M) for name in ("wfbp", "single")
    )
    assert (wfbp[1], single[1]) == ("4", "1")
    # The emulated link's start-up cost is paid once for each group.
    assert float(wfbp[4]) >= 4 * 2.0 and float(single[4]) >= 2.0
    assert out.splitlines()[-1] == f"Picture: {tmp_path / 'tour.html'}"
    html = (tmp_path / "tour.html").read_text()
    Tree().feed(html)
    assert html.count("<svg") == 3 and "All end with the same loss" in html


@pytest.mark.mpi
def test_a_run_that_fails_ends_the_tour_with_one_message_and_its_code(tmp_path, capsys):
    assert tour.main(["--schedules=wfpb", f"--output={tmp_path}"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: the run under schedule wfpb ended with exit code 2; the end of ")
    assert "wfpb" in error.split("\n", 1)[1] and "Traceback" not in error


def test_an_output_that_cannot_be_written_is_one_message(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert tour.main([f"--output={tmp_path / 'file' / 'folder'}"]) == 73
    assert "error: cannot write to " in capsys.readouterr().err


@pytest.mark.mpi
@pytest.mark.slow
def test_the_demo_ends_with_the_path_of_its_report(tmp_path):
    shutil.copytree(ROOT / "examples/digits", tmp_path / "examples/digits")
    path = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
    page = "examples/digits/snapshots/demo.html"
    # As after another demo: a JSON log is appended to.
    log = tmp_path / "examples/digits/snapshots/demo.json"
    log.write_text('{"event": "start", "net": "digits", "iter": 0}\n')
    for name in ("demo.timeline.json", "demo.html"):
        log.with_name(name).write_text("of another demo")
    command = [
        "make", "-f", ROOT / "Makefile", f"VENV={sys.prefix}", "-o", f"{sys.prefix}/.installed",
        "DEMO_ARGS=--max_iter=40 --schedule=single", "demo",
    ]  # fmt: skip
    # `make test` would make this one a sub-make, which prints the folders that it enters and leaves.
    environment = {"PATH": path, "MAKELEVEL": "0", "MAKEFLAGS": ""}
    with RunningJob(command, environment=environment, cwd=tmp_path) as job:
        made = job.end(120)
    assert made.returncode == 0, made.stderr
    last = made.stdout.splitlines()[-1]
    assert last == f"{page}: 40 iterations, timeline examples/digits/snapshots/demo.timeline.json"
    assert "training report" in (tmp_path / page).read_text()
    assert log.read_text().count('"event": "start"') == 1
