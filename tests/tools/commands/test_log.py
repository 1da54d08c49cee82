"""`engine log`: Caffe's logs of several ages, ours, and JSON lines, as tables, CSV and plots."""

from __future__ import annotations

import csv
import json
import re

import pytest

from mgcaffe.errors import DataError
from mgcaffe.tools.logs.plot import draw_panels, panels_of
from mgcaffe.tools.logs.reader import read_logs

# Lines as Caffe 1.0 writes them, with what else ends up in such files.
CAFFE = """\
I0224 00:32:03.394450   655 caffe.cpp:217] Using GPUs 0
I0224 00:32:03.794450   655 solver.cpp:48] Initializing solver from parameters:
test_iter: 100
I0224 00:32:04.000000   655 solver.cpp:279] Solving LeNet
I0224 00:32:04.000010   655 solver.cpp:280] Learning Rate Policy: inv
I0224 00:32:04.000020   655 solver.cpp:337] Iteration 0, Testing net (#0)
libpng warning: iCCP: known incorrect sRGB profile
I0224 00:32:05.394460   655 solver.cpp:404]     Test net output #0: accuracy = 0.0975
I0224 00:32:05.394460   655 solver.cpp:404]     Test net output #1: loss = 2.4 (* 1 = 2.4 loss)
I0224 00:32:05.500000   655 solver.cpp:337] Iteration 0, Testing net (#1)
I0224 00:32:05.600000   655 solver.cpp:404]     Test net output #0: top-1 = 0.1
I0224 00:32:06.000000   655 solver.cpp:228] Iteration 0 (-1.4013e-45 iter/s, 0.05s/100 iters), loss = 2.3
I0224 00:32:06.000000   655 solver.cpp:244]     Train net output #0: loss = 2.3 (* 1 = 2.3 loss)
I0224 00:32:06.000000   655 sgd_solver.cpp:106] Iteration 0, lr = 0.01
I0224 00:32:08.000000   655 solver.cpp:228] Iteration 100 (50.1 iter/s, 1.99s/100 iters), loss = 0.2604
W0224 00:32:08.000000   655 something.cpp:1] Iterations are long
I0224 00:32:08.000000   655 solver.cpp:244]     Train net output #0: loss = 0.26 (* 1 = 0.26 loss)
I0224 00:32:08.000000   655 sgd_solver.cpp:106] Iteration 100, lr = 0.00992565
I0224 00:32:10.000000   655 solver.cpp:454] Snapshotting to binary proto file lenet_iter_200.caffemodel
I0224 00:32:10.500000   655 solver.cpp:317] Iteration 200, loss = nan
I0224 00:32:11.000000   655 solver.cpp:337] Iteration 200, Testing net (#0)
I0224 00:32:12.000000   655 solver.cpp:404]     Test net output #0: accuracy = 0.9785
I0224 00:32:12.000000   655 solver.cpp:322] Optimization Done.
"""
# Resumed at 100, two hours later, on the night of a new year's day, and older: without the speed.
RESUMED = """\
I1231 23:59:58.000000   700 solver.cpp:279] Solving LeNet
I1231 23:59:58.000000   700 caffe.cpp:241] Resuming from lenet_iter_100.solverstate
I1231 23:59:59.000000   700 solver.cpp:337] Iteration 100, Testing net (#0)
I1231 23:59:59.000000   700 solver.cpp:404]     Test net output #0: accuracy = 0.5
I0101 00:00:01.000000   700 solver.cpp:228] Iteration 100, loss = 0.25
I0101 00:00:01.000000   700 solver.cpp:244]     Train net output #0: loss = 0.27 (* 1 = 0.27 loss)
I0101 00:00:01.000000   700 sgd_solver.cpp:106] Iteration 100, lr = 0.005
I0101 00:00:03.000000   700 solver.cpp:228] Iteration 200, loss = 0.2
"""


@pytest.fixture
def log(tmp_path):
    def write(*texts):
        paths = []
        for number, text in enumerate(texts):
            paths.append(str(tmp_path / f"{number}.log"))
            (tmp_path / f"{number}.log").write_text(text)
        return paths

    return write


def rows_of(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_caffes_log_becomes_a_table_for_training_and_one_for_each_test_net(log):
    found = read_logs(log(CAFFE))
    assert (found.net, found.runs) == ("LeNet", 1)
    assert [row.iteration for row in found.train] == [0, 100, 200]
    assert [row.rate for row in found.train] == [0.01, 0.00992565, None]
    assert [row.seconds for row in found.train] == pytest.approx([2, 4, 6.5])
    assert found.train[1].values() == {"loss": 0.26, "smoothed_loss": 0.2604, "iterations_per_s": 50.1}
    assert str(found.train[2].values()["smoothed_loss"]) == "nan"
    assert [(row.iteration, row.values()) for row in found.tests[0]] == [
        (0, {"accuracy": 0.0975, "loss": 2.4}),
        (200, {"accuracy": 0.9785}),
    ]
    assert [row.values() for row in found.tests[1]] == [{"top-1": 0.1}]


def test_csv_has_the_columns_of_caffes_parse_log_first(engine, log):
    result = engine.run("log", *log(CAFFE), "--csv", "run.csv")
    assert result.returncode == 0, result.stderr
    train = rows_of(engine.folder / "run.train.csv")
    assert list(train[0])[:4] == ["NumIters", "Seconds", "LearningRate", "loss"]
    assert [(row["NumIters"], row["LearningRate"], row["loss"]) for row in train] == [
        ("0", "0.01", "2.3"), ("100", "0.00992565", "0.26"), ("200", "", ""),
    ]  # fmt: skip
    test = rows_of(engine.folder / "run.test0.csv")
    assert [(row["NumIters"], row["LearningRate"], row["accuracy"]) for row in test] == [
        ("0", "0.01", "0.0975"), ("200", "0.00992565", "0.9785"),
    ]  # fmt: skip
    assert rows_of(engine.folder / "run.test1.csv")[0]["top-1"] == "0.1"
    assert re.search(r"accuracy +0\.0975 +0\.9785 +0\.0975 at 0 +0\.9785 at 200", result.stdout)


@pytest.mark.parametrize("together", [False, True])
def test_a_resumed_run_takes_the_place_of_what_came_after_its_snapshot(log, together):
    found = read_logs(log(CAFFE + RESUMED) if together else log(CAFFE, RESUMED))
    assert found.runs == 2
    assert [(row.iteration, row.values()["smoothed_loss"]) for row in found.train] == [
        (0, 2.3),
        (100, 0.25),
        (200, 0.2),
    ]
    assert [(row.iteration, row.values()["accuracy"]) for row in found.tests[0]] == [(0, 0.0975), (100, 0.5)]
    # The clock goes on from the last row that is left, also over the end of a year.
    assert [row.seconds for row in found.train] == pytest.approx([2, 2 + 3, 2 + 5])


def test_prefixes_of_launchers_and_of_newer_glogs_are_passed_over(log):
    text = "\n".join(f"[1,0]<stderr>:{line}" for line in CAFFE.splitlines())
    assert [row.iteration for row in read_logs(log(text)).train] == [0, 100, 200]
    newer = CAFFE.replace("I0224 ", "I20240224 ")
    assert [row.seconds for row in read_logs(log(newer)).train] == pytest.approx([2, 4, 6.5])


def test_outputs_that_share_a_name_are_distinguished(log):
    text = CAFFE.replace("#1: loss = 2.4 (* 1 = 2.4 loss)", "#1: accuracy = 0.5")
    assert read_logs(log(text)).tests[0][0].values() == {"accuracy_0": 0.0975, "accuracy_1": 0.5}


def test_our_own_log_and_json_lines_give_the_same_table(engine):
    result = engine.run("train", "solver.prototxt", "--json_log=run.json")
    assert result.returncode == 0, result.stderr
    engine.write("run.log", result.stderr)
    log = read_logs([str(engine.folder / "run.log")])
    json_log = read_logs([str(engine.folder / "run.json")])
    assert [row.iteration for row in log.train] == [0, 10, 20]
    assert [row.iteration for row in json_log.train] == list(range(20))
    for row in log.train[:2]:
        same = json_log.train[row.iteration]
        assert row.rate == pytest.approx(same.rate)
        assert row.values()["smoothed_loss"] == pytest.approx(same.values()["smoothed_loss"], rel=1e-4)
        if row.iteration:
            assert "data_wait_ms" in row.values()
    assert [row.iteration for row in log.tests[0]] == [row.iteration for row in json_log.tests[0]] == [0, 10, 20]
    for one, other in zip(log.tests[0], json_log.tests[0], strict=True):
        assert one.values()["accuracy"] == pytest.approx(other.values()["accuracy"], rel=1e-4)


def test_numbers_that_json_cannot_express_are_no_obstacle(log):
    lines = [{"event": "start", "net": "x"}, {"event": "iteration", "iter": 0, "loss": None, "lr": 0.1, "seconds": 1}]
    found = read_logs(log("".join(json.dumps(line) + "\n" for line in lines) + '{"broken\n'))
    assert str(found.train[0].values()["loss"]) == "nan"


@pytest.mark.filterwarnings("error")
def test_any_names_and_many_lines_are_drawn(tmp_path):
    series = {f"test #0: $\\frac{{$ {number}": [(0.0, 1.0), (1.0, 2.0)] for number in range(100)}
    draw_panels(str(tmp_path / "many.svg"), "$\\x$", [("score", series)])
    assert "<!-- and 89 more -->" in (tmp_path / "many.svg").read_text()
    draw_panels(str(tmp_path / "few.svg"), "", [("score", {"_a": [(0.0, 1.0)], "b": [(0.0, 2.0)]})])
    assert "<!--  _a -->" in (tmp_path / "few.svg").read_text()


def test_a_curve_that_is_alone_is_named_unless_its_axis_names_it(tmp_path, monkeypatch):
    named = []
    monkeypatch.setattr("matplotlib.axes.Axes.legend", lambda axes, lines, names, **options: named.append(names))
    rates = ("learning rate", {"learning rate": [(0, 0.1)]})
    draw_panels(str(tmp_path / "run.png"), "net", [("score", {"test #0: accuracy": [(0, 0.5)]}), rates])
    assert named == [["test #0: accuracy"]]


def test_a_plot_is_drawn(engine, log):
    paths = log(CAFFE)
    assert engine.run("log", *paths, "--plot=run.png").returncode == 0
    assert (engine.folder / "run.png").read_bytes().startswith(b"\x89PNG")
    panels = panels_of(read_logs(paths))
    assert set(panels["loss"]) == {"train: loss", "train: smoothed_loss", "test #0: loss"}
    assert set(panels["score"]) == {"test #0: accuracy", "test #1: top-1"}
    assert panels["learning rate"] == {"learning rate": [(0, 0.01), (100, 0.00992565)]}


def test_mistakes_are_named(engine, log):
    assert "the log is missing" in engine.run("log").stderr
    result = engine.run("log", *log("nothing here\n"))
    assert (result.returncode, "holds no iteration and no test" in result.stderr) == (65, True)
    with pytest.raises(DataError, match=r"cannot be read: No such file"):
        read_logs(["absent.log"])
    result = engine.run("log", *log(CAFFE), "--plot=run.gif")
    assert (result.returncode, "should end in one of .png, .svg, .pdf" in result.stderr) == (2, True)
    result = engine.run("log", *log(CAFFE), "--csv=absent/run")
    assert (result.returncode, "cannot write absent/run.train.csv" in result.stderr) == (73, True)
    result = engine.run("log", *log(CAFFE), "--csv=/")
    assert (result.returncode, "cannot write /: it names a folder" in result.stderr) == (73, True)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"event": "iteration", "iter": "7"}, "iter should be a whole number of 0 or more, not"),
        ({"event": "iteration", "iter": None}, "iter should be a whole number of 0 or more, not null"),
        ({"event": "iteration"}, "'iter' is missing"),
        ({"event": "iteration", "iter": 3, "loss": [1]}, "loss should be a number"),
        ({"event": "test", "iter": 3, "net": 10**30}, "not a number above 2^63"),
        ({"event": "test", "iter": 3, "scores": [1]}, "scores should be an object, not a list"),
        ({"event": "test", "iter": 3, "scores": {"a": ["b"]}}, "scores.a[0] should be a number"),
        ({"event": "start", "net": 3}, "net should be a text, not 3"),
    ],
)
def test_json_lines_with_values_of_other_types_are_refused_with_their_place(log, line, message):
    good = json.dumps({"event": "iteration", "iter": 1, "loss": 0.5})
    paths = log(f"{good}\n{json.dumps(line)}\n")
    with pytest.raises(DataError) as caught:
        read_logs(paths)
    assert f"{paths[0]}:2:" in str(caught.value) and message in str(caught.value)


def test_numbers_of_too_many_digits_are_no_iterations(log):
    lines = ["Iteration 5, loss = 0.5", f"Iteration {'9' * 5000}, loss = 0.5", f"Train net output #{'9' * 5000}: a = 1"]
    found = read_logs(log("\n".join(lines)))
    assert [row.iteration for row in found.train] == [5]
